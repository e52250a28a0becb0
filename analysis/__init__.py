"""Analysis of plans and traces: predicted, simulated and measured seconds compared, strategies compared, pictures."""
