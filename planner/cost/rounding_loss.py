"""The loss by rounding activations: the KL divergence of next tokens from f32 on the same weights, as it was measured.

`benchmarks.precision` measures it; docs/precision.md has it beside what PyTorch's bf16 and formats of weights cost."""

from collections.abc import Mapping
from typing import NamedTuple

from helmsman.lowering.nearest_format import nearest
from helmsman.schemas.formats import Precision, StoredFormat
from helmsman.schemas.rounding import AttentionPrecision


class Loss(NamedTuple):
    """In nats, of the mean and of the worst position. `format`: of the weights."""

    format: StoredFormat
    rounding: Precision
    mean: float
    worst: float


MEASURED: tuple[Loss, ...] = (
    Loss("bf16", "bf16", 6.6e-4, 7.1e-3),
    Loss("q8_0", "int16", 8.1e-8, 5.0e-7),
    Loss("q8_0", "bf16", 9.7e-4, 4.6e-3),
    Loss("q8_0", "int8", 6.4e-3, 8.4e-2),
    Loss("q4_0", "int16", 9.3e-8, 1.5e-6),
    Loss("q4_0", "bf16", 1.1e-3, 7.7e-3),
    Loss("q4_0", "int8", 5.8e-3, 2.8e-2),
    Loss("q4_k", "int16", 7.6e-8, 4.3e-7),
    Loss("q4_k", "bf16", 1.4e-3, 1.0e-2),
    Loss("q4_k", "int8", 6.7e-3, 9.6e-2),
)
"""Qwen3-0.6B and 1.7B (q4_k: the former alone) with random weights, 400 and 300 tokens in four sequences, every fifth
position; of both the larger. Where weights meet bf16, attention of prompts multiplies bf16 as well."""
ATTENTION_LOSS: Mapping[AttentionPrecision, tuple[float, float]] = {"bf16": (3.6e-4, 5.6e-3), "int16": (7.7e-7, 5.3e-6)}
"""The mean and the worst KL divergence, in nats, that attention of prompts adds by what it multiplies: measured on the
same models (int16: Qwen3-0.6B alone) with weights in q8_0 and q4_0 and activations in int16, which lose next to
nothing."""
_EXACT: Mapping[Precision, str] = {"f32": "which rounds nothing"}


def loss_of(fmt: StoredFormat, rounding: Precision) -> str:
    """In words: `8e-08 of KL from f32 in the mean, 7e-07 at worst`; of formats that were not measured, about that of
    the nearest."""
    if rounding in _EXACT:
        return _EXACT[rounding]
    measured = [loss for loss in MEASURED if loss.rounding == rounding]
    loss = next((loss for loss in measured if loss.format == fmt), None) or nearest(fmt, measured)
    assert loss is not None, f"{rounding} was measured"
    return f"{'about ' if loss.format != fmt else ''}{_in_words(loss.mean, loss.worst)}"


def attention_loss(rounding: AttentionPrecision) -> str:
    """Describe the KL divergence that attention of prompts adds by what queries, keys and values are rounded to."""
    return f"about {_in_words(*ATTENTION_LOSS[rounding])}"


def _in_words(mean: float, worst: float) -> str:
    """Format a mean and a worst KL divergence."""
    return f"{mean:.0e} of KL from f32 in the mean, {worst:.0e} at worst"
