"""Reads `config.json`, with one file per family of models that are alike."""
