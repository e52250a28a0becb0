"""Who does what in every way to run a block, in numbers: operations, their weights, and what comes for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from helmsman.planner.strategies.optimal.configurations.block_ways import (
    BlockWay,
    Division,
    Part,
    Prompt,
    Source,
    decided,
)
from helmsman.planner.strategies.optimal.configurations.rules import companions
from helmsman.planner.strategies.optimal.pricing.chains import OPS, WorkShares
from helmsman.planner.strategies.optimal.program.ways import Numbers
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.model import Model

_PARTS: tuple[Part, ...] = ("host", "both", "accelerator")

DividedAt = Mapping[Division, Mapping[str, float]]
"""By division and operation, which share of its rows the accelerator has where both do it."""


@dataclass(frozen=True)
class WhoDoes:
    """Of `ways` to run a block of a model whose sides have `separate` memories, or share one; `divisions`: how both
    sides share rows in any of them."""

    model: Model
    separate: bool
    ways: tuple[BlockWay, ...]
    divisions: tuple[Division, ...]

    def doing(self, phase: Phase) -> WorkShares:
        """Who does what in a phase."""
        if phase not in self._by_phase:
            self._by_phase[phase] = self._doing(phase)
        return self._by_phase[phase]

    @cached_property
    def _by_phase(self) -> dict[Phase, WorkShares]:
        return {}

    def _doing(self, phase: Phase) -> WorkShares:
        host, both, away = (self._part(part, phase) for part in _PARTS)
        attends = away[:, OPS.index("attention")] > 0
        home = np.array([way.cache == "host" for way in self.ways])
        return WorkShares(
            host=host,
            both={division: np.asarray(both * self._is(division, phase)) for division in self.divisions},
            accelerator=away,
            come=self._sources,
            cached=np.asarray(attends & home & (phase == "decode"), dtype=np.float64),
            sent=np.asarray(attends & home, dtype=np.float64),
            packed=np.array([float("cache" in way.q4) for way in self.ways]),
        )

    def _part(self, part: Part, phase: Phase) -> Numbers:
        """Which operations `part` does in a phase (ways, operations); those that are not decided about go with one that
        is. What prompts do not share with decode steps is the accelerator's, or shared."""
        does = self._decided
        if phase == "prefill":
            rows = np.where(self._divided_prompts > 0, _PARTS.index("both"), _PARTS.index("accelerator"))
            kept = self._is_prompt("alike") + self._is_prompt("divided") * self._here
            does = np.where(kept > 0, does, rows)
        return np.asarray(does == _PARTS.index(part), dtype=np.float64)

    def _is_prompt(self, prompt: Prompt) -> Numbers:
        """Which ways have such prompts (ways, 1)."""
        return np.asarray(self._prompts == prompt, dtype=np.float64)[:, None]

    @cached_property
    def _prompts(self) -> NDArray[np.str_]:
        return np.array([way.prompt for way in self.ways])

    @cached_property
    def _paces(self) -> NDArray[np.str_]:
        """How rows are divided that both sides share and that come."""
        return np.array([way.rows_paced for way in self.ways])

    @cached_property
    def _divided_prompts(self) -> Numbers:
        """Whether prompts share the rows of an operation by shares of their own (ways, operations)."""
        matrices = np.isin(OPS, [op for op in decided(self.model) if op != "attention"])
        return np.asarray(self._is_prompt("divided") * matrices * (1 - self._here))

    @cached_property
    def _decided(self) -> NDArray[np.intp]:
        ops, parts = decided(self.model), np.array([[_PARTS.index(p) for p in way.parts] for way in self.ways])
        result = np.zeros((len(self.ways), len(OPS)), dtype=np.intp)
        for column, op in enumerate(ops):
            result[:, OPS.index(op)] = parts[:, column]
        for op, leader in companions(self.model).items():
            host = parts[:, ops.index(leader)] == _PARTS.index("host")
            result[:, OPS.index(op)] = np.where(host, _PARTS.index("host"), _PARTS.index("accelerator"))
        return result

    @cached_property
    def _here(self) -> Numbers:
        """Whether the accelerator's rows of an operation live there (ways, operations)."""
        columns = [OPS.index(op) for op in decided(self.model)]
        here = np.zeros((len(self.ways), len(OPS)))
        here[:, columns] = np.array([way.resident for way in self.ways])
        return here

    def _is(self, division: Division, phase: Phase) -> Numbers:
        """Whether the rows of an operation that both do in a phase are divided so (ways, operations)."""
        if division == "resident":
            return self._here
        prompts = self._divided_prompts * (phase == "prefill")
        if division == "prompt":
            return prompts
        paced = (self._paces == division)[:, None]
        return np.asarray((1 - self._here) * paced * (1 - prompts))

    @cached_property
    def stored(self) -> Numbers:
        """Whether an operation's weights come from storage (ways, operations)."""
        columns = [OPS.index(op) for op in decided(self.model)]
        result = np.zeros((len(self.ways), len(OPS)))
        for row, way in enumerate(self.ways):
            if way.stored:
                result[row, [columns[k] for k in way.stored]] = 1.0
        return result

    @cached_property
    def _sources(self) -> Mapping[Source, Numbers]:
        """Whether the accelerator's rows of an operation's weights come (ways, operations), by where from."""
        if not self.separate:
            return {}
        coming, stored, packed = (1.0 - self._here) * (1.0 - self.stored), self.stored, self.packed
        sources: dict[Source, Numbers] = {
            "host": coming * (1.0 - packed),
            "storage": stored * (1.0 - packed),
            "host q4": coming * packed,
            "storage q4": stored * packed,
            "resident q4": self._here * packed,
        }
        return {source: comes for source, comes in sources.items() if source == "host" or comes.any()}

    @cached_property
    def packed(self) -> Numbers:
        """Whether the accelerator's rows of an operation's weights are in 4-bit groups (ways, operations)."""
        result = np.zeros((len(self.ways), len(OPS)))
        some = [row for row, way in enumerate(self.ways) if way.q4]
        for column, op in enumerate(decided(self.model)):
            result[some, OPS.index(op)] = [self.ways[row].packed(column) for row in some]
        return result

    def _divided(self, phase: Phase, shares: DividedAt) -> Numbers:
        """Which share of an operation's rows the accelerator has where both do it in a phase (ways, operations)."""
        result = np.ones((len(self.ways), len(OPS)))
        for division, by_op in shares.items():
            divided = self._is(division, phase)
            for op, share in by_op.items():
                column = OPS.index(op)
                result[:, column] = np.where(divided[:, column] > 0, share, result[:, column])
        return result

    def used(self, shares: DividedAt) -> Numbers:
        """Of the weights of every operation, which share the accelerator uses in decode steps (ways, operations)."""
        return self._part("accelerator", "decode") + self._part("both", "decode") * self._divided("decode", shares)

    def resident(self, shares: DividedAt) -> Numbers:
        """Of the weights of every operation, which share lives on the accelerator (ways, operations)."""
        return self._here * self.used(shares)

    def brought(self, phase: Phase, shares: DividedAt) -> Numbers:
        """Of the weights of every operation, which share comes (ways, operations)."""
        doing = self.doing(phase)
        used = doing.accelerator + doing.shared * self._divided(phase, shares)
        return np.maximum(0.0, used - self.resident(shares)) if self.separate else 0.0 * used
