"""Whether a plan can be run as it says, whoever wrote it: rules, windows, formats, memories."""
