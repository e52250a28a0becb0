"""Speeds of models with experts that others published, beside what Helm says about their machines and placements."""
