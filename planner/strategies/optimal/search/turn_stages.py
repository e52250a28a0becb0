"""The stages of passes of several batches, as the clock follows them (`timing._clock.followed`).

Lowering a whole plan takes ten times as long as following it. So a block of every way is lowered once after every kind
of block that it may follow, and passes are put together of such stages. Seconds are those of tasks that run at their
own speeds: what they lose to busy links and shared memories is left out, so that no prediction of a pass is shorter,
but for what prices depend on of the whole plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower_turns
from helmsman.lowering.placement import known
from helmsman.lowering.stages import first_ops
from helmsman.planner.strategies.optimal.configurations.block_ways import BlockWay, on_accelerator, on_host
from helmsman.planner.strategies.optimal.configurations.rules import BUFFERS, Assignment, Ends, Side, place, streaming
from helmsman.planner.strategies.optimal.order.pace import HOST
from helmsman.planner.strategies.optimal.pricing.all_blocks import AllBlocks
from helmsman.planner.strategies.optimal.pricing.task_kinds import MOVING, brought
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.model import Model
from helmsman.timing._clock import TurnStage, followed

if TYPE_CHECKING:
    from helmsman.timing._clock import TimedTask

_BEGINNING = -1
"""The number of the beginning of the model among stages; blocks are numbered from 0, the output follows the last."""

Left = tuple[object, ...]
"""On which device a stage leaves the hidden state, or on which accelerator, the host and in which parts."""


@dataclass(frozen=True, eq=False)
class TurnStages:
    """The stages of passes of one `phase` through `blocks`, each lowered when it is first needed. `lanes`: their
    numbers; `streams`: by rows of ways, whether anything comes in a plan of them; `times`: seconds of passes that were
    followed."""

    blocks: AllBlocks
    phase: Phase
    lanes: dict[str, int] = field(default_factory=dict, init=False)
    lowered: dict[tuple[object, ...], TurnStage] = field(default_factory=dict, init=False)
    streams: dict[frozenset[int], bool] = field(default_factory=dict, init=False)
    times: dict[tuple[Ends, tuple[int, ...], int], float] = field(default_factory=dict, init=False)

    def seconds(self, ends: Ends, rows: tuple[int, ...], buffers: int) -> float:
        """Seconds of a pass through blocks of the ways in such rows, with the ends of the model at `ends`, and without
        the time from the pass before. `buffers`: for how many blocks something may be on an accelerator."""
        key = ends, rows, buffers
        if key not in self.times:
            self.times[key] = self._followed(ends, rows, buffers)
        return self.times[key]

    def _followed(self, ends: Ends, rows: tuple[int, ...], buffers: int) -> float:
        used = frozenset(rows)
        if used not in self.streams:
            self.streams[used] = streaming(self.blocks.frame, [self.blocks.ways[row] for row in used])
        streams, left = self.streams[used], self._begun[ends[0]]
        stages = [self._beginning(ends[0], streams)]
        for row in rows:
            stages.append(self._block(row, left, streams))
            left = self._left[row]
        stages.append(self._output(ends, left, streams))
        return followed(stages, buffers, len(self.lanes))

    @cached_property
    def _left(self) -> tuple[Left, ...]:
        """By way, where a block leaves the hidden state."""
        return tuple(map(self._left_by, self.blocks.ways))

    def _left_by(self, way: BlockWay) -> Left:
        part = way.parts_in(self.phase)[-1]
        if part == "both":
            return way.on, way.division(len(way.parts) - 1, self.phase)
        return (HOST,) if part == "host" else (way.on,)

    @cached_property
    def _begun(self) -> Mapping[Side, Left]:
        """By where the embedding is, where the beginning leaves the hidden state: where its last operation is."""
        frame, result = self.blocks.frame, dict[Side, Left]()
        numbers = {device.name: on for on, device in enumerate(frame.roles.accelerators)}
        for side, _ in self.blocks.everywhere:
            tasks = chain.from_iterable(self._turns((on_host(frame.model),), (side, "host")))
            own = [task for task in tasks if _stage_of(task, frame.model, 1) == _BEGINNING]
            begun = [task for task in own if task.kind not in MOVING]
            result[side] = (numbers.get(begun[-1].resource, HOST),)
        return result

    def _beginning(self, side: Side, streams: bool) -> TurnStage:
        key = "beginning", side, streams
        if key not in self.lowered:
            blocks = on_host(self.blocks.frame.model), *self._filling(0, streams)
            self.lowered[key] = self._stage(blocks, (side, "host"), _BEGINNING)
        return self.lowered[key]

    def _block(self, row: int, left: Left, streams: bool) -> TurnStage:
        key = row, left, streams
        if key not in self.lowered:
            way = self.blocks.ways[row]
            blocks = *self._filling(way.on, streams), self._leaving(left), way
            self.lowered[key] = self._stage(blocks, ("host", "host"), len(blocks) - 1)
        return self.lowered[key]

    def _output(self, ends: Ends, left: Left, streams: bool) -> TurnStage:
        key = "output", ends, left, streams
        if key not in self.lowered:
            blocks = *self._filling(0, streams), self._leaving(left)
            self.lowered[key] = self._stage(blocks, ends, len(blocks))
        return self.lowered[key]

    def _filling(self, on: int, streams: bool) -> tuple[BlockWay, ...]:
        """Return as many blocks as fill the buffers of an accelerator, in passes in which anything comes."""
        return (replace(on_accelerator(self.blocks.frame.model, resident=False), on=on),) * (BUFFERS * streams)

    def _leaving(self, left: Left) -> BlockWay:
        """A way to run a block that leaves the hidden state so: wholly on a device, or as the first that shares it."""
        model, on = self.blocks.frame.model, left[0]
        if len(left) > 1:
            return self.blocks.ways[self._left.index(left)]
        assert isinstance(on, int)
        return on_host(model) if on == HOST else replace(on_accelerator(model), on=on)

    def _turns(self, blocks: tuple[BlockWay, ...], ends: Ends) -> list[tuple[Task, ...]]:
        """The tasks of a model of such blocks, turn after turn."""
        frame = self.blocks.frame
        few = replace(frame, model=frame.model.with_layers(len(blocks)))
        placed = known(place(few, Assignment(blocks, *ends, self.blocks.shares)))
        return list(lower_turns(placed, self.blocks.members[0].iteration(self.phase)))

    def _stage(self, blocks: tuple[BlockWay, ...], ends: Ends, number: int) -> TurnStage:
        """The stage of such a `number` of a model of such blocks."""
        turns = self._turns(blocks, ends)
        tasks, starts = tuple(chain.from_iterable(turns)), accumulate(map(len, turns), initial=0)
        stages = [_stage_of(task, self.blocks.frame.model, len(blocks)) for task in tasks]
        mine = [index for index, stage in enumerate(stages) if stage == number]
        earlier = [index for index, stage in enumerate(stages) if stage == number - 1]
        own, places = [tasks[index] for index in mine], {index: place for place, index in enumerate(mine)}
        made = {earlier[place]: output for output, place in enumerate(_outputs([tasks[index] for index in earlier]))}
        batches = self.blocks.members[0].iteration(self.phase).batches
        parts: dict[str, list[list[TimedTask]]] = {
            part: [[] for _ in range(batches)] for part in ("head", "tail", "last")
        }
        for start, turn in zip(starts, turns, strict=False):
            inside = range(start, start + len(turn))
            ends_before = number - 1 in stages[inside.start : inside.stop]
            opens = number == _BEGINNING and inside.stop <= mine[-1]
            part = "last" if turn is turns[-1] else "head" if ends_before or opens else "tail"
            for index in inside:
                if index in places:
                    parts[part][tasks[index].batch].append(self._timed(tasks, index, places, made))
        thread = self.blocks.costs.between().thread
        return TurnStage(
            head=parts["head"],
            tail=parts["tail"],
            last=list(chain.from_iterable(parts["last"])),
            outputs=_outputs(own),
            users=tuple(place for place, task in enumerate(own) if _uses(task, tasks)),
            to=blocks[number].on if 0 <= number < len(blocks) else 0,
            launching=sum(thread.seconds(task, self._price(task)) for task in own) if thread.known else 0.0,
        )

    def _timed(
        self, tasks: Sequence[Task], index: int, places: Mapping[int, int], made: Mapping[int, int]
    ) -> "TimedTask":
        """A task of a stage whose tasks have such `places`, and which may wait for what was `made` before. Lanes are
        queues: it waits for tasks before it on its own one anyway."""
        task, between = tasks[index], self.blocks.costs.between()
        deps = [dep for dep in task.deps if tasks[dep].resource != task.resource]
        after = {dep: between.after(tasks[dep].resource, task.resource) for dep in deps}
        lane = self.lanes.setdefault(task.resource, len(self.lanes))
        join = between.join(task.resource) if deps else 0.0
        own = tuple((places[dep], after[dep]) for dep in deps if dep in places)
        before = tuple((made[dep], after[dep]) for dep in deps if dep in made)
        buffered = any(dep not in places and dep not in made for dep in deps)
        return lane, self._price(task), join, own, before, buffered

    def _price(self, task: Task) -> float:
        return self.blocks.costs.price(task).mid


def _stage_of(task: Task, model: Model, blocks: int) -> int:
    """The number of the stage of a task in a model of so many blocks."""
    if task.layer is not None:
        return task.layer
    return _BEGINNING if task.operation in first_ops(model) else blocks


def _outputs(tasks: Sequence[Task]) -> tuple[int, ...]:
    """The places of the tasks that do the last operation of a stage, for every batch."""
    last = next((task.op for task in reversed(tasks) if task.kind not in MOVING), None)
    return tuple(place for place, task in enumerate(tasks) if task.op == last and task.kind not in MOVING)


def _uses(task: Task, tasks: Sequence[Task]) -> bool:
    """Whether an operation uses what was brought for it."""
    return task.kind not in MOVING and any(brought(tasks[dep]) for dep in task.deps)
