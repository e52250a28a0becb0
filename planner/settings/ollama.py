"""Ollama: a Modelfile, and in its comments the environment of the server, which has the format of caches.

Ollama starts llama.cpp's server: `num_ctx` are its tokens of a slot, `num_gpu` is `-ngl`, `num_batch` is both `-b` and
`-ub`, `num_thread` is `-t`, OLLAMA_NUM_PARALLEL is `-np`."""

import re
import shlex
from collections.abc import Iterator, Mapping

from helmsman.planner.settings.command_flags import FIELD
from helmsman.planner.settings.engine_format import (
    EngineFormat,
    OptionValue,
    ReadSettings,
    SettingsSubject,
    WrittenSettings,
)
from helmsman.planner.settings.llama_cpp import kv_differences, micro_batch, model_file
from helmsman.planner.settings.llama_places import LlamaPlaces
from helmsman.planner.settings.plan_places import PlanPlaces
from helmsman.schemas.engine_settings import Difference
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import KvFormat

VERSION = "fb30760"
"""The commit fb30760996871fa9460115c753afd2c60d4ab0f7 of ollama/ollama, after 0.33.0-rc2, that parameters are from."""
SOURCE = (
    "ollama/ollama: api/types.go (Options), parser/parser.go, llm/llama_server.go, envconfig/config.go, docs/faq.mdx"
)
"""The documents of that commit: parameters, instructions, what llama.cpp's server is started with, the environment."""

_CACHES: Mapping[str, KvFormat] = {"f16": "f16", "q8_0": "q8_0", "q4_0": "q8_0"}
"""Values of OLLAMA_KV_CACHE_TYPE, and the format that each is priced as."""

_PLACED = ("num_ctx", "num_gpu", "num_batch")
_UNPRICED = frozenset({"num_thread", "use_mmap", "main_gpu", "draft_num_predict"})
_IDLE = frozenset(
    {
        "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_last_n", "repeat_penalty", "presence_penalty",
        "frequency_penalty", "seed", "stop", "num_predict", "num_keep",
    }
)  # fmt: skip
_DROPPED = frozenset(
    {
        "penalize_newline", "low_vram", "f16_kv", "logits_all", "vocab_only", "use_mlock", "mirostat", "mirostat_tau",
        "mirostat_eta",
    }
)  # fmt: skip
"""Parameters that Ollama takes with a warning, and does without."""
_INSTRUCTIONS = (
    *("FROM", "PARAMETER", "TEMPLATE", "SYSTEM", "ADAPTER", "DRAFT", "LICENSE", "MESSAGE", "RENDERER", "PARSER"),
    "REQUIRES",
)
_TEXT = re.compile(r'"""(?s:.*?)"""')
"""Texts of several lines, as templates are."""


def write(places: PlanPlaces) -> WrittenSettings:
    """Return the Modelfile."""
    own, work = LlamaPlaces(places), places.plan.workload
    kind = places.nearest_kv_format if places.nearest_kv_format in ("f16", "q8_0") else "f16"
    lines = [
        "# the environment of the server:",
        f"# OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE={kind} OLLAMA_NUM_PARALLEL={work.batch} ollama serve",
        f"FROM ./{model_file(places)}",
        f"PARAMETER num_ctx {work.context}",
        f"PARAMETER num_gpu {own.slots}",
        f"PARAMETER num_batch {micro_batch(places)}",
        *([] if places.threads is None else [f"PARAMETER num_thread {places.threads}"]),
    ]
    return WrittenSettings("\n".join(lines) + "\n", tuple(_differences(own)))


def _differences(own: LlamaPlaces) -> Iterator[Difference]:
    yield from own.differences()
    if own.expert_layers:
        what = f"experts of the first {own.expert_layers} layers are in RAM beside layers on the accelerator"
        yield Difference(
            what=what, instead="a layer is on the accelerator whole: Ollama has no parameter for its parts"
        )
    if own.overrides:
        what = f"tensors that are elsewhere than their layers ({len(own.overrides)} patterns)"
        yield Difference(what=what, instead="a layer is in one place")
    if len(own.counts) > 1 and own.slots:
        what = f"layers are divided {','.join(map(str, own.counts))} between accelerators"
        yield Difference(what=what, instead="Ollama divides them by free memory")
    yield from kv_differences(own.places, ("f16", "q8_0"))


