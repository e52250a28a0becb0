"""The product whose rate probes measure and the cost model prices."""

PROBED = (4096, 2048)
"""Rows and columns of the product whose rate is probed."""
