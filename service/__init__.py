"""Serving over HTTP: `inference` answers with an engine, `planner` plans."""
