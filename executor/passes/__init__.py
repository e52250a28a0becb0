"""The passes of a plan as tasks, what their tasks do, and when they ran."""
