"""Serving over HTTP: OpenAI's interface before an engine, and a client that replays requests against such servers."""
