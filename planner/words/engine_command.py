"""The command with which an engine does what a plan says that was made as the engine would run it."""

from helmsman.planner.settings.registry import own_engine, written
from helmsman.schemas.plan import Plan

_PRINTED = "llama.cpp"
"""The engine whose command is a line of its own; others print theirs when they are asked to."""


def engine_command(plan: Plan) -> str | None:
    """Return `llama-server -ngl 49 --n-cpu-moe 20 -c 4096 ...`; None for a plan of another strategy."""
    return written(plan, _PRINTED).text if own_engine(plan) == _PRINTED else None
