"""What the rows of a study say together."""
