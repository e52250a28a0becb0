"""Bytes of a placement in every memory: weights, keys and values, buffers, page-locked rooms."""
