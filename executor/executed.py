"""Which plans run: those whose decode steps read keys and values of every past token."""

from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan


def check_executed(plan: Plan) -> None:
    """Raise UsageError for a plan that is planned and simulated only: with a variant of what caches hold or give."""
    use = plan.schedule.cache
    if not use.plain:
        raise UsageError(
            "caches of activations and chosen tokens are planned and simulated, not executed",
            field="schedule.cache",
            value=use.label,
            remedy="plan without --kv-keep and --activation-cache",
        )
