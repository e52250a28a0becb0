"""ktransformers: the command of its build of SGLang's server, with kt-kernel's flags.

Experts by frequency need a file of recorded activations (`--init-expert-location`)."""

import shlex
from collections.abc import Iterator

from helmsman.lowering.tensors import tensors
from helmsman.planner.settings.command_flags import (
    FIELD,
    CommandGrammar,
    GivenFlag,
    flags,
    flags_after_program,
    number_of,
    texts,
    whole_number,
    words_of,
)
from helmsman.planner.settings.engine_format import (
    EngineFormat,
    OptionValue,
    ReadSettings,
    SettingsSubject,
    WrittenSettings,
)
from helmsman.planner.settings.host_threads import fewer_threads, threads_are_priced
from helmsman.planner.settings.on_accelerator import check_accelerator, other_formats
from helmsman.planner.settings.plan_places import HOST, PlanPlaces
from helmsman.planner.settings.sglang import COMMON_FLAGS, cards_of_command, cards_words, eight_bits, server_words
from helmsman.planner.settings.vllm import caches, sequences
from helmsman.schemas.engine_settings import Difference
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import is_plain
from helmsman.schemas.model import Model

VERSION = "95009ea, sglang-kt 0.7.2"
"""The commit 95009ea6856c0799e517e93cb12be5e8494bc7ce of kvcache-ai/ktransformers, and the release of its server."""
SOURCE = (
    "kvcache-ai/ktransformers: kt-kernel/README.md, doc/en/kt-kernel/experts-sched-Tutorial.md; "
    "kvcache-ai/sglang: python/sglang/srt/server_args.py, as the package sglang-kt has it"
)
"""What the flags mean, and the server's arguments."""

FLAGS = (
    *flags(
        "placed", 1, "--kt-num-gpu-experts", "--kt-gpu-experts-ratio", "--kt-expert-placement-strategy",
        "--kt-gpu-prefill-token-threshold",
    ),
    *flags(
        "unpriced", 1, "--kt-cpuinfer", "--kt-threadpool-count", "--kt-method", "--kt-max-deferred-experts-per-token",
        "--init-expert-location", "--cuda-graph-max-bs",
    ),
    *flags("unpriced", -1, "--kt-numa-nodes", "--cuda-graph-bs"),
    *flags("unpriced", 0, "--kt-enable-dynamic-expert-update", "--record-kt-gpu-expert-distribution"),
    *flags("idle", 1, "--kt-weight-path"),
)  # fmt: skip
"""The flags beside those of the server, with the number of their values."""

_THREADS = "--kt-cpuinfer"
"""The flag of threads that compute experts on processors."""

GRAMMAR = CommandGrammar("ktransformers", (*FLAGS, *COMMON_FLAGS))

_STREAMED = ("FP8", "RAWINT4")
"""Methods with which experts come to the accelerator for long prompts."""

_ORDERS = {"uniform": "number", "front-loading": "number", "random": "number", "frequency": "popularity"}
"""The order in which experts are on the accelerator, as the strategy `ktransformers` calls it."""


def expert_number(model: Model, engine: str) -> int:
    """Return how many experts a layer has. Raises UsageError for a model without."""
    count = next((tensor.shape[0] for tensor in tensors(model) if tensor.stacked), 0)
    if not count:
        problem = f"{engine} divides routed experts, and {model.name} has none"
        raise UsageError(problem, field="emit", remedy="use llama.cpp or vllm")
    return count


def held_experts(places: PlanPlaces, engine: str) -> int:
    """Return how many experts of every layer the plan has on accelerators, by bytes, or in slots there. Raises
    UsageError for a model without."""
    count = expert_number(places.plan.model, engine)
    recorded = places.plan.strategy.options.get("gpu_experts")
    if places.plan.strategy.name == "ktransformers" and isinstance(recorded, int):
        return min(count, recorded)
    if places.plan.expert_slots:
        return min(count, min(rule.slots for rule in places.plan.expert_slots))
    stacked = [tensor for tensor in tensors(places.plan.model) if tensor.stacked]
    there = sum(places.size(t) for t in stacked if places.tensors[t.name, t.layer].side != HOST)
    return count * there // max(1, sum(map(places.size, stacked)))


def write(places: PlanPlaces) -> WrittenSettings:
    """Return the command. Raises UsageError for a model without experts, and a machine without a GPU of its own
    memory."""
    check_accelerator(places, "ktransformers")
    held, options = held_experts(places, "ktransformers"), places.plan.strategy.options
    words = [*server_words(places), *cards_words(places)]
    words += ["--kt-num-gpu-experts", str(held)]
    popular = _by_popularity(places)
    words += ["--kt-expert-placement-strategy", "frequency" if popular else "uniform"]
    words += ["--init-expert-location", _recorded(places)] if popular else []
    if places.threads is not None:
        words += [_THREADS, str(places.threads)]
    words += ["--kt-threadpool-count", "1"]
    if isinstance(options.get("stream_above"), int):
        words += ["--kt-gpu-prefill-token-threshold", str(options["stream_above"])]
    kernels, folder = method(places), places.plan.model.name
    words += ["--kt-method", kernels, "--kt-weight-path", f"{folder}-GGUF" if kernels == "LLAMAFILE" else folder]
    return WrittenSettings(shlex.join(words), tuple(_differences(places)))


