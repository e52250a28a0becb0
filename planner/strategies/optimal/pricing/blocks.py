"""The ways to run a block of one question in numbers: seconds by lane of both phases, bytes kept and on their way."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.lowering.ops import op_extent
from helmsman.lowering.placement import KnownPlan, known
from helmsman.planner.cost.model import CostModel
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.optimal.configurations.block_ways import (
    BlockWay,
    Division,
    Paced,
    Part,
    Prompt,
    Source,
    decided,
    divisible,
    on_accelerator,
    on_host,
)
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, Shares, place, rows
from helmsman.planner.strategies.optimal.pricing.amounts import Basis
from helmsman.planner.strategies.optimal.pricing.block_bytes import BlockBytes
from helmsman.planner.strategies.optimal.pricing.block_paces import BlockPaces
from helmsman.planner.strategies.optimal.pricing.busy_lanes import BusyLane
from helmsman.planner.strategies.optimal.pricing.chains import WorkShares
from helmsman.planner.strategies.optimal.pricing.exact_seconds import exact
from helmsman.planner.strategies.optimal.pricing.fractional import Border, divided
from helmsman.planner.strategies.optimal.pricing.prompt_shares import PromptShares
from helmsman.planner.strategies.optimal.pricing.who_does import WhoDoes
from helmsman.planner.strategies.optimal.program.ways import Numbers, Ways
from helmsman.planner.strategies.streaming.ends import End
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.scheduler.iteration import PHASES, Iteration, Phase, prefill
from helmsman.schemas.hardware import Device


@dataclass(frozen=True)
class Blocks:
    """The demands of blocks in some `phases`. `ways`: in the order of rows; `costs`: prices; `fractional`: whether rows
    that both sides share are divided anywhere, not between panels alone, so that seconds have slopes; `lowered`: what
    is known of this question on machines that differ in their figures alone, `panels`: with which shares. `away`: all
    accelerators of the machine."""

    frame: Frame
    ways: tuple[BlockWay, ...]
    costs: CostModel
    phases: tuple[Phase, ...] = PHASES
    fractional: bool = False
    lowered: dict[object, tuple[Task, ...]] = field(default_factory=dict, compare=False, repr=False)
    panels: Shares | None = None
    away: tuple[Device, ...] = ()

    @cached_property
    def summed(self) -> Ways:
        """Every way as a sum of parts: at most what it really asks for."""
        return Ways(np.hstack([self._lanes(phase) for phase in self.phases]), self.kept, self.coming)

    def exact(self, row: int) -> Numbers:
        """Seconds by lane of one way, lowered itself."""
        parts = self._columns.items()
        return np.concatenate([self._exact_in(phase, row, self.summed.lanes[row, part]) for phase, part in parts])

    @cached_property
    def _columns(self) -> Mapping[Phase, slice]:
        """The lanes of each phase."""
        ends = np.cumsum([0, *(len(self.bases[phase].lanes) for phase in self.phases)]).tolist()
        return {phase: slice(*part) for phase, part in zip(self.phases, pairwise(ends), strict=True)}

    def _exact_in(self, phase: Phase, row: int, summed: Numbers) -> Numbers:
        way = self.ways[row]
        key = way.in_prompts if phase == "prefill" else way
        if (phase, key) not in self._settled:
            self._settled[phase, key] = exact(self.bases[phase], self._tasks(way, phase), summed)
        return self._settled[phase, key]

    @cached_property
    def _settled(self) -> dict[tuple[Phase, object], Numbers]:
        """Seconds by lane of what was lowered itself."""
        return {}

    def beside(self, phase: Phase, link: BusyLane) -> Numbers:
        """Seconds (ways) of the chain beside a busy lane of another accelerator."""
        return self.bases[phase].chains(self._shares(phase), link, far=True)[2]

    @property
    def lanes(self) -> tuple[tuple[Phase, str], ...]:
        """The lanes in order of columns."""
        return tuple((phase, name) for phase in self.phases for name in self.bases[phase].lanes)

    @property
    def carriers(self) -> tuple[tuple[Phase, str], ...]:
        """The lanes on which something comes."""
        return tuple((phase, basis.lanes[place]) for phase, basis in self.bases.items() for place in basis.carriers)

    @cached_property
    def bases(self) -> Mapping[Phase, Basis]:
        """By phase."""
        whole = {phase: self._whole(phase) for phase in PHASES}
        return {phase: replace(basis, split=self._splits(phase)) for phase, basis in whole.items()}

    def _whole(self, phase: Phase) -> Basis:
        """All on the host, and all on the accelerator, to which everything comes, wherever from and however any way has
        it."""
        there, packed = self._there, {quarter for way in self.ways for quarter in way.q4}
        others: dict[Source, BlockWay] = {}
        if self._does.stored.any():
            others["storage"] = replace(there, stored=there.arriving)
        if "coming" in packed:
            others["host q4"] = replace(there, q4=("coming",))
        if "coming" in packed and self._does.stored.any():
            others["storage q4"] = replace(there, stored=there.arriving, q4=("coming",))
        if "resident" in packed:
            others["resident q4"] = replace(on_accelerator(self.frame.model, cache="host"), q4=("resident",))
        return Basis(
            costs=self.costs,
            iteration=self.iteration(phase),
            host=self.frame.roles.host,
            here=self._tasks(on_host(self.frame.model), phase),
            there=self._tasks(there, phase),
            split={},
            others={source: self._tasks(way, phase) for source, way in others.items()},
            packed=self._tasks(replace(there, q4=("cache",)), phase) if "cache" in packed else (),
            away=self.away,
        )

    @property
    def _there(self) -> BlockWay:
        """All on the accelerator, to which everything comes."""
        separate = self.frame.roles.separate
        return on_accelerator(self.frame.model, not separate, "host" if separate else "accelerator")

    @cached_property
    def _divisions(self) -> tuple[Division, ...]:
        """How both may share rows."""
        if not divisible(self.frame.model) or all("both" not in way.parts for way in self.ways):
            return ()
        packed = any("coming" in way.q4 for way in self.ways)
        prompts: tuple[Division, ...] = ("prompt",) if any(way.prompt == "divided" for way in self.ways) else ()
        return ("resident", "link", "accelerator", *(("link q4", "accelerator q4") if packed else ()), *prompts)

    def _splits(self, phase: Phase) -> dict[Division, tuple[Task, ...]]:
        divisions = (division for division in self._divisions if phase == "prefill" or division != "prompt")
        return {division: self._tasks(self._split(division), phase) for division in divisions}

    def _split(self, division: Division) -> BlockWay:
        """Every matrix shared by both sides, with the accelerator's rows coming where they do and can."""
        model, separate = self.frame.model, self.frame.roles.separate
        parts: list[Part] = ["accelerator" if op == "attention" else "both" for op in decided(model)]
        away = tuple((division == "resident" or not separate) and part == "both" for part in parts)
        paced: Paced = "accelerator" if division.startswith("accelerator") else "link"
        prompt: Prompt = "divided" if division == "prompt" else "alike"
        way = BlockWay(tuple(parts), away, "accelerator", prompt, paced)
        return replace(way, q4=("coming",)) if division.endswith("q4") else way

    @cached_property
    def shares(self) -> Shares:
        """Which rows the accelerator has where both sides have some: so many that both take equally long, or coming
        does."""
        if not self._divisions:
            return {}
        basis, ops = self._whole("decode"), decided(self.frame.model)
        evenly = {op: basis.balanced(op) for op in ops}
        result: dict[Division, dict[str, float]] = dict.fromkeys(("resident", "accelerator", "accelerator q4"), evenly)
        sources: dict[Division, Source] = {"link": "host", "link q4": "host q4"}
        for division in sources.keys() & self._divisions:
            result[division] = {op: basis.balanced_link(op, sources[division]) for op in ops}
        if "prompt" in self._divisions:
            prompts, split = self._whole("prefill"), self._split("accelerator")
            tasks = replace(self, ways=(split,))._tasks(split, "prefill")
            shares = PromptShares(self.costs, prompts.here, prompts.there, tasks)
            result["prompt"] = shares.shares if self.fractional else shares.in_panels(self.frame.model)
        return result

    @cached_property
    def following(self) -> Mapping[Phase, BlockPaces]:
        """By phase, how blocks of every way follow each other."""
        return {phase: self._following(phase) for phase in self.phases}

    def _following(self, phase: Phase) -> BlockPaces:
        lanes = self.summed.lanes[:, self._columns[phase]]
        return BlockPaces(self.bases[phase], self._shares(phase), lanes, self.frame.accelerator.name)

    @property
    def _one(self) -> Frame:
        return replace(self.frame, model=self.frame.model.with_layers(1))

    def _tasks(self, way: BlockWay, phase: Phase) -> tuple[Task, ...]:
        """The tasks of a block, the ends of whose model are where it begins and ends."""
        decisions = enumerate(zip(decided(self.frame.model), way.parts_in(phase), strict=True))
        borders = {op: self._borders[way.division(k, phase)][op] for k, (op, part) in decisions if part == "both"}
        key = way, phase, *(border.rows for border in borders.values())
        if key not in self.lowered:
            self.lowered[key] = lower(self._placed(way), self.iteration(phase)).tasks
        return divided(self.lowered[key], borders) if self.fractional else self.lowered[key]

    def _placed(self, way: BlockWay) -> KnownPlan:
        """A model of one block of a way, the same in all phases."""
        if way not in self._plans:
            shares = {0: self.lowered_shares} if "both" in (*way.parts, *way.parts_in("prefill")) else {}
            self._plans[way] = known(place(self._one, Assignment((way,), _side(way, 0), _side(way, -1), shares)))
        return self._plans[way]

    @cached_property
    def _plans(self) -> dict[BlockWay, KnownPlan]:
        return {}

    @cached_property
    def _borders(self) -> Mapping[Division, Mapping[str, Border]]:
        """Between the accelerator's rows and the host's."""
        ops = [op for op in decided(self.frame.model) if op != "attention"]
        return {division: {op: self._border(op, division) for op in ops} for division in self._divisions}

    def _border(self, op: str, division: Division) -> Border:
        count = rows(self.frame, op, self.lowered_shares[division][op])
        return Border(count, self.shares[division][op], op_extent(self.frame.model, op)[1])

    @property
    def lowered_shares(self) -> Shares:
        """Return the shares of rows with which blocks are lowered."""
        return self.shares if self.panels is None else self.panels

    def iteration(self, phase: Phase) -> Iteration:
        """The pass of a phase."""
        work = self.frame.workload
        batches = work.batches if work.batches > 1 else 1
        return prefill(work, batches) if phase == "prefill" else mean_step(work, batches)

    def _lanes(self, phase: Phase) -> Numbers:
        return self.bases[phase].of(self._shares(phase))

    def _shares(self, phase: Phase) -> WorkShares:
        """Who does what in a phase."""
        return self._does.doing(phase)

    @cached_property
    def _does(self) -> WhoDoes:
        return WhoDoes(self.frame.model, self.frame.roles.separate, self.ways, self._divisions)

    @cached_property
    def _divided_at(self) -> Mapping[Division, Mapping[str, float]]:
        """Which share of an operation's rows the accelerator has where both do it."""
        return {
            division: {
                op: border.share if self.fractional else border.rows / border.extent for op, border in borders.items()
            }
            for division, borders in self._borders.items()
        }

    @property
    def kept(self) -> Numbers:
        """Bytes (ways, memories): of the host, then of the accelerator and of storage; of both together where they
        share one."""
        return self._bytes.kept

    @property
    def coming(self) -> Numbers:
        """Bytes on their way for a block (ways, flows)."""
        return self._bytes.coming

    @cached_property
    def _bytes(self) -> BlockBytes:
        does = self._does
        return BlockBytes(
            frame=self.frame,
            ways=self.ways,
            used=does.used(self._divided_at),
            resident=does.resident(self._divided_at),
            stored=does.stored,
            packed=does.packed,
            brought={phase: does.brought(phase, self._divided_at) for phase in PHASES},
        )


def _side(way: BlockWay, place: int) -> End:
    """Where a block begins (0) or ends (-1)."""
    return "host" if way.parts[place] == "host" else "accelerator"
