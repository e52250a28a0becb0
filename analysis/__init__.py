"""Comparing and questioning plans and traces."""
