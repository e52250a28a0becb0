"""FlexGen's policies: shares of weights, caches and hidden states in each tier, their seconds and bytes as linear
functions (Sheng et al., FlexGen, ICML 2023, section 4.3, equations of its cost model in appendix A).

A block takes the longest of what overlaps: each link's transfers, and the work. So seconds are maxima of linear
functions, bytes are linear, and the best shares of given batches are the solution of a linear program."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from helmsman.planner.strategies.offload.allocation import LISTING_2, Tier
from helmsman.scheduler.iteration import PHASES, Phase

Kind = Literal["weights", "cache", "hidden"]

KINDS: tuple[Kind, ...] = ("weights", "cache", "hidden")

Share = tuple[Kind, Tier]

SHARES: tuple[Share, ...] = tuple(product(KINDS, LISTING_2))
"""The nine unknowns: w, c and h of storage, host and accelerator."""

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Form:
    """`constant` + the sum of `per` share x share."""

    constant: float
    per: Mapping[Share, float]

    def at(self, shares: Sequence[float]) -> float:
        """Its value for the nine `shares`."""
        return self.constant + sum(self.per.get(name, 0.0) * share for name, share in zip(SHARES, shares, strict=True))

    def row(self) -> list[float]:
        """The nine factors."""
        return [self.per.get(name, 0.0) for name in SHARES]


def form(constant: float = 0.0, *parts: tuple[Kind, Iterable[Tier], float]) -> Form:
    """`constant`, and so much for every share of a kind in some tiers."""
    per: dict[Share, float] = {}
    for kind, tiers, amount in parts:
        for tier in tiers:
            per[kind, tier] = per.get((kind, tier), 0.0) + amount
    return Form(constant, per)


@dataclass(frozen=True, slots=True)
class PolicyRoom:
    """Bytes that a memory has, and those a policy takes."""

    available: float
    used: Form


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies of one division into batches.

    `prefill`, `decode`: seconds per block of what overlaps; `blocks`, `steps`: how many blocks, and decode steps after
    the prompt; `rooms`: the memories, the accelerator's first; `allowed`: shares that need not be 0; `sequences` of all
    batches."""

    prefill: tuple[Form, ...]
    decode: tuple[Form, ...]
    blocks: int
    steps: int
    rooms: tuple[PolicyRoom, ...]
    allowed: frozenset[Share]
    sequences: int

    def seconds(self, shares: Sequence[float]) -> float:
        """Of all passes, per sequence: T = T_pre l + T_gen (n - 1) l over the block size."""
        first, step = (self.phase_seconds(shares, phase) for phase in PHASES)
        return (first + self.steps * step) / self.sequences

    def phase_seconds(self, shares: Sequence[float], phase: Phase) -> float:
        """Of one pass of all sequences: l times the longest of what overlaps."""
        forms = self.prefill if phase == "prefill" else self.decode
        return self.blocks * max(cost.at(shares) for cost in forms)

    def fits(self, shares: Sequence[float]) -> bool:
        """Whether every kind is somewhere it may be, and no memory overflows."""
        rows = [shares[start : start + len(LISTING_2)] for start in range(0, len(SHARES), len(LISTING_2))]
        whole = all(abs(sum(row) - 1) <= _ROUNDING and min(row) >= -_ROUNDING for row in rows)
        inside = all(share <= _ROUNDING or name in self.allowed for name, share in zip(SHARES, shares, strict=True))
        return whole and inside and all(room.used.at(shares) <= room.available * (1 + _ROUNDING) for room in self.rooms)

    def tightened(self, parts: Sequence[float]) -> "Policies":
        """With only so large a part, by room, of what a memory has beside what every policy takes."""
        rooms = [
            PolicyRoom(_between(room.used.constant, room.available, part), room.used)
            for room, part in zip(self.rooms, parts, strict=True)
        ]
        return Policies(self.prefill, self.decode, self.blocks, self.steps, tuple(rooms), self.allowed, self.sequences)

    def corners(self) -> list[tuple[float, ...]]:
        """The policies that keep each kind in one tier."""
        choices = [[tier for tier in LISTING_2 if (kind, tier) in self.allowed] for kind in KINDS]
        return [
            tuple(float(chosen[KINDS.index(kind)] == tier) for kind, tier in SHARES) for chosen in product(*choices)
        ]


def _between(low: float, high: float, part: float) -> float:
    return low + part * (high - low) if high > low else high
