"""OpenAI's interface over HTTP before an engine, and a client that replays requests against such servers."""
