"""Readers of request files and traces, one file a format; all give `Requests`."""
