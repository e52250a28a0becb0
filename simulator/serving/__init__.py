"""Serving at request level: requests in, one row a request out, and what it adds up to."""
