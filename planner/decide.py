"""From a question to a plan: rank every candidate of a strategy, build the best, say why not the others."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from helmsman.lowering.placement import Placement
from helmsman.planner.search import Ranking, exhaustive
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Evidence, Plan, Predicted, Strategy
from helmsman.schemas.read import digest
from helmsman.schemas.units import format_bytes


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that does not fit: what it lacks, and its objective if it did."""

    label: str
    seconds: float
    shortage: tuple[tuple[str, int], ...]

    @property
    def missing(self) -> int:
        """Bytes missing in all memories."""
        return sum(size for _, size in self.shortage)


@dataclass(frozen=True, slots=True)
class Decision:
    """The plan, its objective in seconds, the other feasible candidates (label, seconds), those that do not fit.

    `unused`: devices of the machine that the strategy cannot use; `evaluated`: candidates that were priced."""

    plan: Plan
    seconds: float
    runner_ups: tuple[tuple[str, float], ...]
    rejected: tuple[Rejected, ...]
    unused: tuple[str, ...] = ()
    evaluated: int = 1

    @property
    def nearest(self) -> Rejected | None:
        """The smallest change that would allow a faster plan."""
        faster = [r for r in self.rejected if r.seconds < self.seconds]
        return min(faster, key=lambda r: r.missing, default=None)


def decide(split: LayerSplit, options: dict[str, str | int | float | bool]) -> Decision:
    """Search every candidate and build the best plan; `options` are recorded in it.

    Raises InfeasibleError with the smallest change that would make one fit."""
    ranking = exhaustive(split.candidates(), split.evaluate)
    rejected = _rejected(split, ranking)
    if not ranking.feasible:
        raise _infeasible(split, rejected)
    best, score = ranking.feasible[0]
    others = tuple((split.label(k), other.value) for k, other in ranking.feasible[1:])
    plan, count = build_plan(split, best, options), 1 + len(others) + len(rejected)
    return Decision(plan, score.value, others, rejected, split.roles.unused, count)


def build_plan(split: LayerSplit, k: int, options: dict[str, str | int | float | bool]) -> Plan:
    """The Plan document of candidate `k`."""
    strategy = Strategy(name="layer-split", options=options)
    return plan_document(split.placement(k), split.label(k), strategy, split.predicted(k))


def plan_document(placement: Placement, label: str, strategy: Strategy, predicted: Predicted) -> Plan:
    """A placement with its prediction as a Plan."""
    return Plan(
        label=label,
        model=placement.model,
        model_sha256=digest(placement.model),
        hardware=placement.hardware,
        hardware_sha256=digest(placement.hardware),
        workload=placement.workload,
        workload_sha256=digest(placement.workload),
        strategy=strategy,
        residence=placement.residence,
        kv=placement.kv,
        compute=placement.compute,
        activations=placement.activations,
        schedule=placement.schedule,
        predicted=predicted,
        evidence=tuple(evidence(placement.hardware)),
    )


def longest_context(split: LayerSplit) -> int:
    """The most tokens per sequence for which some candidate fits; 0 when none does at one token."""

    def fits(context: int) -> bool:
        tokens = max(1, min(split.workload.prompt_tokens, context - 1))
        shape = {"context": context, "prompt_tokens": tokens, "output_tokens": 1}
        at = replace(split, workload=split.workload.model_copy(update=shape))
        return any(not at.shortage(k) for k in at.candidates())

    low, high = 0, split.model.longest_context
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def evidence(hardware: Hardware) -> Iterator[Evidence]:
    """The rates that the prediction used, each with the place it comes from."""

    def of(what: str, figure: Figure) -> Evidence:
        source = hardware.sources[figure.source]
        return Evidence(what=what, value=figure.value, source=f"{source.kind}: {source.where}"[:200])

    for device in hardware.devices:
        yield of(f"{device.name} read bytes/s", device.read)
        for compute in device.compute:
            yield of(f"{device.name} {compute.phase} FLOP/s {compute.format}", compute.flops)
    for link in hardware.links:
        yield of(f"{link.name} bytes/s", link.bandwidth)
        yield of(f"{link.name} latency s", link.latency)


def _rejected(split: LayerSplit, ranking: Ranking[int]) -> tuple[Rejected, ...]:
    return tuple(Rejected(split.label(k), score.value, score.shortage) for k, score in ranking.infeasible)


def _infeasible(split: LayerSplit, rejected: tuple[Rejected, ...]) -> InfeasibleError:
    nearest = min(rejected, key=lambda r: r.missing)
    lacks = " and ".join(f"{format_bytes(size)} more in {memory}" for memory, size in nearest.shortage)
    context = longest_context(split)
    least = split.workload.prompt_tokens + 1
    shorter = f", or --context {context}" if least <= context < split.workload.context else ""
    return InfeasibleError(
        f"no split of {split.model.name} fits {split.roles.hardware.name}",
        remedy=f"the smallest change: {lacks} (then {nearest.label} fits){shorter}",
    )
