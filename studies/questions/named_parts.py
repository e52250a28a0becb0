"""The models and machines that a study names: read once, changed as its points ask, and told apart by content."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

from helmsman import __version__, library
from helmsman.hwdb.edits import AS_IT_IS, edited
from helmsman.hwdb.engine_constants import constants_digest
from helmsman.planner.registry import ENGINES
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan_question import ComposedMachine
from helmsman.schemas.read import digest, read_bytes
from helmsman.schemas.study import Study, StudyServing
from helmsman.simulator.serving.requests.synthetic import PREFIX
from helmsman.studies.questions.points import Machine, StudyPoint

_MOST_BYTES = 2**33
"""The largest file of requests."""


@dataclass(frozen=True)
class Machines:
    """Reads machines, and the models for them, and makes changed machines, each once."""

    kept: dict[tuple[Machine, str], Hardware | UsageError] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)

    @classmethod
    def of(cls, plain: Iterable[tuple[Machine, Hardware]], models: Iterable[tuple[str, Model]] = ()) -> "Machines":
        """Return the reader that knows some machines as they are, and some models."""
        return cls({(machine, AS_IT_IS): hardware for machine, hardware in plain}, dict(models))

    def machine(self, point: StudyPoint) -> Hardware:
        """Return the changed machine of a point. Raises UsageError for a change that makes no sense of it."""
        place = point.machine, point.change
        if place not in self.kept:
            self.kept[place] = _changed(self.plain(point.machine), point.change)
        hardware = self.kept[place]
        if isinstance(hardware, UsageError):
            raise hardware
        return hardware

    def model(self, name: str) -> Model:
        """Return a model. Raises UsageError and BadInputError for one that there is not."""
        if name not in self.models:
            with field_of_study("models"):
                self.models[name] = library.load_model(name)
        return self.models[name]

    def plain(self, machine: Machine) -> Hardware:
        """Return a machine as it is. Raises UsageError and BadInputError for one that there is not."""
        place = machine, AS_IT_IS
        if place not in self.kept:
            self.kept[place] = machine_of(machine)
        hardware = self.kept[place]
        assert isinstance(hardware, Hardware), "only changes can make no sense"
        return hardware


def machine_of(machine: Machine) -> Hardware:
    """Return the machine of a name, a record's file or parts. Raises UsageError and BadInputError."""
    with field_of_study("machines"):
        return _composed(machine) if isinstance(machine, ComposedMachine) else library.load_hardware(machine)


def _composed(parts: ComposedMachine) -> Hardware:
    """Return the machine of parts. Raises UsageError whose message begins with the part that is wrong."""
    try:
        return library.compose_hardware(parts.cpu, parts.ram, parts.gpu, parts.link, parts.peer, parts.memory)
    except UsageError as error:
        error.message = f"{error.field}: {error.message}" if error.field else error.message
        raise


@contextmanager
def field_of_study(field: str) -> Iterator[None]:
    """Name the field of the study in errors about a value that stands there."""
    try:
        yield
    except UsageError as error:
        error.field = field
        raise


@lru_cache(maxsize=256)
def machine_name(machine: Machine) -> str:
    """Return the name of a machine in tables and prices: as the study has it, or that of its parts."""
    return machine_of(machine).name if isinstance(machine, ComposedMachine) else machine


def keyed(study: Study, points: Sequence[StudyPoint], machines: Machines) -> Iterator[tuple[str, StudyPoint]]:
    """Yield every point after the digest of all that its answer rests on: the question, the documents of the model and
    the machine, the constants of engines, who is served, and Helm's version.

    Raises UsageError and BadInputError for models and machines that there are not."""
    models = {name: digest(machines.model(name)) for name in dict.fromkeys(point.model for point in points)}
    records = {machine: digest(machines.plain(machine)) for machine in dict.fromkeys(point.machine for point in points)}
    engines = {engine: constants_digest(engine) for engine in ENGINES}
    files = {} if study.serving is None else dict(_requests(study.serving))
    for point in points:
        of = {**point.stated, "machine": records[point.machine], "model": models[point.model]}
        served = None if study.serving is None else _served(study.serving, point, files)
        stated = {"version": __version__, "engines": engines, "serving": served, "named": point.model, "point": of}
        yield hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest(), point


def _served(serving: StudyServing, point: StudyPoint, files: Mapping[str, str]) -> dict[str, object]:
    """Return who is served and within which SLO, requests by their content."""
    drawn = {"arrivals": serving.arrivals, "limit": serving.limit, "seed": serving.seed}
    return {**asdict(point.served), **drawn, "slo": point.slo, "requests": files[str(point.served.requests)]}


def _requests(serving: StudyServing) -> Iterator[tuple[str, str]]:
    """Yield requests with what they are: the digest of a file, or the line that describes them."""
    for requests in serving.requests:
        if requests.startswith(PREFIX):
            yield requests, requests
        else:
            yield requests, hashlib.sha256(read_bytes(Path(requests), _MOST_BYTES)).hexdigest()


def _changed(plain: Hardware, change: str) -> Hardware | UsageError:
    try:
        return edited(plain, change)
    except UsageError as error:
        return error
