"""When sequences of a run end: by one of several tokens, by none."""

from collections.abc import Sequence

import numpy as np
import pytest

from helmsman.executor.passes.generation import Progress
from helmsman.scheduler.iteration import single_stream
from helmsman.schemas.workload import Workload

CHOSEN = np.array([[5, 5, 5], [7, 5, 9], [5, 5, 9], [5, 7, 5]], np.int32)
"""Tokens of three sequences, pass by pass."""


@pytest.mark.parametrize(
    ("eos", "lengths"), [((), (4, 4, 4)), ((7,), (2, 4, 4)), ((9,), (4, 4, 2)), ((9, 7), (2, 4, 2)), ((5,), (1, 1, 1))]
)
def test_a_sequence_ends_with_any_of_the_tokens(eos: Sequence[int], lengths: tuple[int, ...]) -> None:
    """It keeps the token that ended it; without such tokens all run to the end. The run ends with the last of them."""
    iterations = tuple(single_stream(Workload(prompt_tokens=4, output_tokens=4, context=8, batch=3)))
    progress = Progress(iterations, 3, eos)
    passes = 0
    for _ in progress.remaining():
        progress.add(CHOSEN[passes], lambda chosen: None)
        passes += 1
    found = progress.generation(())
    assert found.lengths == lengths and passes == max(lengths)
