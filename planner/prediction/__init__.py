"""What a placement takes: seconds by phase with their terms, bounds, how far they move with what a machine is."""
