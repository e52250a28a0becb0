"""A load generator: requests replayed in time against any server with OpenAI's interface, and what they waited for."""
