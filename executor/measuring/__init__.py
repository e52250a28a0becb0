"""Measured runs: executions with timestamps and probes beside them, and the reports that commands print."""
