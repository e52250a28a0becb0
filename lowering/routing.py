"""Counts the distinct experts that the tokens of a pass choose."""

from helmsman.schemas.blocks.feed_forward import Experts


def distinct_experts(experts: Experts, tokens: int) -> float:
    """Return the expected number of distinct experts that `tokens` choose, each of them uniformly and on its own.

    With groups of experts too: by symmetry every expert is chosen with probability chosen / experts."""
    return experts.experts * (1.0 - (1.0 - experts.chosen / experts.experts) ** tokens)
