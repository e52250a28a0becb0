"""The contract of what drafts tokens for an engine."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.passes.generation import Tokens

Hidden = NDArray[np.float32]
"""(sequences, tokens, hidden) states after the model's last block."""


class Drafter(Protocol):
    """Proposes tokens; whatever it proposes, the verified tokens are the same."""

    def follow(self, following: Tokens, hidden: Hidden, past: int) -> None:
        """Take in verified tokens: `hidden` are the model's states at positions past, past + 1, ..., and `following`
        (sequences, tokens) the token after each of them. What it had at these positions and later is forgotten."""

    def propose(self, count: int) -> Tokens:
        """Return (sequences, count) tokens that may come after the last one of `follow`, which comes before every
        proposal; count is 1 or more."""
