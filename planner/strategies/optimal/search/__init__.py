"""From prices to a plan: block counts, their orders, and the predictions that decide."""
