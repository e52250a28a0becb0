"""Rounding: how precise activations are where a processor multiplies many tokens at once."""

from typing import Literal

from helmsman.schemas.base import Frozen
from helmsman.schemas.formats import Precision, StoredFormat, is_plain, is_small

FloatPrecision = Literal["f32", "bf16"]
"""The floating-point formats to which a kernel can round activations before it multiplies them."""

AttentionPrecision = Literal["f32", "bf16", "int16"]
"""The number formats to which an attention kernel can round queries, keys, values and softmax weights of a prompt
before it multiplies them. In `int16` they are integers: every query, key and value vector has a scale of its own."""


class Rounding(Frozen):
    """A device rounds activations to `bf16` where they meet weights in bf16, and to `codes` where they meet quantised
    ones, or to `small_codes`, if that is set, where these have fewer than five bits a value and are not of experts. In
    bf16, the values of quantised weights are rounded as well. Weights in f32 and f16 meet f32. `attention`: of prompts,
    of all that it multiplies, cached keys and values too.

    Sums are f32 in any case. A few tokens (up to 16; of quantised weights on AVX2 up to 4), which meet weights as these
    are read, are f32 where weights are bf16, and `int16` where they are quantised, unless `codes` is f32."""

    bf16: FloatPrecision = "f32"
    codes: Precision = "int16"
    small_codes: Precision | None = None
    attention: AttentionPrecision = "f32"

    def of(self, fmt: StoredFormat) -> Precision:
        """Return the precision of products with weights in `fmt`, of all tokens."""
        return self.small_codes if self.small_codes is not None and is_small(fmt) else self.of_experts(fmt)

    def of_experts(self, fmt: StoredFormat) -> Precision:
        """Return the precision of products with experts in `fmt`, which some of the tokens meet."""
        if not is_plain(fmt):
            return self.codes
        return self.bf16 if fmt == "bf16" else "f32"


DEFAULT_ROUNDING = Rounding()
"""The rounding of devices whose record chooses none."""
