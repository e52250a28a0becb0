"""How blocks of every way follow each other in one phase."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from helmsman.planner.strategies.optimal.order.pace import Pace, paced
from helmsman.planner.strategies.optimal.pricing.amounts import Basis
from helmsman.planner.strategies.optimal.pricing.chains import WorkShares, chained
from helmsman.planner.strategies.optimal.pricing.lowered_parts import CHAIN
from helmsman.planner.strategies.optimal.program.ways import Numbers

_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class BlockPaces:
    """Blocks that do their `shares`, and ask for so many seconds (ways, lanes). `accelerator`: its lane."""

    basis: Basis
    shares: WorkShares
    lanes: Numbers
    accelerator: str

    @cached_property
    def paces(self) -> tuple[Pace, ...]:
        """Of every way."""
        link = self.lanes[:, self.basis.carriers].max(axis=1, initial=0.0)
        rows = zip(*(seconds.tolist() for seconds in (self._chain, link, *self._through())), strict=True)
        losses = zip(self._loss.tolist(), self._drag.tolist(), strict=True)
        return tuple(paced(*row)._replace(loss=loss, drag=drag) for row, (loss, drag) in zip(rows, losses, strict=True))

    @property
    def _chain(self) -> Numbers:
        return np.asarray(self.lanes[:, self.basis.places[CHAIN]])

    def _through(self) -> tuple[Numbers, Numbers]:
        """Seconds (ways) from when something begins to come until the end of a block that waits for nothing else: what
        comes for an operation follows what comes for those before it. And seconds of what follows the last of these."""
        if self.basis.link is None:
            return np.zeros(len(self.lanes)), np.zeros(len(self.lanes))
        coming = self.basis.comes(self.shares)
        work = np.maximum(self._host, self._accelerator)
        left = np.cumsum(work[:, ::-1], axis=1)[:, ::-1]
        through = np.cumsum(coming, axis=1) + self._accelerator + left - work
        through = np.where(coming > 0, through, 0.0).max(axis=1)
        after = np.where(coming > 0, left - work, np.inf).min(axis=1)
        return np.asarray(through), np.where(np.isfinite(after), after, 0.0)

    @property
    def _loss(self) -> Numbers:
        """The share of their speed (ways) that operations lose while the link works."""
        return np.asarray(1 - np.minimum(1.0, self._chain / np.maximum(self._slowed, _TINY)))

    @property
    def _slowed(self) -> Numbers:
        """Seconds (ways) of the chain while the link never rests, and 4-bit groups are expanded as they come."""
        basis = self.basis
        slower = {key: 1 / np.array([work for work, _ in of]) for key, of in self._speeds.items()}
        if basis.expanders:
            moved = basis.moved(self.shares)
            expanders = [basis.places[name] for name in basis.expanders]
            busy = moved[:, expanders].max(axis=1) / np.maximum(moved[:, basis.carriers].max(axis=1), _TINY)
            for key, of in basis.by_side(basis.interplays[basis.expanders[0]].speeds, (1.0, 1.0)).items():
                lost = busy[:, None] * (1 - np.array([work for work, _ in of]))
                slower[key] = np.maximum(slower[key], 1 / (1 - lost))
        work = self._work("host", slower), self._work("accelerator", slower)
        return np.minimum(*chained(basis.groups, self.shares, work, basis.latencies))

    @property
    def _drag(self) -> Numbers:
        """The share of its speed (ways) that the link keeps beside the operations of the host, most of the time."""
        here = self._host
        dragged = {key: np.array([kept for _, kept in of]) for key, of in self._speeds.items()}
        longest = np.maximum(here, self._accelerator)
        lost = longest * (1 - self._work("host", dragged) / np.maximum(here, _TINY)) * (here > 0)
        return np.asarray(1 - lost.sum(axis=1) / np.maximum(longest.sum(axis=1), _TINY))

    def _work(self, side: str, factors: Mapping[tuple[str, str], Numbers] | None = None) -> Numbers:
        return self.basis.work(self.shares, side, factors)

    @cached_property
    def _host(self) -> Numbers:
        """Seconds (ways, operations) of what the host does."""
        return self._work("host")

    @cached_property
    def _accelerator(self) -> Numbers:
        """Return the seconds of operations on the accelerator."""
        return self._work("accelerator")

    @cached_property
    def _speeds(self) -> Mapping[tuple[str, str], list[tuple[float, float]]]:
        """By side and graph, the shares of their speeds that every operation and the fastest transfer keep beside each
        other."""
        basis, still = self.basis, (1.0, 1.0)
        return basis.by_side(basis.interplays[basis.link].speeds if basis.link else lambda task: still, still)
