"""Prices of block configurations: seconds on each lane and bytes in each memory, from the cost model."""
