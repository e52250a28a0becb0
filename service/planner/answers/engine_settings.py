"""Flags that make another engine do what a plan says, as far as the planner knows them."""

import re
from collections.abc import Iterator

from helmsman.schemas.plan import Plan
from helmsman.schemas.plan_answer import EngineSetting

_LABEL = re.compile(r"llama-cpp( -ngl \d+)( -ot \d+)?.*")
"""The label of a llama.cpp plan: its flag, and the number of rules that move tensors elsewhere."""


def engine_settings(plan: Plan) -> tuple[EngineSetting, ...]:
    """Return the settings of a plan that was made as an engine would run it; none for others."""
    return tuple(_settings(plan))


def _settings(plan: Plan) -> Iterator[EngineSetting]:
    label = _LABEL.fullmatch(plan.label)
    if plan.strategy.name == "llama-cpp" and label is not None:
        overrides = plan.strategy.options.get("override_tensor")
        moved = "" if overrides is None else f" -ot '{overrides}'"
        yield EngineSetting(engine="llama.cpp", command=f"llama-server{label[1]}{moved} -c {plan.workload.context}")
