"""The engines by name, and whose settings a text has."""

import re
from importlib import import_module
from typing import Any

from helmsman.planner.settings.command_flags import FIELD, words_of
from helmsman.planner.settings.engine_format import EngineFormat, ReadSettings, SettingsSubject, WrittenSettings
from helmsman.planner.settings.plan_places import PlanPlaces
from helmsman.schemas.engine_names import ENGINES, EngineName
from helmsman.schemas.engine_settings import EngineSettings
from helmsman.schemas.errors import UsageError
from helmsman.schemas.near_names import did_you_mean
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document

_OF_STRATEGY: dict[str, EngineName] = {
    "llama-cpp": "llama.cpp", "vllm": "vllm", "accelerate": "accelerate", "zero-inference": "deepspeed",
    "ktransformers": "ktransformers", "freetoken": "freetoken",
}  # fmt: skip
"""The engines whose plans strategies make."""

_KEYS: tuple[tuple[str, EngineName], ...] = (
    ("zero_optimization", "deepspeed"), ("default_generation_settings", "llama.cpp"), ("dtype_kernels", "freetoken"),
    ("contextLength", "lm-studio"), ("evalBatchSize", "lm-studio"), ("gpu", "lm-studio"),
)  # fmt: skip
"""Keys by which a JSON document is known; one without any of them is a device map."""

_PROGRAMS: tuple[tuple[str, EngineName], ...] = (
    (r"--kt-", "ktransformers"), (r"\bsglang\b", "sglang"), (r"(^|/)vllm\b|vllm\.entrypoints", "vllm"),
    (r"^ft (serve|info) ", "freetoken"),
    (r"exllamav3|\s-(mcl|mcs|cs|cq)\s|\s--(moe_cpu|cache_size|cache_quant)", "exllamav3"),
)  # fmt: skip
"""What commands are known by, tried in turn; others are llama.cpp's."""


_DOCUMENT = re.compile(r'"schema"\s*:\s*"helm\.')
"""Matches what every document of Helm's has, and no settings of an engine have."""


def engine_format(name: str) -> EngineFormat:
    """Return an engine by its name. Raises UsageError where there is none."""
    if name not in ENGINES:
        raise UsageError("no such engine", field="emit", value=name, remedy=did_you_mean(name, ENGINES))
    module: Any = import_module(f"helmsman.planner.settings.{name.replace('.', '_').replace('-', '_')}")
    result: EngineFormat = module.FORMAT
    return result


def written(plan: Plan, engine: str) -> WrittenSettings:
    """Return a plan's settings for an engine. Raises UsageError for one that cannot say anything of it."""
    return engine_format(engine).write(PlanPlaces(plan))


def own_engine(plan: Plan) -> EngineName | None:
    """Return the engine whose plan it is; None for a plan of another strategy."""
    return _OF_STRATEGY.get(plan.strategy.name)


def settings_in(text: str) -> str:
    """Return the engine's settings in a document of Helm's; another text as it is. Raises BadInputError for a document
    of Helm's that holds none."""
    if text.lstrip().startswith("{") and _DOCUMENT.search(text):
        return parse_document(EngineSettings, text.encode(), FIELD).text
    return text


def engine_of(text: str) -> EngineName:
    """Return the engine whose settings a text has. Raises UsageError for an empty text."""
    plain = text.strip()
    if not plain:
        remedy = "give a command, a file, or the address of a llama-server"
        raise UsageError("no settings", field=FIELD, remedy=remedy)
    if plain.startswith("{"):
        return next((engine for key, engine in _KEYS if f'"{key}"' in plain), "accelerate")
    if re.search(r"^(?i:from)\s+\S+\s*$", plain, re.MULTILINE):
        return "ollama"
    if re.search(r"^Host \d+ \d+ \d+ *$", plain, re.MULTILINE):
        return "llama.cpp"
    command = " ".join(words_of(plain))
    return next((engine for pattern, engine in _PROGRAMS if re.search(pattern, command)), "llama.cpp")


def read_text(text: str, subject: SettingsSubject) -> ReadSettings:
    """Return settings as a question. Raises what the engine's reader raises."""
    return engine_format(engine_of(text)).read(text, subject)
