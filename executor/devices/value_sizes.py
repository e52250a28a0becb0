"""Sizes of values that kernels take."""

from helmsman.schemas.formats import size_of

F32_BYTES = size_of(1, "f32")
"""Of a value of activations, norms and biases, which kernels take in f32."""

INDEX_BYTES = 4
"""Of the number of an expert, int32."""
