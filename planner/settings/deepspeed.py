"""DeepSpeed: the configuration of ZeRO-Inference, with the keys of its own example.

Weights in storage need a folder (`nvme_path`, which Helm does not know: the one of DeepSpeed's documentation stands for
yours) and buffers that hold the largest tensor."""

import json
from collections.abc import Iterator
from math import prod
from typing import Any

from helmsman.lowering.tensors import tensors
from helmsman.planner.settings.command_flags import FIELD
from helmsman.planner.settings.engine_format import (
    EngineFormat,
    OptionValue,
    ReadSettings,
    SettingsSubject,
    WrittenSettings,
)
from helmsman.planner.settings.llama_cpp import parsed_object
from helmsman.planner.settings.on_accelerator import (
    check_accelerator,
    host_bytes,
    host_computes,
    other_formats,
    plain_caches,
)
from helmsman.planner.settings.plan_places import PlanPlaces
from helmsman.schemas.engine_settings import Difference
from helmsman.schemas.errors import UsageError

VERSION = "0.19.6 (edaa722), examples 45b4b71"
"""The commits edaa7221267243c7be7fb49c5d5f5c4fb97b4641 of deepspeedai/DeepSpeed, and
45b4b7156c8794a3452a5a7d03dbd8d797068569 of deepspeedai/DeepSpeedExamples."""
SOURCE = (
    "deepspeedai/DeepSpeed: deepspeed/runtime/zero/{config,offload_config}.py, deepspeed/runtime/constants.py; "
    "deepspeedai/DeepSpeedExamples: inference/huggingface/zero_inference/run_model.py"
)
"""The keys and what they mean, and the example that sets them for inference."""

_ZERO = (
    *("stage", "offload_param", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"),
    *("stage3_model_persistence_threshold", "stage3_max_live_parameters", "stage3_max_reuse_distance"),
    *("stage3_module_granularity_threshold", "stage3_use_all_reduce_for_fetch_params", "stage3_allgather_sequential"),
    *("stage3_gather_16bit_weights_on_model_save", "offload_optimizer", "overlap_comm", "contiguous_gradients"),
    *("reduce_bucket_size", "reduce_scatter", "allgather_bucket_size", "allgather_partitions", "sub_group_size"),
)
_OFFLOAD = ("device", "nvme_path", "buffer_count", "buffer_size", "max_in_cpu", "pin_memory")
_OTHERS = (
    *("zero_optimization", "fp16", "bf16", "steps_per_print", "train_batch_size", "train_micro_batch_size_per_gpu"),
    *("wall_clock_breakdown", "aio", "weight_quantization", "gradient_accumulation_steps"),
)
_FOLDER = "/local_nvme"
"""The folder of the example in docs/_pages/config-json.md."""
_BUFFERS = 5
"""The default of `buffer_count`, which the example has for most models."""


def write(places: PlanPlaces) -> WrittenSettings:
    """Return the configuration as JSON. Raises UsageError for a machine without a GPU of its own memory."""
    check_accelerator(places, "DeepSpeed")
    plan, away = places.plan, host_bytes(places)
    wide = plan.model.hidden**2
    zero: dict[str, Any] = {"stage": 3, "stage3_prefetch_bucket_size": 2 * wide}
    zero |= {"stage3_param_persistence_threshold": plan.model.hidden, "stage3_max_live_parameters": 2 * wide}
    if away:
        device = "nvme" if _in_storage(places) else "cpu"
        zero["offload_param"] = {"device": device, "pin_memory": True}
        if device == "nvme":
            zero["offload_param"] |= {"nvme_path": _FOLDER, "buffer_count": _BUFFERS, "buffer_size": _largest(places)}
    brain = plan.activations == "bf16" or places.formats[0] == "bf16"
    content: dict[str, Any] = {"fp16": {"enabled": not brain}, "bf16": {"enabled": brain}, "zero_optimization": zero}
    content |= {"train_batch_size": plan.workload.batch, "wall_clock_breakdown": False}
    return WrittenSettings(json.dumps(content, indent=1) + "\n", tuple(_differences(places, away)))


def _in_storage(places: PlanPlaces) -> bool:
    stored = {memory.name for memory in places.plan.hardware.memories if memory.kind == "nvme"}
    return any(rule.memory in stored for rule in places.plan.residence)


def _largest(places: PlanPlaces) -> int:
    """Return the elements of the largest tensor of a checkpoint, where an expert is one."""
    return max(prod(tensor.shape[1:] if tensor.stacked else tensor.shape) for tensor in tensors(places.plan.model))


def _differences(places: PlanPlaces, away: int) -> Iterator[Difference]:
    yield from places.differences()
    yield from host_computes(places)
    yield from other_formats(places, "a checkpoint that transformers reads")
    yield from plain_caches(places)
    if away and _in_storage(places):
        yield Difference(what="weights are in storage", instead=f"the folder {_FOLDER} stands for one of yours")
    whole = sum(use.weights for use in places.plan.predicted.memory)
    if away and places.plan.strategy.name != "zero-inference" and away < 0.99 * whole:
        what = f"{1 - away / whole:.0%} of the weights stay on the accelerator".replace("%", " %")
        yield Difference(what=what, instead="every matrix comes over the link in every pass")


def read(text: str, subject: SettingsSubject) -> ReadSettings:
    """Return a configuration as a question. Raises UsageError for keys that are not known, by name."""
    content = parsed_object(text, "the configuration")
    zero = content.get("zero_optimization")
    if not isinstance(zero, dict):
        raise UsageError("no zero_optimization", field=FIELD, remedy="give DeepSpeed's configuration of inference")
    parameters = zero.get("offload_param") or {}
    inner = parameters if isinstance(parameters, dict) else {}
    levels = ((content, _OTHERS), (zero, _ZERO), (inner, _OFFLOAD))
    for key, known in [(key, known) for level, known in levels for key in level]:
        if key not in known:
            raise UsageError("no key that is known here", field=FIELD, value=key, remedy="leave it out")
    if zero.get("stage") != 3:
        problem, remedy = "weights are divided or offloaded by stage 3 alone", "use stage 3"
        raise UsageError(problem, field=FIELD, value=zero.get("stage"), remedy=remedy)
    device = inner.get("device", "none")
    options: dict[str, OptionValue] = {"resident": True} if device == "none" else {}
    unpriced = ["weights come from storage; priced as from host memory"] if device == "nvme" else []
    unpriced += [f"{key} {zero[key]}" for key in ("stage3_max_live_parameters",) if key in zero]
    unpriced += [key for key in ("weight_quantization", "aio") if key in content]
    batch = content.get("train_micro_batch_size_per_gpu", content.get("train_batch_size"))
    sequences = batch if isinstance(batch, int) and not isinstance(batch, bool) and batch > 0 else None
    placed = (f"offload_param {device}", *((f"{sequences} sequences",) if sequences else ()))
    assumed = ("the configuration has no context: that of the question",)
    idle = tuple(key for key in ("steps_per_print", "wall_clock_breakdown") if key in content)
    return ReadSettings(
        "deepspeed", "zero-inference", options, None, sequences, "f16", placed, assumed, tuple(unpriced), idle
    )


FORMAT = EngineFormat("deepspeed", "zero-inference", VERSION, SOURCE, "file", write, read, "ds_config.json")
