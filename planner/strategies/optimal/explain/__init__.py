"""Why the best plan is the best: active rules and what each is worth, shadow prices, what divides."""
