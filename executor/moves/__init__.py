"""What crosses in a pass: weights, keys and values, activations, rows of tables."""
