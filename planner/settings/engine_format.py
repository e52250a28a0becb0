"""Defines what a file of an engine offers: its settings written for a plan, and read as a question."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from helmsman.planner.settings.plan_places import PlanPlaces
from helmsman.planner.tensor_formats import Formats
from helmsman.schemas.engine_names import EngineName
from helmsman.schemas.engine_settings import Difference
from helmsman.schemas.formats import KvFormat, StoredFormat
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

OptionValue = str | int | float | bool


@dataclass(frozen=True, slots=True)
class WrittenSettings:
    """A command or the content of a file, and what of the plan it cannot say."""

    text: str
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class SettingsSubject:
    """Holds the subject of settings: the model, the formats of its weights, the machine, and what is asked."""

    model: Model
    weights: StoredFormat
    formats: Formats
    hardware: Hardware
    workload: Workload


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """Settings as a question: a strategy with its options, and the context, batch and format of caches where they say
    them. The texts are those of `SettingsReading`."""

    engine: EngineName
    strategy: str
    options: Mapping[str, OptionValue]
    context: int | None = None
    batch: int | None = None
    kv: KvFormat | None = None
    placed: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()
    idle: tuple[str, ...] = field(default_factory=tuple)


def _no_variants(_: str) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class EngineFormat:
    """Describes the settings of an engine. `strategy`: the one whose plans are its own; `version`, `source`: of the
    documentation that `write` and `read` follow; `form`, `file`: as in `EngineSettings`. `write` raises UsageError for
    a plan of which nothing can be said, `read` for what are no settings of it; `variants` of settings that were written
    differ in one choice that is not the plan's, but the engine's. `own_options`: options of the strategy with which its
    plans can be said, the best first; `expert_options`: those for models with experts, where they are others."""

    name: EngineName
    strategy: str
    version: str
    source: str
    form: Literal["command", "file"]
    write: Callable[[PlanPlaces], WrittenSettings]
    read: Callable[[str, SettingsSubject], ReadSettings]
    file: str | None = None
    variants: Callable[[str], tuple[str, ...]] = _no_variants
    own_options: tuple[Mapping[str, OptionValue], ...] = ({},)
    expert_options: tuple[Mapping[str, OptionValue], ...] = ()
