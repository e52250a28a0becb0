"""Parts of routed experts: what each reads and does of what the tokens of a pass choose.

Experts in slots are computed where the slots are, the others where rules put the operation. These two parts have rows
as if slots were the first experts: 0 <= s < slots, and slots <= e < experts, those that are fetched before others."""

from functools import lru_cache
from math import exp, lgamma, log, log1p
from typing import NamedTuple

from helmsman.lowering.operation import Operation
from helmsman.lowering.placement import KnownPlan
from helmsman.lowering.routing import Hits, distinct_experts, experts_of, hits, part_shares
from helmsman.lowering.rules import slots_of
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.plan import ExpertSlots


class ExpertPiece(NamedTuple):
    """Experts start <= e < stop of an operation on a device."""

    device: str
    start: int
    stop: int


class ExpertAmounts(NamedTuple):
    """Holds what a part reads, as shares of all experts of the layer, and does, as a share of what tokens choose.

    `first`, `stop`: between which experts its weights are looked up; `read`: of those, as the others; `distinct`: how
    many that are; `coming`: what must come for it; `ahead`: whether it comes before the router has chosen; `entering`:
    what is copied into slots behind the pass."""

    first: int
    stop: int
    read: float
    distinct: float
    choices: float
    coming: float
    ahead: bool = False
    entering: float = 0.0


def slot_device(plan: KnownPlan, rule: ExpertSlots) -> str:
    """Return the device that computes the experts in slots."""
    return next(device.name for device in plan.hardware.devices if device.memory == rule.memory)


def slot_rule(plan: KnownPlan, op: Operation) -> ExpertSlots | None:
    """Return the slots of an operation; None where it is not of routed experts, or these have none."""
    return slots_of(plan.expert_slots, op.layer or 0) if op.kind == "experts" and plan.expert_slots else None


def slot_pieces(plan: KnownPlan, rule: ExpertSlots, experts: int, device: str) -> tuple[ExpertPiece, ...]:
    """Return the parts of experts with slots whose misses rules put on `device`: hits first."""
    own = slot_device(plan, rule)
    there = ExpertPiece(own, 0, rule.slots)
    if rule.slots >= experts:
        return (there,)
    if rule.fetched is None or device == own:
        return there, ExpertPiece(device, rule.slots, experts)
    middle = rule.slots + fetched_experts(experts - rule.slots, rule.fetched)
    pieces = there, ExpertPiece(own, rule.slots, middle), ExpertPiece(device, middle, experts)
    return tuple([piece for piece in pieces if piece.start < piece.stop])


def fetched_experts(missing: int, share: float) -> int:
    """Return how many of the experts that are not in slots are fetched where a `share` of them is: some and not all,
    but of a single one."""
    return min(missing - 1, max(1, round(share * missing)))


@lru_cache(maxsize=4096)
def fetched_share(slots: int, share: float, distinct: float, hit: float) -> float:
    """Return which share of the experts that a pass misses is fetched on average where a `share` of them shall be:
    whole experts, as far as slots hold none of the pass.

    The pass chooses `distinct` experts, of which `hit` are in slots: each with the same probability."""
    chosen = max(1, round(distinct))
    missed = 1.0 - hit / distinct
    if missed <= 0.0:
        return 0.0
    counts = (max(0, min(fetched_experts(count, share), slots - chosen + count)) for count in range(1, chosen + 1))
    fetched = sum(_binomial(chosen, missed, count) * most for count, most in enumerate(counts, 1) if most)
    return fetched / (chosen * missed)


def _binomial(trials: int, probability: float, count: int) -> float:
    """Return the probability of `count` successes, above 0 in each."""
    if probability >= 1.0:
        return float(count == trials)
    ways = lgamma(trials + 1) - lgamma(count + 1) - lgamma(trials - count + 1)
    return exp(ways + count * log(probability) + (trials - count) * log1p(-probability))


def _part_of_misses(rule: ExpertSlots, piece: ExpertPiece, experts: int, distinct: float, hit: float) -> float:
    """Return which share of the misses a part computes."""
    if rule.fetched is None or (piece.start == rule.slots and piece.stop == experts):
        return 1.0
    share = fetched_share(rule.slots, rule.fetched, distinct, hit)
    return share if piece.start == rule.slots else 1.0 - share


def expert_amounts(plan: KnownPlan, iteration: Iteration, op: Operation, piece: ExpertPiece) -> ExpertAmounts:
    """Return what a part of an operation of experts reads and does in a pass."""
    routing, layer = plan.workload.routing, op.layer or 0
    own = None if routing is None else routing.of_layer.get(layer)
    experts = experts_of(plan.model, layer)
    assert experts is not None
    tokens = op.tokens // experts.chosen
    distinct = distinct_experts(experts, tokens, own)
    ahead = _comes_ahead(plan, iteration, op)
    rule = slot_rule(plan, op)
    if rule is None:
        if own is None:
            shares = Hits(*[(piece.stop - piece.start) / experts.experts] * 2)
            read = op.weight_share
        else:
            shares = part_shares(experts, piece.start, piece.stop, tokens, own)
            read = distinct * shares.experts / (piece.stop - piece.start)
        coming = 1.0 if ahead else read
        return ExpertAmounts(piece.start, piece.stop, read, distinct * shares.experts, shares.choices, coming, ahead)
    there = hits(experts, rule.slots, rule.eviction, tokens, own)
    if piece.start == 0:
        read = distinct * there.experts
        return ExpertAmounts(0, experts.experts, read / experts.experts, read, there.choices, 0.0)
    own_part = _part_of_misses(rule, piece, experts.experts, distinct, distinct * there.experts)
    missed, choices = own_part * distinct * (1.0 - there.experts), own_part * (1.0 - there.choices)
    read, elsewhere = missed / experts.experts, piece.device != slot_device(plan, rule)
    coming = (piece.stop - piece.start) / experts.experts if ahead else read
    enters = elsewhere and rule.eviction == "least-recent" and rule.fetched is None
    entering = read * min(1.0, rule.slots / distinct) if enters else 0.0
    return ExpertAmounts(0, experts.experts, read, missed, choices, 0.0 if elsewhere else coming, ahead, entering)


def _comes_ahead(plan: KnownPlan, iteration: Iteration, op: Operation) -> bool:
    """Whether experts that come over a link leave before the router has chosen: all of them do then. Into slots they
    come so for prompts alone, which choose nearly all."""
    if plan.schedule.overlap != "next-layer" and not plan.schedule.barrier:
        return False
    return slot_rule(plan, op) is None or iteration.phase == "prefill"
