"""What runs a plan for real and measures it."""
