"""LM Studio: the configuration with which its SDK loads a model (`client.llm.load(model, {config})`)."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from helmsman.planner.settings.command_flags import FIELD
from helmsman.planner.settings.engine_format import (
    EngineFormat,
    OptionValue,
    ReadSettings,
    SettingsSubject,
    WrittenSettings,
)
from helmsman.planner.settings.llama_cpp import kv_differences, micro_batch, parsed_object
from helmsman.planner.settings.llama_places import LlamaPlaces
from helmsman.planner.settings.plan_places import HOST, PlanPlaces
from helmsman.schemas.engine_settings import Difference
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import KvFormat

VERSION = "lmstudio-js 6ec11db"
"""The commit 6ec11db19bf43ea8dab9e4c2014f46f054822b1f of lmstudio-ai/lmstudio-js that names are from."""
SOURCE = "lmstudio-ai/lmstudio-js: packages/lms-shared-types/src/llm/LLMLoadModelConfig.ts"
"""The document of that commit."""

_CACHES: Mapping[str, KvFormat] = {
    "f32": "f32", "f16": "f16", "q8_0": "q8_0", "q4_0": "q8_0", "q4_1": "q8_0", "iq4_nl": "q8_0", "q5_0": "q8_0",
    "q5_1": "q8_0",
}  # fmt: skip
"""Formats of caches, and the one that each is priced as."""

_PLACED = (
    *("gpu", "contextLength", "evalBatchSize", "physicalBatchSize", "llamaKCacheQuantizationType"),
    *("llamaVCacheQuantizationType", "maxParallelPredictions", "useUnifiedKvCache"),
)
_UNPRICED = (
    *("flashAttention", "offloadKVCacheToGpu", "keepModelInMemory", "tryMmap", "tryDirectIO", "numExperts"),
    *("gpuStrictVramCap", "useFp16ForKVCache", "contextCheckpoints", "mlxKvCacheQuantization", "speculativeDraftMtp"),
    *("speculativeDraftSimple", "speculativeDraftModel", "speculativeDraftMaxTokens", "speculativeDraftMinTokens"),
    "speculativeDraftMinContinueProbability",
)
_AS_PRICED: Mapping[str, object] = {"flashAttention": True, "offloadKVCacheToGpu": True}
"""The values that a prediction assumes."""
_IDLE = (
    *("seed", "ropeFrequencyBase", "ropeFrequencyScale", "promptTemplate", "reasoningBudgetMessage", "mlxDiskCache"),
)
_GPU = ("ratio", "numCpuExpertLayersRatio", "mainGpu", "splitStrategy", "disabledGpus")


def write(places: PlanPlaces) -> WrittenSettings:
    """Return the configuration as JSON."""
    own, plan = LlamaPlaces(places), places.plan
    kind = places.nearest_kv_format if places.nearest_kv_format in _CACHES else "f16"
    gpu: dict[str, Any] = {"ratio": _share(own.slots, plan.model.layers + 1)}
    if own.expert_layers:
        gpu["numCpuExpertLayersRatio"] = _share(own.expert_layers, plan.model.layers)
    content = {
        "gpu": gpu,
        "contextLength": plan.workload.context,
        "evalBatchSize": micro_batch(places),
        "physicalBatchSize": micro_batch(places),
        "maxParallelPredictions": plan.workload.batch,
        "useUnifiedKvCache": plan.workload.batch == 1,
        "flashAttention": plan.schedule.attention == "whole" or kind not in ("f32", "f16"),
        "offloadKVCacheToGpu": not own.slots or any(side != HOST for side in places.caches),
        "llamaKCacheQuantizationType": kind,
        "llamaVCacheQuantizationType": kind,
    }
    return WrittenSettings(json.dumps(content, indent=1) + "\n", tuple(_differences(own)))


def _context(content: Mapping[str, Any]) -> int | None:
    """Return the tokens of a sequence: all of the caches, or an even part where predictions share them."""
    tokens, parallel = _count(content, "contextLength"), _count(content, "maxParallelPredictions") or 1
    return tokens if tokens is None or content.get("useUnifiedKvCache") is False else max(1, tokens // parallel)


def _share(count: int, of: int) -> float | str:
    return "max" if count == of else "off" if not count else round(count / of, 4)


def _differences(own: LlamaPlaces) -> Iterator[Difference]:
    yield from own.differences()
    if own.overrides:
        what = f"tensors that are elsewhere than their layers ({len(own.overrides)} patterns)"
        yield Difference(what=what, instead="a layer is in one place, but for its experts")
    if len(own.counts) > 1 and own.slots and own.counts[0] != own.slots:
        what = f"layers are divided {','.join(map(str, own.counts))} between accelerators"
        yield Difference(what=what, instead="LM Studio divides them evenly, or fills the first one first")
    yield from kv_differences(own.places, tuple(_CACHES))


def read(text: str, subject: SettingsSubject) -> ReadSettings:
    """Return a configuration as a question. Raises UsageError for keys that are not known, by name."""
    content = parsed_object(text, "the configuration")
    for key in content:
        if key not in (*_PLACED, *_UNPRICED, *_IDLE):
            problem, remedy = "no key of LM Studio's load configuration that is known here", "leave it out"
            raise UsageError(problem, field=FIELD, value=key, remedy=remedy)
    kind = content.get("llamaKCacheQuantizationType") or "f16"
    if kind not in _CACHES:
        remedy = f"use one of {', '.join(_CACHES)}"
        raise UsageError("no format of LM Studio's caches", field=FIELD, value=kind, remedy=remedy)
    unpriced = [f"{key} {content[key]}" for key in _UNPRICED if key in content and content[key] != _AS_PRICED.get(key)]
    unpriced += [f"caches in {kind}, priced as {_CACHES[kind]}"] if _CACHES[kind] != kind else []
    return ReadSettings(
        "lm-studio", "llama-cpp", _options(content, subject), _context(content),
        _count(content, "maxParallelPredictions"), _CACHES[kind],
        tuple(f"{key} {content[key]}" for key in _PLACED if key in content),
        () if "contextLength" in content else ("contextLength is left out: the context of the question",),
        tuple(unpriced), tuple(f"{key} {content[key]}" for key in _IDLE if key in content),
    )  # fmt: skip


def _options(content: Mapping[str, Any], subject: SettingsSubject) -> dict[str, OptionValue]:
    gpu, layers = content.get("gpu", {}), subject.model.layers
    if not isinstance(gpu, dict) or any(key not in _GPU for key in gpu):
        raise UsageError("no settings of GPUs", field=FIELD, value=gpu, remedy=f"use {', '.join(_GPU)}")
    whole = _count(content, "evalBatchSize") or 512
    options: dict[str, OptionValue] = {"ubatch": min(whole, _count(content, "physicalBatchSize") or whole)}
    away = _of(gpu, "numCpuExpertLayersRatio", layers) if "numCpuExpertLayersRatio" in gpu else 0
    if away:
        options["n_cpu_moe"] = away
    if any(device.kind != "cpu" for device in subject.hardware.devices):
        return options | {"ngl": _of(gpu, "ratio", layers + 1) if "ratio" in gpu else layers + 1}
    return options | {"ngl": 0}


def _of(gpu: Mapping[str, Any], key: str, whole: int) -> int:
    value = {"max": 1.0, "off": 0.0}.get(str(gpu[key]), gpu[key])
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UsageError(f"not a share: gpu.{key}", field=FIELD, value=gpu[key], remedy="use max, off, or 0 to 1")
    return round(value * whole)


def _count(content: Mapping[str, Any], key: str) -> int | None:
    value = content.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise UsageError(f"not a number of {key}", field=FIELD, value=value, remedy="use 1 or more")
    return value


FORMAT = EngineFormat(
    "lm-studio", "llama-cpp", VERSION, SOURCE, "file", write, read, "load-config.json",
    expert_options=({}, {"cpu_moe": True}),
)  # fmt: skip