def _by_popularity(places: PlanPlaces) -> bool:
    by_slots = any(rule.eviction == "popularity" for rule in places.plan.expert_slots)
    return by_slots or places.plan.strategy.options.get("expert_order") == "popularity"


def _recorded(places: PlanPlaces) -> str:
    return f"{places.plan.model.name}-activations.pt"


def method(places: PlanPlaces) -> str:
    """Return the kernels of processors that compute in a plan's format: those of GGUF files where it is quantised."""
    fmt = places.formats[0]
    return "FP8" if fmt.startswith("fp8") else "BF16" if is_plain(fmt) else "LLAMAFILE"


def _differences(places: PlanPlaces) -> Iterator[Difference]:
    if isinstance(places.plan.strategy.options.get("stream_above"), int) and method(places) not in _STREAMED:
        instead = f"kt-kernel does so with weights in {' and '.join(_STREAMED)} alone"
        yield Difference(what="experts come to the accelerator for long prompts", instead=instead)
    if _by_popularity(places):
        instead = f"those that {_recorded(places)} names, which the server has to record first"
        yield Difference(what="the experts chosen most are on the accelerator", instead=instead)
    if places.plan.strategy.name != "ktransformers":
        yield from dense_elsewhere(places)
        if any(rule.eviction == "least-recent" for rule in places.plan.expert_slots):
            instead = "as many are there for good"
            yield Difference(what="the experts used last are on the accelerator", instead=instead)
        yield Difference(
            what="experts of layers are where the plan has them",
            instead="every layer has as many on the accelerator, and the processors compute the others",
        )
    yield from other_formats(places, "kt-kernel")
    yield from eight_bits(places)


def dense_elsewhere(places: PlanPlaces) -> Iterator[Difference]:
    """Yield that something else than experts is in host memory."""
    stacked = {(tensor.name, tensor.layer) for tensor in tensors(places.plan.model) if tensor.stacked}
    others = (place for key, place in places.tensors.items() if key not in stacked and key[1] is not None)
    if any(place.side == HOST for place in others) or HOST in places.caches:
        instead = "all but experts is on the accelerator"
        yield Difference(what="attention, caches or shared networks of layers are in host memory", instead=instead)


def read(text: str, subject: SettingsSubject) -> ReadSettings:
    """Return a command as a question. Raises UsageError by name for flags that are not known, and for a model without
    experts."""
    given = list(GRAMMAR.given(flags_after_program(words_of(text))))
    last = {flag.name: flag for flag in given}
    count = expert_number(subject.model, "ktransformers")
    options: dict[str, OptionValue] = {}
    if "--kt-gpu-experts-ratio" in last:
        options["gpu_experts"] = round(number_of(last["--kt-gpu-experts-ratio"], 1.0) * count)
    elif "--kt-num-gpu-experts" in last:
        options["gpu_experts"] = min(count, whole_number(last["--kt-num-gpu-experts"]))
    else:
        raise UsageError("no number of experts on the GPU", field=FIELD, remedy="add --kt-num-gpu-experts N")
    if "--kt-gpu-prefill-token-threshold" in last:
        options["stream_above"] = whole_number(last["--kt-gpu-prefill-token-threshold"])
    assumed = list[str]()
    order = last["--kt-expert-placement-strategy"].values[0] if "--kt-expert-placement-strategy" in last else "uniform"
    if order not in _ORDERS:
        raise UsageError("no order of experts", field=FIELD, value=order, remedy=f"use {', '.join(_ORDERS)}")
    if order == "front-loading":
        assumed.append("front-loading: as many experts of every layer, not all of the first layers'")
    if _ORDERS[order] == "popularity" and subject.workload.routing is None:
        assumed.append("frequency: without --routing all experts of a layer are chosen alike")
    else:
        options["expert_order"] = _ORDERS[order]
    options |= fewer_threads(last.get(_THREADS), subject)
    options["tensor_parallel_size"] = cards_of_command(last)
    said = [last[_THREADS].text] if _THREADS in last and "threads" in options else []
    unpriced = (flag.text for flag in given if flag.effect == "unpriced" and not _as_priced(flag, subject))
    context = whole_number(last["--context-length"], 1) if "--context-length" in last else None
    assumed += [] if context else ["--context-length is left out: the context of the question"]
    kv, doubts = caches(last)
    return ReadSettings(
        "ktransformers", "ktransformers", options, context, sequences(last, "--max-running-requests", subject), kv,
        (*texts(given, "placed"), *said), tuple(assumed), (*unpriced, *doubts), texts(given, "idle"),
    )  # fmt: skip


def _as_priced(flag: GivenFlag, subject: SettingsSubject) -> bool:
    """Whether a prediction knows what a flag says: threads, as many as there are cores or fewer."""
    return flag.name == _THREADS and threads_are_priced(flag, subject)


FORMAT = EngineFormat("ktransformers", "ktransformers", VERSION, SOURCE, "command", write, read)
