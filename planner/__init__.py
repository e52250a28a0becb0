"""The planner chooses plans: costs, memory, strategies, search, explanations."""
