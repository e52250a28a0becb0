"""Studies: grids of planning and serving questions, answered by several processes, kept, and summed up."""
