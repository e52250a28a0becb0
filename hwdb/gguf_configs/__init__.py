"""Translations of GGUF metadata to the keys of a `config.json`, one file per family of architectures, so that one
reader describes a model whichever file states it."""
