"""Models that are on this machine's disk, by the names that commands and questions take."""

from helmsman.hwdb.load_model import entry_name, model_file
from helmsman.schemas.detected import LocalModel
from helmsman.schemas.errors import UsageError

_LOCAL = "local:"


def models_here() -> tuple[LocalModel, ...]:
    """Return the models in the folders of Hugging Face, Ollama, LM Studio and llama.cpp."""
    from helmsman.detection.local_models import find_models
    from helmsman.detection.system import ObservedSystem

    return find_models(ObservedSystem.here())


def model_place(name: str) -> str:
    """Return the path of the model on the disk that `name` means, behind `local:` or where neither the catalogue nor a
    file is called so; `name` itself for any other. Raises UsageError where several models are called so, and where
    none is that `local:` asks for."""
    if not name.startswith(_LOCAL) and (_is_catalogued(name) or model_file(name) is not None):
        return name
    from helmsman.detection.local_models import named_model

    model = named_model(name, models_here())
    return name if model is None else model.path


def _is_catalogued(name: str) -> bool:
    """Whether the catalogue has a model of this name, or several."""
    try:
        return entry_name(name) is not None
    except UsageError:
        return True
