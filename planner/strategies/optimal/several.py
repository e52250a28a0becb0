"""The ways to run a block on any accelerator of a machine, in numbers: those of each, side by side.

A way is between the host and one accelerator. Lanes and memories have one column each, whoever uses them: what the
host, its memory and the chain are asked for adds up over accelerators. So a composition may divide blocks among
accelerators at will; that blocks follow each other in ranges, or that hidden states cross in between, costs nothing
here, and a bound on compositions is one on every such plan."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product, starmap

import numpy as np

from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.lowering.streams import Ways as Routes
from helmsman.planner.buffers import STOPS
from helmsman.planner.costs import CostModel
from helmsman.planner.machine import Roles
from helmsman.planner.memory import memory_use
from helmsman.planner.strategies.optimal.besides import Beside
from helmsman.planner.strategies.optimal.block_ways import BlockWay, on_accelerator, on_host
from helmsman.planner.strategies.optimal.blocks import Blocks
from helmsman.planner.strategies.optimal.lowered_parts import CHAIN, TURNING
from helmsman.planner.strategies.optimal.model_ends import of_ends
from helmsman.planner.strategies.optimal.offered_ways import offered
from helmsman.planner.strategies.optimal.pace import HOST, Pace, Track
from helmsman.planner.strategies.optimal.rules import Assignment, Shares, Side, place
from helmsman.planner.strategies.optimal.steps import Steps
from helmsman.planner.strategies.optimal.turned import Lane, Names, called, turned
from helmsman.planner.strategies.optimal.ways import Chosen, Numbers, Ways
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.scheduler.iteration import PHASES, Phase
from helmsman.schemas.formats import size_of
from helmsman.schemas.hardware import Device, Hardware

Ends = tuple[Side, Side]
"""Where the embedding and the output live and run."""

_STREAMED = 2
"""Flows that arrive in an accelerator's memory: weights, keys and values."""


