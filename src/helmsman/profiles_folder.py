"""Where profiles of the machine at hand are kept."""

import os
from pathlib import Path

from helmsman.schemas.errors import UsageError


def profiles_folder() -> Path:
    """Return $XDG_CACHE_HOME/helmsman, or ~/.cache/helmsman. Raises UsageError for a user without a home folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "helmsman"
    except RuntimeError:  # neither HOME nor an entry of this user
        remedy = "set XDG_CACHE_HOME to a folder that can be written"
        raise UsageError("there is no home folder to keep profiles in", remedy=remedy) from None
