"""Runs with a clock and probes beside them, and what is reported of them."""
