"""The five documents that cross the border of a process, their units and their errors."""
