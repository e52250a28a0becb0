"""Batches that a request leaves open, and the largest that fits."""
