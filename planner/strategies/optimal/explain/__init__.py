"""Explanations of an optimum: active rules and the worth of each, shadow prices, and the fractional optimum."""
