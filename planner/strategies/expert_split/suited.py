"""Whether a question suits strategies that place routed experts."""

from helmsman.planner.machine import check_separate
from helmsman.planner.strategies.expert_split.layout import expert_count
from helmsman.planner.strategies.streaming.place import Frame


def check_experts(frame: Frame, strategy: str) -> None:
    """Raise UsageError for a model without routed experts, or a machine without an accelerator that has a memory of its
    own."""
    expert_count(frame.model, strategy)
    check_separate(frame.roles, strategy)
