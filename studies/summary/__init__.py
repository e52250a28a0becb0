"""Sums up the rows of a study: prices, ranking, answers, sensitivity."""
