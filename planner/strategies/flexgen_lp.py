"""`flexgen-lp`: FlexGen's policy search (HELM-73; Sheng et al., FlexGen, ICML 2023, section 4.3): for every division
into batches a linear program over the shares of weights and caches in each tier, then the division with the most tokens
per second.

Shares are rounded to tensors by FlexGen's own allocator (Listing 2 of Gupta & Dwarkadas), caches to whole blocks. What
counts is what rounding leaves: policies are ranked by the same cost model at the shares they achieve, together with
those of smaller memories, those that keep each kind in one tier, and all that weights of two tiers can be rounded to.
The first that fits, and the best of its division by either phase, are predicted, and the objective decides."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from math import ceil, inf
from pathlib import Path

from helmsman.planner.cost.model import CostOptions
from helmsman.planner.decision import Decision
from helmsman.planner.options import option
from helmsman.planner.registry import Method
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.common_options import compress_option, home_option, table_option
from helmsman.planner.strategies.offload.allocation import Percentages, by_position, middles
from helmsman.planner.strategies.offload.keeping import keeping_of
from helmsman.planner.strategies.offload.linear_program import best_shares
from helmsman.planner.strategies.offload.place import Keeping, Tiers
from helmsman.planner.strategies.offload.policy import SHARES, Policies, Share
from helmsman.planner.strategies.offload.policy_prices import Prices
from helmsman.planner.strategies.offload.strategy import Offloading
from helmsman.planner.strategies.offload.sublayers import achieved, sublayers
from helmsman.planner.strategies.streaming.framing import frame_of, with_doubts
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.question import Question
from helmsman.scheduler.iteration import PHASES, Phase
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.objective import DEFAULT_OBJECTIVE, Objective
from helmsman.schemas.workload import Workload

_PARTS = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)
"""Parts of the memories for which programs are solved where the whole is rounded to more than there is."""

_FINALISTS = 3
"""Divisions into batches whose policies are rounded, the best by their linear program."""

_PROPOSED = 3
"""Policies that are predicted, the best by the cost model of prompts, of decode steps and of both."""

_DIGITS = 6
"""Of shares: what a solver leaves beside a bound is not a share."""

_MOST_BATCHES = 20
"""Of one pass, as in FlexGen's own search."""


@dataclass(frozen=True, slots=True)
class RoundedPercentages:
    """Listing 2 with the percentages that a program found."""

    percentages: Percentages

    @property
    def name(self) -> str:
        """Return its name on the command line."""
        return "flexgen-lp"

    def tiers(self, model: Model) -> Tiers:
        """The tier of every tensor."""
        return {layer.kind: by_position(layer.tensors, self.percentages) for layer in sublayers(model)}

    def title(self, model: Model) -> str:
        """`flexgen-lp (0, 91.7, 8.3)`: storage, host, accelerator, as achieved."""
        percentages = achieved(model, self.tiers(model))
        return f"flexgen-lp ({percentages['storage']:.3g}, {percentages['host']:.3g}, {percentages['accelerator']:.3g})"


@dataclass(frozen=True)
class Policy:
    """A rounded policy, its seconds per sequence by the cost model, the shares it achieves, seconds of each phase."""

    offloading: Offloading
    seconds: float
    shares: tuple[float, ...]
    phases: Mapping[Phase, float]


