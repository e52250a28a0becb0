"""Measurements and demonstrations that are too slow or too statistical for tests."""
