"""Clients as quotas, jobs and the log know them: by a key's digest, or by address."""

import hashlib

_DIGITS = 16


def client_of(address: str, key: str | None) -> str:
    """Return the name of who has a key, or else of an address; the key cannot be told from it."""
    if key is None:
        return address
    return f"key-{hashlib.sha256(key.encode()).hexdigest()[:_DIGITS]}"
