"""Batch sizes: the search for the batch that a request leaves open, and for the largest batch that fits."""
