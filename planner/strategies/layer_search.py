"""Search the layer split of a question: rank every candidate, build the best, say why not the others.

The closed form proposes, the prediction decides: the best is a candidate that is predicted to take no more than any
other is priced or predicted to. Without windows of caches, and without tables that layers read, the closed form is the
prediction, and one is predicted."""

from dataclasses import replace

from helmsman.planner.decision import Decision, PlanDraft, RejectedCandidate, plan_document
from helmsman.planner.memory.names import room_in_words
from helmsman.planner.prediction.predict import PlacementFigures
from helmsman.planner.search import Ranking, exhaustive
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.planner.strategies.layer_windows import Window, suits_windows
from helmsman.planner.tensor_formats import weights_size
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.plan import Plan, Strategy
from helmsman.schemas.storage import STORAGE


def decide(split: LayerSplit, options: dict[str, str | int | float | bool], priced: bool = False) -> Decision:
    """Search every candidate and build the best plan; `options` are recorded in it; `priced`: by closed forms alone,
    where these are the prediction.

    Raises InfeasibleError with the smallest change that would make one fit."""
    ranking = exhaustive(split.candidates(), split.evaluate)
    rejected = _rejected(split, ranking)
    if not ranking.feasible:
        raise _infeasible(split, rejected)
    closed = priced and split.options.window is None and split.model.per_layer_table is None
    (best, seconds), *after = _ranked(ranking) if closed else _settled(split, ranking)
    others = tuple((split.label(k), taken) for k, taken in after)
    count = 1 + len(others) + len(rejected)
    return Decision(draft_of(split, best, options), seconds, others, rejected, split.roles.unused, count)


def _ranked(ranking: Ranking[int]) -> list[tuple[int, float]]:
    """The feasible candidates with their seconds of the objective, fewest first."""
    return [(k, score.value) for k, score in ranking.feasible]


def _settled(split: LayerSplit, ranking: Ranking[int]) -> list[tuple[int, float]]:
    """The same, of which the first is predicted."""
    ranked, predicted = _ranked(ranking), set[int]()
    while ranked[0][0] not in predicted:
        k, _ = ranked[0]
        predicted.add(k)
        ranked = sorted([(k, split.predicted_objective(k)), *ranked[1:]], key=lambda pair: pair[1])
    return ranked


def build_plan(split: LayerSplit, k: int, options: dict[str, str | int | float | bool]) -> Plan:
    """The Plan document of candidate `k`."""
    drafted = draft_of(split, k, options)
    return drafted if isinstance(drafted, Plan) else drafted.plan


def draft_of(split: LayerSplit, k: int, options: dict[str, str | int | float | bool]) -> Plan | PlanDraft:
    """Return the plan of candidate `k`, or what it is made of."""
    strategy = Strategy(name="layer-split", options=options)
    predicted = split.predicted(k)
    if isinstance(predicted, PlacementFigures):
        return PlanDraft(split.placement(k), split.label(k), strategy, predicted)
    return plan_document(split.placement(k), split.label(k), strategy, predicted)


def _paged(split: LayerSplit) -> str:
    """That a window would do, where it would: the context is what does not fit."""
    options = replace(split.options, kv_offload=False, window=Window())
    excluded = split.workload.batches > 1 or split.workload.prefix_tokens or not suits_windows(split.model)
    if split.options.window is not None or excluded or _too_large(split):
        return ""
    windowed = LayerSplit(split.model, split.roles, split.workload, options, split.costs)
    fits = split.roles.separate and any(not windowed.shortage(k) for k in windowed.candidates())
    return ", or `kv_window` auto" if fits else ""


def _too_large(split: LayerSplit) -> bool:
    """Whether weights alone are more than all memories hold, however little of caches is where."""
    whole = weights_size(split.model, split.options.formats, split.options.weights)
    working = (memory for memory in split.roles.hardware.memories if memory.kind != STORAGE)
    return whole > sum(memory.available for memory in working)


def _rejected(split: LayerSplit, ranking: Ranking[int]) -> tuple[RejectedCandidate, ...]:
    return tuple(RejectedCandidate(split.label(k), score.value, score.shortage) for k, score in ranking.infeasible)


def _infeasible(split: LayerSplit, rejected: tuple[RejectedCandidate, ...]) -> InfeasibleError:
    nearest = min(rejected, key=lambda r: r.missing)
    lacks = room_in_words(split.roles.hardware, nearest.shortage)
    return InfeasibleError(
        f"no split of {split.model.name} fits {split.roles.hardware.name}",
        remedy=f"the smallest change: {lacks} (then {nearest.label} fits){_paged(split)}",
        lacks=dict(nearest.shortage),
    )
