"""What chooses plans: costs, memory, strategies, search, explanations."""
