"""DeepSpeed: the configuration of ZeRO-Inference, as its own example makes it."""

import json
from collections.abc import Iterator
from typing import Any

from helmsman.planner.settings.command_flags import FIELD
from helmsman.planner.settings.engine_format import (
    EngineFormat,
    OptionValue,
    ReadSettings,
    SettingsSubject,
    WrittenSettings,
)
from helmsman.planner.settings.llama_cpp import parsed_object
from helmsman.planner.settings.on_accelerator import check_accelerator, host_bytes, host_computes, other_formats
from helmsman.planner.settings.plan_places import PlanPlaces
from helmsman.schemas.engine_settings import Difference
from helmsman.schemas.errors import UsageError

VERSION = "DeepSpeedExamples master, 2026"
"""The example that is followed."""
SOURCE = (
    "deepspeedai/DeepSpeedExamples: inference/huggingface/zero_inference/run_model.py; deepspeed.ai/docs/config-json"
)
"""The example, and the documentation of its keys."""

_ZERO = (
    *("stage", "offload_param", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"),
    *("stage3_max_live_parameters", "stage3_max_reuse_distance", "offload_optimizer", "overlap_comm"),
    *("contiguous_gradients", "reduce_bucket_size", "sub_group_size", "stage3_gather_16bit_weights_on_model_save"),
)
_OTHERS = (
    *("zero_optimization", "fp16", "bf16", "steps_per_print", "train_batch_size", "train_micro_batch_size_per_gpu"),
    *("wall_clock_breakdown", "aio", "weight_quantization", "gradient_accumulation_steps"),
)


def write(places: PlanPlaces) -> WrittenSettings:
    """Return the configuration as JSON. Raises UsageError for a machine without a GPU of its own memory."""
    check_accelerator(places, "DeepSpeed")
    plan, away = places.plan, host_bytes(places)
    stored = {memory.name for memory in plan.hardware.memories if memory.kind == "nvme"}
    wide = plan.model.hidden**2
    zero: dict[str, Any] = {"stage": 3, "stage3_prefetch_bucket_size": 2 * wide}
    zero |= {"stage3_param_persistence_threshold": plan.model.hidden, "stage3_max_live_parameters": 2 * wide}
    if away:
        device = "nvme" if any(rule.memory in stored for rule in plan.residence) else "cpu"
        zero["offload_param"] = {"device": device, "pin_memory": True}
    brain = plan.activations == "bf16" or places.formats[0] == "bf16"
    content: dict[str, Any] = {"fp16": {"enabled": not brain}, "bf16": {"enabled": brain}, "zero_optimization": zero}
    content |= {"train_micro_batch_size_per_gpu": plan.workload.batch, "wall_clock_breakdown": False}
    return WrittenSettings(json.dumps(content, indent=1) + "\n", tuple(_differences(places, away)))


def _differences(places: PlanPlaces, away: int) -> Iterator[Difference]:
    yield from places.differences()
    yield from host_computes(places)
    yield from other_formats(places, "a checkpoint that transformers reads")
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
    for key, known in [*((key, _OTHERS) for key in content), *((key, _ZERO) for key in zero)]:
        if key not in known:
            raise UsageError("no key that is known here", field=FIELD, value=key, remedy="leave it out")
    if zero.get("stage") != 3:
        problem, remedy = "weights are divided or offloaded by stage 3 alone", "use stage 3"
        raise UsageError(problem, field=FIELD, value=zero.get("stage"), remedy=remedy)
    parameters = zero.get("offload_param") or {}
    device = parameters.get("device", "none") if isinstance(parameters, dict) else "none"
    options: dict[str, OptionValue] = {"resident": True} if device == "none" else {}
    unpriced = ["weights come from storage; priced as from host memory"] if device == "nvme" else []
    unpriced += [f"{key} {zero[key]}" for key in ("stage3_max_live_parameters",) if key in zero]
    batch = content.get("train_micro_batch_size_per_gpu", content.get("train_batch_size"))
    sequences = batch if isinstance(batch, int) and not isinstance(batch, bool) and batch > 0 else None
    placed = (f"offload_param {device}", *((f"{sequences} sequences",) if sequences else ()))
    assumed = ("the configuration has no context: that of the question",)
    idle = tuple(key for key in ("steps_per_print", "wall_clock_breakdown") if key in content)
    return ReadSettings(
        "deepspeed", "zero-inference", options, None, sequences, None, placed, assumed, tuple(unpriced), idle
    )


FORMAT = EngineFormat("deepspeed", "zero-inference", VERSION, SOURCE, "file", write, read, "ds_config.json")
