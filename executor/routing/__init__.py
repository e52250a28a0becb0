"""Keeps what routers of a run chose, and the experts that are cached for them."""
