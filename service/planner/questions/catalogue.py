"""Models and machines by the names of the catalogue, each read once; a name is never looked for among files."""

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable

from helmsman.hwdb.load_hardware import load_hardware, system_names
from helmsman.hwdb.load_model import catalogue_names, load_model
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.listing import Entry, Kind, Listing
from helmsman.schemas.model import Model
from helmsman.schemas.near_names import close_names

FIRST = "Qwen3-8B", "rtx4060-laptop"
"""Model and machine of a visitor without a link (`page/question.js`)."""

_ROOMS = ("models", "systems", "devices")
"""Folders of the package that have all that a name may stand for."""
_FORMER_PREFIX = "meta-"
"""Meta renamed its repositories: a name with it means the one without."""


class Catalogue:
    """The models and machines that this version of Helm knows by name."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}
        self._machines: dict[str, Hardware] = {}
        self._listings: dict[Kind, Listing] = {}

    def model(self, name: str) -> Model:
        """Return the model of a name, or of a hub id that ends with it. Raises UsageError for one that there is not,
        BadInputError for one that is known not to be covered."""
        key = _key(name)
        if key not in self._models:
            known = self._model_names.get(key)
            if known is None:
                near = close_names(name, catalogue_names())
                remedy = f"did you mean {', '.join(near[:3])}?" if near else "GET /v1/models lists them; or give one"
                raise UsageError("unknown model", field="model", value=name, remedy=remedy)
            self._models[key] = load_model(known)
        return self._models[key]

    def machine(self, name: str) -> Hardware:
        """Return the machine of a name. Raises UsageError for one that there is not."""
        key = name.lower()
        if key not in self._machines:
            if key not in system_names():
                near = close_names(name, system_names())
                remedy = f"did you mean {', '.join(near[:3])}?" if near else "GET /v1/hardware lists them; or give one"
                raise UsageError("unknown hardware", field="hardware", value=name, remedy=remedy)
            self._machines[key] = load_hardware(key, None)
        return self._machines[key]

    def listing(self, kind: Kind, text: str = "") -> Listing:
        """Return the names of a kind that have `text` in them, or in what is said about them."""
        from helmsman.analysis.listing import listing

        if kind not in self._listings:
            self._listings[kind] = listing(kind)
        whole, wanted = self._listings[kind], text.casefold()
        return whole.model_copy(update={"entries": tuple(entry for entry in whole.entries if _has(entry, wanted))})

    @cached_property
    def _model_names(self) -> Mapping[str, str]:
        """By key, the name of every model, of those that are not covered too."""
        uncovered = files("helmsman.hwdb") / "models" / "uncovered"
        names = [*catalogue_names(), *(path.name.removesuffix(".json") for path in uncovered.iterdir())]
        return {_key(name): name for name in names}


def catalogue_digest() -> str:
    """Return a digest of all that names may stand for: an answer for a name holds as long as that does."""
    content = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted(_files(files("helmsman.hwdb") / room), key=lambda path: str(path)):
            content.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return content.hexdigest()


def _files(folder: Traversable) -> Iterator[Traversable]:
    for path in folder.iterdir():
        if path.is_dir():
            yield from _files(path)
        elif path.name.endswith(".json"):
            yield path


def _key(name: str) -> str:
    return name.rpartition("/")[2].casefold().removeprefix(_FORMER_PREFIX)


def _has(entry: Entry, text: str) -> bool:
    return text in entry.name.casefold() or text in entry.about.casefold()
