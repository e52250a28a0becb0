"""Deciding what advances next: torch-free policies that the simulator and the executor share."""
