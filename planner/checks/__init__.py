"""Plan validation: checks that the rules, windows, formats and memory usage of a plan can be executed."""
