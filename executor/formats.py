"""Formats that kernels multiply, as opposed to those that memories may hold."""

from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import Format, StoredFormat, size_of

F32_BYTES = size_of(1, "f32")
"""Of a value of activations, norms and biases, which kernels take in f32."""


def computing_format(fmt: StoredFormat, what: str) -> Format:
    """`fmt` itself, when it can be computed with. Raises UsageError for what must be expanded first."""
    if fmt == "q4":
        raise UsageError(
            f"{what} is stored in 4-bit groups where it is used, and they are only expanded on the way to a device",
            field="format",
            value=fmt,
            remedy="store it in f32, f16 or bf16, or use it on another device",
        )
    return fmt
