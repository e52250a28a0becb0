"""Every number of the five papers beside what the product computes of it: `python -m benchmarks.papers.facts`."""
