"""Settings of other engines: the command or file that carries out a plan, and what is predicted for one that was
read."""

from typing import ClassVar, Literal

from helmsman.schemas.base import Document, FilePath, Frozen, Name, Words, version
from helmsman.schemas.comparison import Planned
from helmsman.schemas.engine_names import EngineName


class Difference(Frozen):
    """Something of a plan that an engine's settings cannot say: `what`, and what the engine does `instead`."""

    what: Words
    instead: Words


class EngineSettings(Document):
    """The settings that make an engine carry out a plan.

    `version`, `source`: the engine's, and the documentation that the settings are written from; `form`: a command for a
    shell, or a file, which is best called `file`; `differences`: what they cannot say; `plan`: what was planned;
    `nearest`: what is predicted for the engine with these settings, absent where that cannot be predicted, as
    `unpriced` says."""

    byte_limit: ClassVar[int] = 4 * 2**20
    schema_id: Literal["helm.engine-settings/1"] = version("helm.engine-settings/1")
    engine: EngineName
    version: Name
    source: Words
    form: Literal["command", "file"]
    file: FilePath | None = None
    text: str
    differences: tuple[Difference, ...] = ()
    plan: Planned
    nearest: Planned | None = None
    unpriced: Words | None = None


class SettingsReading(Document):
    """The prediction for settings that were read, beside the best plan for the same question.

    `placed`: the settings that decide the prediction; `assumed`: what they leave open, and what is taken for it;
    `unpriced`: those whose effect is not predicted; `idle`: those without effect on where anything is or how fast it
    is; `because`: the part of a step, or of the prompt, that differs most."""

    schema_id: Literal["helm.settings-reading/1"] = version("helm.settings-reading/1")
    engine: EngineName
    version: Name
    placed: tuple[Words, ...]
    assumed: tuple[Words, ...] = ()
    unpriced: tuple[Words, ...] = ()
    idle: tuple[Words, ...] = ()
    yours: Planned
    best: Planned
    best_strategy: Name
    because: Words
