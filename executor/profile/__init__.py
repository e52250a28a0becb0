"""Measuring this machine: what its processors and links do with the executor's own code."""
