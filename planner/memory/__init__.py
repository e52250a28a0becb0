"""Bytes of a placement in every memory (weights, keys and values, buffers), and what people call memories."""