def read(text: str, subject: SettingsSubject) -> ReadSettings:
    """Return a Modelfile as a question. Raises UsageError for parameters that are not known, by name."""
    parameters = dict(_parameters(text))
    environment = dict(re.findall(r"\b(OLLAMA_[A-Z_]+)=(\S+)", text))
    kind = environment.get("OLLAMA_KV_CACHE_TYPE", "f16")
    if kind not in _CACHES:
        remedy = f"use one of {', '.join(_CACHES)}"
        raise UsageError("no format of Ollama's caches", field=FIELD, value=kind, remedy=remedy)
    options, assumed = _options(parameters, subject)
    parallel = _number("OLLAMA_NUM_PARALLEL", environment.get("OLLAMA_NUM_PARALLEL", "0"))
    if not parallel and subject.workload.batch > 1:
        parallel = 1
        assumed.append("OLLAMA_NUM_PARALLEL is left out: 1, Ollama's own")
    context = _number("num_ctx", parameters["num_ctx"]) if "num_ctx" in parameters else None
    if context is None:
        assumed.append("num_ctx is left out: the context of the question")
    decided = {name: value for name, value in parameters.items() if name in _PLACED}
    unpriced = [f"{name} {value}" for name, value in parameters.items() if name in _UNPRICED]
    unpriced += ["OLLAMA_FLASH_ATTENTION 0"] if environment.get("OLLAMA_FLASH_ATTENTION") in ("0", "false") else []
    unpriced += [f"caches in {kind}, priced as {_CACHES[kind]}"] if kind == "q4_0" else []
    return ReadSettings(
        "ollama", "llama-cpp", options, context, parallel or None, _CACHES[kind],
        tuple(f"{name} {value}" for name, value in (decided | environment).items()), tuple(assumed), tuple(unpriced),
        tuple(f"{name} {value}" for name, value in parameters.items() if name in _IDLE | _DROPPED),
    )  # fmt: skip


def _options(parameters: Mapping[str, str], subject: SettingsSubject) -> tuple[dict[str, OptionValue], list[str]]:
    micro = _number("num_batch", parameters.get("num_batch", "512"))
    options: dict[str, OptionValue] = {"ubatch": max(1, micro)}
    number = parameters.get("num_gpu", "-1")
    if number == "-1":
        fits = any(device.kind != "cpu" for device in subject.hardware.devices)
        assumed = "num_gpu is left out: layers where llama.cpp's --fit puts them"
        return options | ({"fit": True} if fits else {"ngl": 0}), [assumed]
    return options | {"ngl": min(_number("num_gpu", number), subject.model.layers + 1)}, []


def _parameters(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a Modelfile."""
    for line in _TEXT.sub('""', text).splitlines():
        words = line.split(maxsplit=2)
        if not words or words[0].startswith("#"):
            continue
        instruction = words[0].upper()
        if instruction not in _INSTRUCTIONS:
            remedy = f"write one of {', '.join(_INSTRUCTIONS)}"
            raise UsageError("no instruction of a Modelfile", field=FIELD, value=words[0], remedy=remedy)
        if instruction != "PARAMETER":
            continue
        name = words[1].lower() if len(words) == 3 else ""
        if name not in {*_PLACED, *_UNPRICED, *_IDLE, *_DROPPED}:
            problem, remedy = "no parameter of Ollama that is known here", "leave it out"
            raise UsageError(problem, field=FIELD, value=" ".join(words[1:]), remedy=remedy)
        yield name, " ".join(shlex.split(words[2])) or words[2]


def _number(name: str, value: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value):
        raise UsageError(f"not a number of {name}", field=FIELD, value=value, remedy="write a whole number")
    return int(value)


FORMAT = EngineFormat(
    "ollama", "llama-cpp", VERSION, SOURCE, "file", write, read, "Modelfile", expert_options=({"n_cpu_moe": 0},)
)