@dataclass(frozen=True)
class FlexGenLp:
    """FlexGen's search for one question. `keeping`: what the tiers are; `block`: choose the batches, of at most so many
    sequences together, instead of those of the question."""

    frame: Frame
    keeping: Keeping
    cost_options: CostOptions
    block: int | None = None
    objective: Objective = DEFAULT_OBJECTIVE

    def decide(self, recorded: dict[str, str | int | float | bool]) -> Decision:
        """The plan. Raises InfeasibleError when no policy fits, UsageError without a separate accelerator."""
        Question(self.frame, self.cost_options).check("flexgen-lp")
        host = Offloading(
            self.frame,
            RoundedPercentages(Percentages(0, 100, 0)),
            replace(self.keeping, cache="host"),
            self.cost_options,
            self.objective,
        )
        return min(self._finalists(), key=lambda finalist: finalist[1], default=(host, inf))[0].decide(recorded)

    def _finalists(self) -> Iterator[tuple[Offloading, float]]:
        """The best policies that fit by the cost model of whole requests and by those of either phase, for the division
        into batches of the first, with their predicted seconds of the objective."""
        first = next((policy for policy in self.ranked() if _fits(policy)), None)
        if first is None:
            return
        frame = first.offloading.frame
        prices = (Prices(frame, keeping, self.cost_options) for keeping in self._modes())
        policies = [policy for price in prices for policy in self._policies(price)]
        proposed = [first]
        for phase in PHASES:
            ranked = sorted(policies, key=lambda policy: policy.phases[phase])
            proposed += islice((policy for policy in ranked if _fits(policy)), _PROPOSED)
        ranked = sorted(policies, key=lambda policy: policy.seconds)
        proposed += islice((policy for policy in ranked if _fits(policy)), _PROPOSED)
        for policy in {(policy.shares, policy.offloading.keeping): policy for policy in proposed}.values():
            yield policy.offloading, policy.offloading.seconds()

    def ranked(self) -> Iterator[Policy]:
        """Rounded policies, the best first: of the best divisions, then of one division after the other. Pricing many
        batches takes long, so what cannot fit is left out before."""
        prices = (Prices(frame, keeping, self.cost_options) for frame in self._frames() for keeping in self._modes())
        rest = iter(sorted((price for price in prices if price.may_fit), key=_bound))
        while group := list(islice(rest, _FINALISTS)):
            yield from sorted(
                (p for prices in group for p in self._policies(prices)), key=lambda policy: policy.seconds
            )

    def _frames(self) -> Iterator[Frame]:
        """The question for every division into batches."""
        works = [self.frame.workload] if self.block is None else divisions(self.frame.workload, self.block)
        return (replace(self.frame, workload=work) for work in works)

    def _modes(self) -> tuple[Keeping, ...]:
        """Attention on the accelerator, or on the host where the caches are."""
        plain = replace(self.keeping, delegate=False)
        host = self.keeping.host == self.frame.roles.host.memory
        return (plain, replace(plain, delegate=True)) if host else (plain,)

    def _policies(self, prices: Prices) -> Iterator[Policy]:
        """Of one program, of those for smaller memories, the corners and the cuts; each rounding once, with as many
        caches in host memory as the program has there, and with as few as the rounded weights leave room for."""
        policies, seen = prices.policies(), set[tuple[float, ...]]()
        solved = (best_shares(program) for program in (_tighter(policies) if best_shares(policies) else ()))
        found_by_program = (solution for solution in solved if solution is not None)
        for shares in (*found_by_program, *policies.corners(), *_cuts(prices.frame.model)):
            rounded, away = _rounded(shares, prices.frame.model)
            for many in (away, _fewest(policies, rounded, prices.frame.model)):
                achieved_shares = _achieved(rounded, many, prices.frame.model)
                if achieved_shares not in seen:
                    seen.add(achieved_shares)
                    offloading = self._offloading(prices, rounded, many)
                    phases = {phase: policies.phase_seconds(achieved_shares, phase) for phase in PHASES}
                    yield Policy(offloading, policies.seconds(achieved_shares), achieved_shares, phases)

    def _offloading(self, prices: Prices, rounded: RoundedPercentages, away: int) -> Offloading:
        keeping = replace(prices.keeping, cache="layerkv" if away else "accelerator", away=away)
        keeping = replace(keeping, delegate=keeping.delegate and away > 0)
        return Offloading(prices.frame, rounded, keeping, self.cost_options, self.objective)


def _fits(policy: Policy) -> bool:
    return policy.offloading.fits(policy.offloading.frame.workload)


def _tighter(policies: Policies) -> Iterator[Policies]:
    """With smaller memories: all of them, or the accelerator's alone, where the others have no room to spare."""
    others = len(policies.rooms) - 1
    for part in _PARTS:
        yield policies.tightened([part] * (others + 1))
        yield policies.tightened([part, *[1.0] * others])


