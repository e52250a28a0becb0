"""The attention of a long prompt is as many chunks as it has, each of the mean seconds of its first and last one."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from helmsman.executor.profile import prompt_attention
from helmsman.lowering.buffers import chunk_rows


def test_a_long_prompt_is_its_chunks_where_their_seconds_grow_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(past: int) -> float:
        return 2.0 + 0.5 * past / chunk_rows()

    def chunk_times(stage: object, layer: int, tokens: int, starts: Sequence[int]) -> Iterator[float]:
        return map(seconds, starts)

    monkeypatch.setattr(prompt_attention, "_chunk_times", chunk_times)
    stage: Any = None
    every = range(0, prompt_attention.LONG_PROMPT, chunk_rows())
    assert prompt_attention._long_prompt(stage) == pytest.approx(sum(map(seconds, every)))
