"""Figures of the papers, drawn again from hardware records: `python -m benchmarks.papers`."""
