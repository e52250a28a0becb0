"""Serving costs: the seconds of an iteration and the KV tokens of a replica, on one accelerator or several."""
