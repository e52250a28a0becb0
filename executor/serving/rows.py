"""Rows of a pass: tokens of several requests one after the other, and where their keys and values are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from helmsman.executor._kernels import Ragged
from helmsman.executor.serving.blocks import Run


@dataclass(slots=True)
class Rows:
    """Rows so far; `yields`: of requests whose next token the pass makes, in the order of its outputs."""

    ids: list[int] = field(default_factory=list)
    yields: list[int] = field(default_factory=list)
    _positions: list[int] = field(default_factory=list)
    _sequences: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    _runs: list[Run] = field(default_factory=list)
    _slots: list[int] = field(default_factory=list)
    _outputs: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    def add(
        self, tokens: Sequence[int], past: int, runs: Sequence[Run] | None, request: int | None, slot: int = 0
    ) -> None:
        """`tokens` at positions past, past + 1, ...; `runs`: where positions up to the last of them are, None where
        another device has them; `request`: whose next token follows from the last one, if it is wanted; `slot`: which
        of the states that mixers keep is its own."""
        if runs is not None:
            self._sequences.append((len(self.ids), len(tokens), past, len(self._runs), len(runs)))
            self._runs += runs
            self._slots.append(slot)
        self.ids += tokens
        self._positions += range(past, past + len(tokens))
        if request is not None:
            self.yields.append(request)
            self._outputs.append(len(self.ids) - 1)

    def and_then(self, others: "Rows") -> "Rows":
        """These, and behind them `others`, whose keys and values another device has."""
        first = len(self.ids)
        return Rows(
            [*self.ids, *others.ids],
            [*self.yields, *others.yields],
            [*self._positions, *others._positions],
            list(self._sequences),
            list(self._runs),
            list(self._slots),
            [*self._outputs, *(first + row for row in others._outputs)],
        )

    def followed(self, others: "Rows") -> "Rows":
        """These, and behind them `others`, all of the same caches."""
        both, first, run = self.and_then(others), len(self.ids), len(self._runs)
        both._runs += others._runs
        both._slots += others._slots
        both._sequences += [(row + first, tokens, past, at + run, n) for row, tokens, past, at, n in others._sequences]
        return both

    def ragged(self) -> Ragged:
        """As native stages take them."""
        return Ragged(
            _array(self._positions),
            _array(self._sequences, 5),
            _array(self._runs, 3),
            _array(self._outputs),
            _array(self._slots),
        )

    def tokens(self) -> memoryview:
        """int32: the token of every row."""
        return np.array(self.ids, np.int32).data


def _array(values: Iterable[object], columns: int = 1) -> memoryview:
    return np.array(list(values), np.int64).reshape(-1, columns).data
