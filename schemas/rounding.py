"""Rounding: how precise activations are where a processor multiplies many tokens at once."""

from typing import Literal

from helmsman.schemas.base import Frozen
from helmsman.schemas.formats import Precision, StoredFormat, is_plain


class Rounding(Frozen):
    """What activations are rounded to: `bf16` where they meet weights in bf16, `codes` where they meet quantised ones;
    weights in f32 and f16 meet f32.

    Sums are f32 in any case. Up to 12 or 16 tokens, for which reading weights takes longer than multiplying, weights in
    bf16 meet f32 and quantised ones `int16`, unless `codes` is f32."""

    bf16: Literal["f32", "bf16"] = "f32"
    codes: Literal["f32", "int16", "int8"] = "int16"

    def of(self, fmt: StoredFormat) -> Precision:
        """Of products with weights in `fmt`."""
        if not is_plain(fmt):
            return self.codes
        return self.bf16 if fmt == "bf16" else "f32"


USUAL = Rounding()
"""Of devices that do not say."""
