"""Passes: the tasks of a prompt pass or decode step, checks that these can run, and the times at which they ran."""
