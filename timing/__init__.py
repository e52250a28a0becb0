"""The clock: when the tasks of a pass start and end on a machine, for the planner and the simulator alike."""
