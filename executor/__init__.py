"""The executor: runs a plan for real and measures it."""
