"""Reads scalings of rotary positions that have parameters of their own: Llama 3's, YaRN, and Phi's factors per
frequency."""

from math import isclose, log

from helmsman.hwdb.config_fields import Fields
from helmsman.schemas.blocks.positions import Llama3Scaling, LongRope, YarnScaling


def llama3(scaling: Fields, original_context: int, equal_bounds: bool) -> Llama3Scaling:
    """Return Llama 3's scaling; `equal_bounds`: whether its two bounds may be one (Llama 4). Raises BadInputError."""
    low, high = scaling.real("low_freq_factor"), scaling.real("high_freq_factor")
    if low > high or (low == high and not equal_bounds):
        raise scaling.wrong("high_freq_factor", f"must exceed low_freq_factor ({low:g})", "correct it")
    return Llama3Scaling(
        factor=scaling.real("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_context=original_context,
    )


def yarn(scaling: Fields, original_context: int) -> YarnScaling:
    """Return a YaRN scaling with the magnitude of sines and cosines as a number. Raises BadInputError."""
    fast, slow = scaling.real("beta_fast", 32.0), scaling.real("beta_slow", 1.0)
    if fast < slow:
        raise scaling.wrong("beta_fast", f"must be at least beta_slow ({slow:g})", "correct it")
    return YarnScaling(
        factor=scaling.real("factor"),
        original_context=original_context,
        beta_fast=fast,
        beta_slow=slow,
        truncate=scaling.flag("truncate", True),
        magnitude=_yarn_magnitude(scaling),
    )


def _yarn_magnitude(scaling: Fields) -> float:
    """Return 0.1 ln factor + 1, unless the config states it, or both weights of the logarithm."""
    factor, weight, every = scaling.real("factor"), *map(scaling.optional_real, ("mscale", "mscale_all_dim"))
    if scaling.has("attention_factor"):
        return scaling.real("attention_factor")
    if weight is not None and every is not None:
        return yarn_growth(factor, weight) / yarn_growth(factor, every)
    return yarn_growth(factor, 1.0)


def yarn_growth(factor: float, weight: float) -> float:
    """Return 0.1 weight ln factor + 1, by which YaRN lets attention grow with the context."""
    return 0.1 * weight * log(factor) + 1.0 if factor > 1 else 1.0


def longrope(scaling: Fields, original_context: int, dim: int, max_context: int, stated_magnitudes: bool) -> LongRope:
    """Return factors per frequency; `stated_magnitudes`: whether the family's class reads short_mscale and long_mscale.

    Raises BadInputError for a magnitude that the class would not give."""
    for key in ("attention_factor", *(() if stated_magnitudes else ("short_mscale", "long_mscale"))):
        if scaling.has(key):
            raise scaling.wrong(key, "not covered: an explicit longrope magnitude", "remove it")
    # The magnitude follows from max_context / original; a factor that says otherwise is another model.
    ratio = max_context / original_context
    if scaling.has("factor") and not isclose(scaling.real("factor"), ratio):
        raise scaling.wrong("factor", f"must equal context / original context ({ratio:g})", "correct it")
    return LongRope(
        short_factor=scaling.reals("short_factor", dim // 2),
        long_factor=scaling.reals("long_factor", dim // 2),
        original_context=original_context,
        short_magnitude=scaling.real("short_mscale") if stated_magnitudes else None,
        long_magnitude=scaling.real("long_mscale") if stated_magnitudes else None,
    )
