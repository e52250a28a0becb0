"""Flags that make another engine do what a plan says, as far as the planner knows them."""

from collections.abc import Iterator

from helmsman.planner.words.engine_command import engine_command
from helmsman.schemas.plan import Plan
from helmsman.schemas.plan_answer import EngineSetting


def engine_settings(plan: Plan) -> tuple[EngineSetting, ...]:
    """Return the settings of a plan that was made as an engine would run it; none for others."""
    return tuple(_settings(plan))


def _settings(plan: Plan) -> Iterator[EngineSetting]:
    command = engine_command(plan)
    if command is not None:
        yield EngineSetting(engine="llama.cpp", command=command)
