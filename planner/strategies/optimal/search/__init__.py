"""The search: candidate block counts, their orders, and the full predictions that choose among finalists."""