def _cuts(model: Model) -> Iterator[tuple[float, ...]]:
    """Every rounding of weights divided between host and accelerator: shares between the middles of tensors."""
    known = sorted({middle / 100 for layer in sublayers(model) for middle in middles(layer.tensors)})
    for host in (low + (high - low) / 2 for low, high in pairwise(known)):
        of: dict[Share, float] = {("weights", "host"): host, ("weights", "accelerator"): 1 - host}
        of["cache", "accelerator"] = of["hidden", "accelerator"] = 1.0
        yield tuple(of.get(name, 0.0) for name in SHARES)


def _bound(prices: Prices) -> float:
    """Seconds per sequence of the best shares, before they are rounded."""
    policies = prices.policies()
    shares = best_shares(policies)
    return inf if shares is None else policies.seconds(shares)


def divisions(workload: Workload, block: int) -> Iterator[Workload]:
    """Batches of powers of two of sequences, powers of two of them together, at most `block` sequences in all."""
    for batch in (1 << power for power in range(block.bit_length())):
        for batches in (1 << power for power in range(_MOST_BATCHES.bit_length())):
            if batch * batches <= block and batches <= _MOST_BATCHES:
                yield workload.model_copy(update={"batch": batch, "batches": batches})


def _rounded(shares: Sequence[float], model: Model) -> tuple[RoundedPercentages, int]:
    """Percentages of weights, and how many blocks' caches are not on the accelerator."""
    of = dict(zip(SHARES, shares, strict=True))
    storage, accelerator = (round(100 * of["weights", tier], _DIGITS) for tier in ("storage", "accelerator"))
    away = model.layers * round(1 - of["cache", "accelerator"], _DIGITS)
    return RoundedPercentages(Percentages(storage, max(0.0, 100 - storage - accelerator), accelerator)), ceil(away)


def _achieved(rounded: RoundedPercentages, away: int, model: Model) -> tuple[float, ...]:
    """The nine shares that rounding leaves."""
    percentages = achieved(model, rounded.tiers(model))
    of: dict[Share, float] = {("weights", tier): percent / 100 for tier, percent in percentages.items()}
    of["cache", "host"], of["hidden", "accelerator"] = away / model.layers, 1.0
    of["cache", "accelerator"] = 1 - away / model.layers
    return tuple(of.get(name, 0.0) for name in SHARES)


def _fewest(policies: Policies, rounded: RoundedPercentages, model: Model) -> int:
    """The fewest blocks' caches in host memory with which a rounding fits; all if it does not."""
    counts = range(model.layers + 1)
    return next((away for away in counts if policies.fits(_achieved(rounded, away, model))), model.layers)


MOST_SEQUENCES = 2**20
"""Sequences of all batches together, at most."""


@dataclass(frozen=True, slots=True)
class FlexGenLpOptions:
    """Options of `flexgen-lp`."""

    compress: str = compress_option()
    table: Path | None = table_option()
    home: str | None = home_option()
    block: int | None = option(
        None,
        "flexgen-lp: choose the batches, at most N sequences together, for the most tokens per second",
        metavar="N",
        parse=int,
    )


def _decide(request: PlanRequest[FlexGenLpOptions]) -> Decision:
    options = request.options
    frame, block = frame_of(request, options.table), options.block
    keeping = keeping_of(frame, options)
    if block is not None and not 1 <= block <= MOST_SEQUENCES:
        remedy = f"use between 1 and {MOST_SEQUENCES} sequences"
        raise UsageError("not a number of sequences", field="block", value=block, remedy=remedy)
    if block is not None and request.objective != "throughput":
        problem = f"more sequences never gain {request.objective}"
        raise UsageError(problem, field="block", value=block, remedy="add `objective` throughput, or leave it out")
    recorded = {**request.recorded(), "capped": request.prices.capped}
    strategy = FlexGenLp(frame, keeping, request.prices, block, request.objective)
    return with_doubts(lambda: strategy.decide(recorded), options.table, frame)


STRATEGY = Method("flexgen-lp", "FlexGen's own policy search, by linear programs", FlexGenLpOptions, _decide, slow=True)
