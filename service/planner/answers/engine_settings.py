"""Settings that make another engine do what a plan says that was made as the engine would run it."""

from helmsman.planner.settings.registry import own_engine, written
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan
from helmsman.schemas.plan_answer import EngineSetting


def engine_settings(plan: Plan) -> tuple[EngineSetting, ...]:
    """Return the settings of a plan of an engine's strategy; none for others."""
    engine = own_engine(plan)
    if engine is None:
        return ()
    try:
        return (EngineSetting(engine=engine, command=written(plan, engine).text.rstrip("\n")),)
    except UsageError:  # a model of which the engine's names are not known
        return ()
