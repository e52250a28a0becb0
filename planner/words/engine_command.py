"""The command that makes llama.cpp do what a plan says that was made as llama.cpp would run it."""

import re

from helmsman.schemas.plan import Plan

_LABEL = re.compile(r"llama-cpp( --fit)?(?P<placed> -ngl \d+.*?)( -ot \d+)?( \d+x\d+)?")
"""The label of a llama.cpp plan: the flags that place layers and experts, and what is said in other words there."""


def engine_command(plan: Plan) -> str | None:
    """Return `llama-server -ngl 49 --n-cpu-moe 20 -c 4096`; None for a plan of another strategy."""
    label = _LABEL.fullmatch(plan.label)
    if plan.strategy.name != "llama-cpp" or label is None:
        return None
    options = plan.strategy.options
    patterns = options.get("override_tensor")
    placed = label["placed"] if patterns is None else f"{label['placed']} -ot '{patterns}'"
    flags = options.get("flags")
    return f"llama-server{placed if flags is None else f' {flags}'} -c {plan.workload.context}"
