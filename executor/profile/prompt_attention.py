"""Times the attention of prompts on a synthetic stage, by the precision of its factors and the tokens of the prompt.

It is timed in several visits, apart in time, as products of many tokens are: a processor computes at half its rate for
a second and more, and a spell that meets one visit meets no median."""

from collections.abc import Iterator, Sequence

import numpy as np

from helmsman.executor._kernels import Pool, Stage
from helmsman.executor.profile.samples import AttentionSamples
from helmsman.executor.profile.synthetic_stage import MODEL, synthetic_stages
from helmsman.lowering.buffers import chunk_rows
from helmsman.schemas.rounding import AttentionPrecision

PROMPTS = (32, 128, 256, 1024)
"""Tokens of prompts whose attention is timed whole, in every block."""
LONG_PROMPT = 4096
"""Tokens of a prompt whose first and last chunk are timed, in one block: the seconds of a chunk grow with what lies
before it, within 4 % evenly. In bf16, with AMX, its attention runs at 1.26 to 1.38 times the FLOP/s of 1024 tokens
(2 cores of an Intel Xeon, Emerald Rapids)."""
PRECISIONS: tuple[AttentionPrecision, ...] = ("f32", "bf16", "int16")
"""The precisions of queries, keys, values and attention weights in which it is timed."""


def measure_prompt_attention(pool: Pool) -> AttentionSamples:
    """Return by precision and tokens the seconds of one block's attention over a prompt: once for each block that is
    timed."""
    samples: AttentionSamples = {}
    for precision, stage in zip(PRECISIONS, synthetic_stages(pool, PRECISIONS), strict=True):
        if not samples:
            _fill_cache(stage)
        for tokens in PROMPTS:
            samples[precision, tokens] = [
                sum(_chunk_times(stage, layer, tokens, range(0, tokens, chunk_rows()))) for layer in range(MODEL.layers)
            ]
        samples[precision, LONG_PROMPT] = [_long_prompt(stage)]
    return samples


def _fill_cache(stage: Stage) -> None:
    """Write keys and values of all positions of the first block, which all precisions share: pages that nobody wrote
    are one page of zeros."""
    first, last = (stage.ops.index(f"0.{op}") for op in ("norm1", "append"))
    for past in range(0, LONG_PROMPT, chunk_rows()):
        stage.run(None, None, chunk_rows(), past, np.zeros(last - first + 2).data, first, last + 1)


def _long_prompt(stage: Stage) -> float:
    """Return the seconds of attention over LONG_PROMPT tokens: as many chunks as it has, of the mean of both ends."""
    starts = range(0, LONG_PROMPT, chunk_rows())
    first, last = _chunk_times(stage, 0, LONG_PROMPT, (starts[0], starts[-1]))
    return len(starts) * (first + last) / 2


def _chunk_times(stage: Stage, layer: int, tokens: int, starts: Sequence[int]) -> Iterator[float]:
    """Yield the seconds of attention in block `layer` for each chunk of a prompt of `tokens` tokens that begins behind
    so many tokens. Before it the stage computes queries, keys and values from hidden states of an earlier pass."""
    first, last = (stage.ops.index(f"{layer}.{op}") for op in ("norm1", "attention"))
    for past in starts:
        stamps = np.zeros(last - first + 2)
        stage.run(None, None, min(chunk_rows(), tokens - past), past, stamps.data, first, last + 1)
        yield float(stamps[-1] - stamps[-2])
