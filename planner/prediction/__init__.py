"""Predictions: the seconds of a placement by phase and term, their bounds, and their sensitivity to the record."""
