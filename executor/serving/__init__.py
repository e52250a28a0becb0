"""Serving: iterations of many requests at once, as a scheduler decides them."""
