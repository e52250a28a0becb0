"""The formats that are tried of a model, and what each loses."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from helmsman.hwdb.format_losses import published_losses
from helmsman.hwdb.gguf_paths import is_gguf
from helmsman.planner.file_formats import resolve_formats, true_bits
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import NATIVE, is_plain
from helmsman.schemas.model import Model

TRIED = ("f16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "iq4_xs", "q3_k_m", "iq3_xxs", "iq2_m")
"""Formats of a model that was released in 16 bits: of those with a published loss, such as people find files of, none
larger than another that loses less. Of a model that was released in MXFP4 the mixture of that name is tried, too."""

_RELEASED = "the model is released so"


@dataclass(frozen=True, slots=True)
class TriedFormat:
    """A format of a model: bits of a parameter, bytes of all weights; `loss` in nats, `loss_of`: whose; None where
    nobody published one."""

    name: str
    bits: float
    size: int
    loss: float | None = None
    loss_of: str | None = None


def tried_formats(
    model: Model, name: str, wanted: Sequence[str] = (), in_gguf: bool = False
) -> tuple[TriedFormat, ...]:
    """Return the formats to try of a model that is called `name`: those `wanted` that it can have, by default its own
    where it has files or is released quantised (in MXFP4: with llama.cpp's mixture of that name) and what is smaller
    than these, else `TRIED`. `in_gguf`: only formats of GGUF files are tried."""
    quantised = model.native_quantisation
    if wanted:
        return tuple(known for fmt in wanted if (known := _known(model, name, fmt)) is not None)
    native = _known(model, name, NATIVE) if quantised is not None or is_gguf(Path(name)) else None
    if native is not None and is_gguf(Path(name)):
        return (native,)
    if in_gguf and quantised is not None and not resolve_formats(None, name, model, in_gguf=True)[1]:
        native = None
    tried = tuple(known for fmt in TRIED if (known := _known(model, name, fmt)) is not None)
    if native is None:
        return tried
    mixture = _known(model, name, "mxfp4") if quantised is not None and quantised.method == "mxfp4" else None
    own = (native,) if mixture is None else (native, mixture)
    return (*own, *(fmt for fmt in tried if fmt.bits < own[-1].bits))


def _known(model: Model, name: str, fmt: str) -> TriedFormat | None:
    """Return a format with its size and loss; None where the model cannot have it."""
    try:
        size, bits = true_bits(model, name, fmt)
    except UsageError:
        return None
    loss, loss_of = _loss(model, fmt)
    return TriedFormat(fmt, bits, size, loss, loss_of)


def _loss(model: Model, fmt: str) -> tuple[float | None, str | None]:
    """Return what a format loses, and whose figure that is. Published ones are of models that were released in 16
    bits."""
    quantised = model.native_quantisation is not None
    if (quantised and fmt == NATIVE) or (not quantised and fmt in (model.native_format, "f32")):
        return 0.0, _RELEASED
    published = published_losses().get(fmt)
    if published is None or quantised or not is_plain(model.native_format):
        return None, None
    return published.kl_divergence, f"{published.model}{', importance matrix' if published.imatrix else ''}"
