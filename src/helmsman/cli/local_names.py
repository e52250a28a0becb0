"""Types of arguments that name a model: `local:NAME` is one that is on the disk already."""

from pathlib import Path


def model_argument(text: str) -> str:
    """Return a model's name, or the path of one that is on the disk. Raises UsageError for `local:` names of none."""
    from helmsman.models_here import model_place

    return model_place(text)


def checkpoint_argument(text: str) -> Path:
    """Return the path of a checkpoint, or of the model on the disk that `local:` names. Raises UsageError where there
    is none."""
    return Path(model_argument(text) if text.startswith("local:") else text)
