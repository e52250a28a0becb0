"""The decision on a request: one strategy's plan, or the recommended one."""

from typing import Any

from helmsman.planner.checks.format_check import check_formats
from helmsman.planner.decision import Decision
from helmsman.planner.registry import Method, method
from helmsman.planner.request import PlanRequest
from helmsman.schemas.errors import InfeasibleError, UnequalBlocksError, UsageError
from helmsman.schemas.model import Model


def decide(request: PlanRequest[Any]) -> Decision:
    """Return the best plan of the strategy that the request names, with the candidates it was chosen from.

    Raises InfeasibleError with the smallest change that would do where nothing fits, UsageError where options make no
    sense together or the strategy does not apply."""
    chosen = method(request.strategy)
    if not isinstance(request.options, chosen.options):
        problem, remedy = f"are not those of {chosen.name}", f"give a {chosen.options.__name__}"
        raise UsageError(problem, field="options", value=type(request.options).__name__, remedy=remedy)
    check_formats(request)
    try:
        return _marked(request.model, _drafted(request, chosen))
    except InfeasibleError as error:
        from helmsman.planner.remedies import with_remedies

        raise with_remedies(error, request) from None
    except UnequalBlocksError as error:
        raise unsuited(chosen.name, error) from None


def unsuited(strategy: str, error: UnequalBlocksError) -> UsageError:
    """Return the refusal of a model by a strategy that plans equal dense blocks."""
    problem = f"{strategy} plans models of equal dense blocks, and {error.model} has {error.has}"
    return UsageError(problem, field="strategy", remedy="use `strategy` layer-split or best")


def _marked(model: Model, decision: Decision) -> Decision:
    """Return the decision, with a warning where the model can be planned but not run."""
    if not model.unknown:
        return decision
    facts = ", ".join(model.unknown)
    warning = f"run: refused, as no source states {facts}: plan with `model` a checkpoint that states them"
    return decision.doubted((warning,))


def _drafted(request: PlanRequest[Any], chosen: Method[Any]) -> Decision:
    if request.drafts is None:
        return _decided(request, chosen)
    from helmsman.planner.drafted import decide_drafted

    return decide_drafted(request, request.drafts, lambda plain: _decided(plain, chosen))


def _decided(request: PlanRequest[Any], chosen: Method[Any]) -> Decision:
    if request.batch is None and request.batches is None and not request.formats:
        return chosen.decide(request)
    from helmsman.planner.batches.batch_choice import check_choice, decide_batches
    from helmsman.planner.mixed_formats import decide_mixed

    check_choice(request)
    return decide_mixed(
        request,
        lambda uniform: decide_batches(uniform, chosen.decide),
        lambda uniform: decide_batches(uniform, chosen.propose or chosen.decide),
    )