@dataclass(frozen=True)
class Known:
    """What is known of a question on machines that differ in their figures alone: `ways`, tasks of `blocks` and the
    shares with which those are lowered (`panels`) by accelerator; tasks `outside` blocks and bytes of every memory that
    are `used` by where the ends are."""

    ways: dict[int, tuple[BlockWay, ...]] = field(default_factory=dict)
    panels: dict[int, Shares] = field(default_factory=dict)
    blocks: dict[int, dict[object, tuple[Task, ...]]] = field(default_factory=dict)
    outside: dict[tuple[Ends, Phase], tuple[Task, ...]] = field(default_factory=dict)
    used: dict[Ends, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class AllBlocks:
    """What blocks ask for in some `phases`, on any of a frame's accelerators. `costs`: prices; `fractional`: as for the
    blocks of one; `settled`: ways that were lowered themselves, by row."""

    frame: Frame
    costs: CostModel
    phases: tuple[Phase, ...] = PHASES
    fractional: bool = False
    parts: Known = field(default_factory=Known, compare=False, repr=False)
    settled: dict[int, Numbers] = field(default_factory=dict, init=False, compare=False, repr=False)

    @cached_property
    def members(self) -> tuple[Blocks, ...]:
        """By accelerator."""
        return tuple(starmap(self._member, enumerate(self.frame.roles.each)))

    def _member(self, on: int, roles: Roles) -> Blocks:
        frame, lowered = replace(self.frame, roles=roles), self.parts.blocks.setdefault(on, {})
        if on not in self.parts.ways:
            self.parts.ways[on] = offered(frame, "prefill" in self.phases)
        away = self.frame.roles.accelerators
        found = Blocks(frame, self.parts.ways[on], self.costs, self.phases, self.fractional, lowered, away=away)
        if on not in self.parts.panels:
            self.parts.panels[on] = found.shares
        return replace(found, panels=self.parts.panels[on])

    def only(self, rows: Chosen) -> "AllBlocks":
        """The same with some of its ways, which keep their order."""
        found: dict[int, tuple[BlockWay, ...]] = dict.fromkeys(range(len(self.members)), ())
        for on, row in (self._rows[row] for row in rows):
            found[on] += (self.members[on].ways[row],)
        return replace(self, parts=replace(self.parts, ways=found))

    @cached_property
    def ways(self) -> tuple[BlockWay, ...]:
        """In the order of rows."""
        found = ((on, self.members[on].ways[row]) for on, row in self._rows)
        return tuple(way if way.on == on else replace(way, on=on) for on, way in found)

    @cached_property
    def summed(self) -> Ways:
        """Every way as a sum of parts: at most what it really asks for."""
        lanes = (self._spread(on, rows, blocks.summed.lanes[rows]) for on, rows, blocks in self._each)
        return replace(self.asked, lanes=np.vstack(list(lanes)))

    @cached_property
    def asked(self) -> Ways:
        """What every way asks of memories alone."""
        kept, coming = [], []
        for on, rows, blocks in self._each:
            kept.append(np.zeros((len(rows), len(self.memories))))
            kept[-1][:, self._kept(on)] = blocks.kept[rows]
            coming.append(np.zeros((len(rows), self.flows)))
            coming[-1][:, self._coming(on)] = blocks.coming[rows]
        return Ways(np.zeros((len(self._rows), 0)), np.vstack(kept), np.vstack(coming))

    @property
    def _each(self) -> Iterator[tuple[int, list[int], Blocks]]:
        """By accelerator the rows of its ways."""
        for on, blocks in enumerate(self.members):
            yield on, [row for number, row in self._rows if number == on], blocks

    def exact(self, row: int) -> Numbers:
        """Seconds by lane of one way, lowered itself."""
        if row not in self.settled:
            on, own = self._rows[row]
            if on and self.twins:
                first = self._places[0, own]
                self.settled[row] = self.exact(first)[self.turns[-on]]
            else:
                self.settled[row] = self._spread(on, [own], self.members[on].exact(own)[None])[0]
        return self.settled[row]

    @cached_property
    def prompts(self) -> Chosen:
        """By way, the first row of those whose prompts are computed in the same way."""
        first: dict[object, int] = {}
        return np.array([first.setdefault(way.in_prompts, row) for row, way in enumerate(self.ways)], dtype=np.intp)

    @property
    def known(self) -> Chosen:
        """The rows of ways that were lowered themselves."""
        return np.array(sorted(self.settled), dtype=np.intp)

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes in order of columns."""
        names = (lane for _, named in self._named for lane in named)
        found = dict.fromkeys(names)
        return tuple(lane for phase in self.phases for lane in found if lane[0] == phase)

    @cached_property
    def phase(self) -> Chosen:
        """The number of the phase of every lane."""
        return np.array([self.phases.index(phase) for phase, _ in self.lanes], dtype=np.intp)

    @cached_property
    def memories(self) -> tuple[str, ...]:
        """The memories in order of columns: the host's first, storage last."""
        roles, store = self.frame.roles, self.frame.store
        away = (device.memory for device in roles.accelerators)
        return tuple(dict.fromkeys((roles.host.memory, *away, *(store.memories if store else ()))))

    def buffers(self, blocks: int) -> Numbers:
        """How many bytes of each memory a byte on its way takes (flows, memories), with buffers for so many blocks;
        what stops in host memory does so in buffers of its own."""
        found = np.zeros((self.flows, len(self.memories)))
        for on, device in enumerate(self.frame.roles.accelerators):
            stream = self._coming(on)
            found[stream.start : stream.start + _STREAMED, self.memories.index(device.memory)] = blocks
            found[stream.start + _STREAMED : stream.stop, 0] = STOPS
        return found

    @property
    def everywhere(self) -> tuple[Ends, ...]:
        """Where the ends may be."""
        others = range(1, len(self.members))
        sides: tuple[Side, ...] = ("host", "accelerator", *others)
        return tuple(product(sides, sides))

    @cached_property
    def arrangements(self) -> tuple[Ends, ...]:
        """Where the ends may be, each once where accelerators are alike."""
        return tuple(filter(_first_of_alike, self.everywhere)) if self.alike else self.everywhere

    @cached_property
    def alike(self) -> bool:
        """Whether there are several accelerators with memories of their own that differ in nothing but names and,
        against the first one, in longer latencies of their links."""
        found = self._figured
        first = found[0][1] if found else ()
        later = all(mine <= other for _, latencies in found for mine, other in zip(first, latencies, strict=True))
        return len(found) > 1 and later and len({figures for figures, _ in found}) == 1

    @cached_property
    def twins(self) -> bool:
        """Whether they differ in nothing but names."""
        return self.alike and len(set(self._figured)) == 1

    @property
    def _figured(self) -> list[tuple[str, tuple[float, ...]]]:
        """The figures of accelerators; none where any has no memory of its own."""
        roles = self.frame.roles
        if len(self.memories) < 1 + len(roles.accelerators):
            return []
        return [_figures(roles.hardware, roles.host, device) for device in roles.accelerators]

    @cached_property
    def called(self) -> tuple[Names, ...]:
        """By accelerator, what its lanes are called, where they are alike."""
        return called(self.frame.roles, self.lanes)

    @cached_property
    def turns(self) -> tuple[Chosen, ...]:
        """By turn of accelerators that are alike, for every lane the column of the one that takes its place."""
        return tuple(turned(self.called, self.lanes))

    @property
    def count(self) -> int:
        """Blocks to be composed."""
        return self.frame.model.layers

    def lopsided(self, to: int = -1) -> Chosen:
        """The rows of ways with which something comes to one accelerator only: others need no room for that."""
        one, coming = range(len(self.members))[to], self.summed.coming.max(axis=1)
        return np.flatnonzero([way.on == one or not coming[row] for row, way in enumerate(self.ways)])

    def free(self, ends: Ends) -> Numbers:
        """Bytes for blocks (memories): what is available without the ends and without buffers of devices that work."""
        used, memory = self._used(ends), self.frame.roles.hardware.memory
        free = [memory(name).available - used[name] for name in self.memories]
        return np.asarray(np.array(free, dtype=np.float64) + self._taken)

    @cached_property
    def _taken(self) -> Numbers:
        """Bytes of every memory that blocks take with every accelerator at work."""
        found = np.zeros(len(self.memories))
        for way, count in Counter(self._working).items():
            blocks = replace(self.members[way.on], ways=(replace(way, on=0),))
            found[self._kept(way.on)] += count * blocks.kept[0]
        return found

    def _used(self, ends: Ends) -> Mapping[str, int]:
        """Bytes of every memory with every accelerator at work."""
        if ends not in self.parts.used:
            uses = memory_use(place(self.frame, Assignment(self._working, *ends, {})))
            self.parts.used[ends] = {use.memory: use.used for use in uses}
        return self.parts.used[ends]

    @property
    def _working(self) -> tuple[BlockWay, ...]:
        """A block on every accelerator, the others on the host."""
        model, host = self.frame.model, on_host(self.frame.model)
        away = (replace(on_accelerator(model), on=on) for on in range(len(self.members)))
        return (*away, *(host,) * model.layers)[: model.layers]

    def ends(self, embedding: Side, output: Side) -> Numbers:
        """Seconds by lane of the ends of the model."""
        found = dict[Lane, float]()
        for phase in self.phases:
            outside = self._outside((embedding, output), phase)
            for blocks, named in self._named:
                own = (lane for lane in named if lane[0] == phase)
                for lane, seconds in zip(own, of_ends(blocks.bases[phase], outside, self.count), strict=True):
                    found[lane] = max(found.get(lane, 0.0), float(seconds))
        return np.array([found[lane] for lane in self.lanes])

    def _outside(self, ends: Ends, phase: Phase) -> tuple[Task, ...]:
        """The tasks of the ends of the model."""
        if (ends, phase) not in self.parts.outside:
            model, output = self.frame.model.model_copy(update={"layers": 1}), ends[1]
            on = 0 if isinstance(output, str) else output
            last = on_host(model) if output == "host" else replace(on_accelerator(model), on=on)
            placed = place(replace(self.frame, model=model), Assignment((last,), *ends, {}))
            tasks = lower(placed, self.members[0].iteration(phase)).tasks
            self.parts.outside[ends, phase] = tuple(task for task in tasks if task.layer is None)
        return self.parts.outside[ends, phase]

    @cached_property
    def shares(self) -> Mapping[int, Shares]:
        """By accelerator and operation, the share of its rows that it has where the host has the others."""
        return {on: blocks.shares for on, blocks in enumerate(self.members)}

    def track(self, ends: Ends, weights: Mapping[Phase, float]) -> Track:
        """How blocks follow each other in the phase of most weight, the last one of those, and in the others."""
        *others, own = sorted(filter(weights.get, self.phases), key=lambda phase: weights[phase])
        worth = [(weights[phase] / weights[own], self._track(ends, phase)) for phase in others]
        return replace(self._track(ends, own), others=tuple(worth))

    def steps(self, phase: Phase, rows: Chosen) -> Steps:
        """What blocks of some ways of one accelerator do step by step, as long as those take that were lowered."""
        found, chain = self._steps[phase].only(rows), self.lanes.index((phase, CHAIN))
        chains = [self.settled[row][chain] if row in self.settled else 0.0 for row in rows.tolist()]
        return found.lasting(np.maximum(found.seconds.sum(axis=1), chains)).merged()

    @cached_property
    def _steps(self) -> Mapping[Phase, Steps]:
        return {phase: self.members[0].following[phase].steps for phase in self.phases}

    def _track(self, ends: Ends, phase: Phase) -> Track:
        batches = self.members[0].iteration(phase).batches
        first, last = (HOST if side == "host" else 0 if side == "accelerator" else side for side in ends)
        together = self.members[0].following[phase].together
        return Track(self._paces[phase], self._crossings, batches, (first, last), together=together)

    @cached_property
    def _paces(self) -> Mapping[Phase, tuple[Pace, ...]]:
        return {phase: tuple(self._paced(phase)) for phase in self.phases}

    def _paced(self, phase: Phase) -> Iterator[Pace]:
        for way, (on, row) in zip(self.ways, self._rows, strict=True):
            yield _on(self.members[on].following[phase].paces[row], way, phase)

    def smooth(self, most: float, phase: Phase) -> Chosen:
        """The rows of ways whose link works for at most so many times the seconds of the operations beside it."""
        return np.flatnonzero([each.link <= most * each.beside for each in self._paces[phase]])

    @cached_property
    def waiting(self) -> Numbers:
        """Seconds (ways, lanes) for which, if all blocks had the same way, chains would wait for what comes, or a link
        for the operations beside it."""
        found = np.zeros((len(self.ways), len(self.lanes)))
        carriers = [set(blocks.carriers) for blocks in self.members]
        free = {phase: np.array([each.beside - each.link for each in paces]) for phase, paces in self._paces.items()}
        for column, lane in enumerate(self.lanes):
            busy = free[lane[0]]
            if lane[1].startswith(CHAIN):
                found[:, column] = np.maximum(0.0, -busy)
            elif any(lane in each for each in carriers):
                own = np.array([lane in carriers[on] for on, _ in self._rows])
                found[:, column] = np.where(own, np.maximum(0.0, busy), 0.0)
        return found

    def coming(self, phase: Phase) -> Numbers:
        """Seconds (ways) of the link by which most comes for a block."""
        return np.array([each.link for each in self._paces[phase]])

    @cached_property
    def _crossings(self) -> Mapping[tuple[int, int], float]:
        """Seconds of hidden states from one device's memory to another's."""
        iteration, hardware = self.members[0].iteration(self.phases[-1]), self.frame.roles.hardware
        size = size_of(iteration.batch * iteration.tokens * self.frame.model.hidden, self.frame.roles.activations)
        devices = {HOST: self.frame.roles.host, **dict(enumerate(self.frame.roles.accelerators))}
        routes, found = Routes(hardware), {}
        for (a, source), (b, target) in product(devices.items(), repeat=2):
            hops = () if source.memory == target.memory else routes.hops(source.memory, target.memory, size, "pinned")
            found[a, b] = sum(hop.link.latency.value + size / hop.link.bandwidth.value for hop in hops)
        return found

    @cached_property
    def _rows(self) -> tuple[tuple[int, int], ...]:
        """By way, the accelerator and its row there; what the host does alone is the first one's."""
        pairs = ((on, row) for on, blocks in enumerate(self.members) for row in range(len(blocks.ways)))
        return tuple((on, row) for on, row in pairs if not on or not self.members[on].ways[row].alone)

    @cached_property
    def _places(self) -> Mapping[tuple[int, int], int]:
        """By accelerator and its row, the way."""
        return {pair: row for row, pair in enumerate(self._rows)}

    @cached_property
    def _named(self) -> tuple[tuple[Blocks, tuple[Lane, ...]], ...]:
        """By accelerator its blocks, and what its lanes are called here."""
        return tuple((blocks, blocks.lanes) for blocks in self.members)

    def _spread(self, on: int, rows: list[int], lanes: Numbers) -> Numbers:
        """Seconds (ways, lanes) of an accelerator's ways. Beside a busy link of another one, a way takes at
        least its seconds as if it lost all that any operation can lose."""
        named = self._named[on][1]
        found = np.zeros((len(lanes), len(self.lanes)))
        for lane, (each, chain) in self._far[on].items():
            column = named.index((lane[0], TURNING[1]))
            found[:, self.lanes.index(lane)] = np.maximum(chain[rows], each.idle * lanes[:, column])
        found[:, [self.lanes.index(lane) for lane in named]] = lanes
        return found

    @cached_property
    def _far(self) -> tuple[Mapping[Lane, tuple[Beside, Numbers]], ...]:
        """By accelerator, and busy link or another lane of another one, the chains of its ways beside that."""
        found = {(phase, name): each for blocks in self.members for phase, name, each in _besides(blocks)}
        return tuple(
            {lane: (each, blocks.beside(lane[0], each)) for lane, each in found.items() if lane not in named}
            for blocks, named in self._named
        )

    def _kept(self, on: int) -> list[int]:
        """The columns of an accelerator's memories."""
        store = self.frame.store
        memories = (self.frame.roles.host.memory, self.frame.roles.accelerators[on].memory)
        names = dict.fromkeys((*memories, *(store.memories if store else ())))
        return [self.memories.index(memory) for memory in names]

    def _coming(self, on: int) -> slice:
        """The columns of what comes to an accelerator."""
        each = self.flows // len(self.members)
        return slice(on * each, (on + 1) * each)

    @cached_property
    def flows(self) -> int:
        """Kinds of what is on its way."""
        return sum(blocks.coming.shape[1] for blocks in self.members)


def _besides(blocks: Blocks) -> Iterator[tuple[Phase, str, Beside]]:
    """The chains beside a busy link, or another lane, of one accelerator."""
    for phase in blocks.phases:
        yield from ((phase, name, each) for name, each in blocks.bases[phase].beside.items())


def _on(pace: Pace, way: BlockWay, phase: Phase) -> Pace:
    """A pace with where its block begins and ends."""
    parts = way.parts_in(phase)
    first, last = (HOST if parts[place] == "host" else way.on for place in (0, -1))
    return pace._replace(on=HOST if way.alone else way.on, first=first, last=last)


def _first_of_alike(ends: Ends) -> bool:
    """Whether the ends name accelerators in order, beginning with the first."""
    named = dict.fromkeys(0 if side == "accelerator" else side for side in ends if side != "host")
    return list(named) == list(range(len(named)))


def _figures(hardware: Hardware, host: Device, device: Device) -> tuple[str, tuple[float, ...]]:
    """All that a record says of an accelerator, its memory and its links with the host but names; and latencies."""
    memory = hardware.memory(device.memory).model_copy(update={"name": ""})
    ends = ((host.memory, device.memory), (device.memory, host.memory))
    links = [link for pair in ends if (link := hardware.link(*pair)) is not None]
    names = {"name": "", "source_memory": "", "target_memory": "", "shares": None, "latency": None}
    alone = device.model_copy(update={"name": "", "memory": "", "excludes": ()})
    plain = (alone, memory, *(link.model_copy(update=names) for link in links))
    return repr(plain), tuple(link.latency.value for link in links)
