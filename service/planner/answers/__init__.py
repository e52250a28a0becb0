"""Answers: what is said of a plan, the digests that questions are known by, and what is kept of answers."""
