"""Reads `config.json`: one file per family of models, the parts they share, and an account of keys."""
