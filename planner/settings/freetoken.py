"""FreeToken: the command of its server, and the bandwidths that `ft bench bw` measures (`benchbw.json`)."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from helmsman.lowering.tensors import tensors
from helmsman.planner.settings.command_flags import (
    FIELD,
    CommandGrammar,
    GivenFlag,
    flags,
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
from helmsman.planner.settings.ktransformers import dense_elsewhere, expert_number, held_experts
from helmsman.planner.settings.llama_cpp import parsed_object
from helmsman.planner.settings.on_accelerator import DTYPES, check_accelerator, other_formats
from helmsman.planner.settings.plan_places import PlanPlaces
from helmsman.planner.settings.vllm import sequences
from helmsman.schemas.engine_settings import Difference
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import KvFormat

VERSION = "0517cbc"
"""The commit 0517cbc235fb6429729f7e66c2d7e0969ecafe00 of FlashML-org/FreeToken that flags are from; what profiles
decide is from 0ab982f10905fa775962a4eddcb44caa50065251."""
SOURCE = (
    "FlashML-org/FreeToken: docs/cli.md, python/freetoken/server/args.py, "
    "python/freetoken/moe/{benchbw,bench_profile}.py"
)
"""Its documents: flags, what a profile of bandwidths has, and what it decides."""

THRESHOLD = 2.0
"""Times the link's bandwidth above which the processors' makes `auto` choose hybrid (`ft bench bw --threshold`), where
a profile has no verdict of its own."""

FLAGS = (
    *flags(
        "placed", 1, "--max-seq-len-override", "--max-running-requests", "--moe-backend --moe-strategy",
        "--moe-cache-rate", "--moe-cache-size", "--dtype",
    ),
    *flags("placed", 0, "--moe-cache-auto"),
    *flags(
        "unpriced", 1, "--moe-cpu-threads", "--moe-cpu-layers", "--moe-hybrid-max-fetch", "--memory-ratio",
        "--num-pages", "--num-tokens", "--page-size", "--attn --attention-backend", "--swa-decoder-replay",
        "--max-extend-length --max-prefill-length", "--graph --cuda-graph-max-bs", "--quant-backend",
        "--nvfp4-backend", "--kv-reserve-tokens", "--gpu", "--ple-backend", "--mm-encoder-weights",
        "--mm-embed-cache-device", "--tp-size --tensor-parallel-size",
    ),
    *flags("unpriced", 0, "--moe-prefill-hit-d2d", "--disable-moe-prefill-overlap", "--disable-pynccl"),
    *flags(
        "idle", 1, "--model-path --model", "--served-model-name", "--hf-overrides", "--host", "--port",
        "--dist-port", "--max-output-tokens", "--decode-log-interval", "--cache-type", "--sampling-defaults",
        "--tool-call-parser", "--reasoning-parser", "--anthropic-inline-system", "--tokenizer-count --num-tokenizer",
        "--model-source", "--expert-load", "--moe-cache-policy", "--cors-origins", "--image-min-tokens",
        "--image-max-tokens", "--mm-processor-kwargs", "--allowed-media-domains", "--allowed-local-media-path",
    ),
    *flags("idle", -1, "--mm-disable"),
    *flags("idle", 0, "--enable-cache-report", "--text-model-only", "--enable-special-token-ckpt"),
)  # fmt: skip
"""The flags that are known here, with the number of their values."""

GRAMMAR = CommandGrammar("FreeToken", FLAGS)

_THREADS = "--moe-cpu-threads"
"""The flag of threads that compute experts on processors, which none do where all that is missing is fetched."""

REQUESTS = 4
"""Sequences that advance together where a command does not say how many."""
_MODES = {"offload": "offload", "cpu": "cpu", "hybrid": "hybrid"}
_CACHES: Mapping[str, KvFormat] = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "auto": "f16"}
"""Formats of caches by --dtype, in whose numbers they are kept; `auto` is that of the checkpoint, priced as 16 bits."""
_MISSES = {"host": "cpu", "fetched": "offload", "divided": "hybrid"}
"""What happens to experts that are not in slots, as the engine calls it."""


def write(places: PlanPlaces) -> WrittenSettings:
    """Return the command. Raises UsageError for a model without experts, and a machine without a GPU of its own
    memory."""
    check_accelerator(places, "FreeToken")
    plan, held = places.plan, held_experts(places, "FreeToken")
    if plan.strategy.name == "freetoken" and not plan.expert_slots:
        held = 0
    misses = {_MISSES[rule.misses] for rule in plan.expert_slots}
    given = plan.strategy.options.get("miss_mode")
    mode = given if isinstance(given, str) else misses.pop() if len(misses) == 1 else "hybrid"
    words = ["ft", "serve", "--model", plan.model.name, "--max-seq-len-override", str(plan.workload.context)]
    words += ["--max-running-requests", str(plan.workload.batch), "--moe-strategy", mode]
    words += ["--moe-cache-rate", f"{held / expert_number(plan.model, 'FreeToken'):.6g}"]
    if places.threads is not None and mode != "offload":
        words += [_THREADS, str(places.threads)]
    words += ["--dtype", DTYPES[places.nearest_kv_format]]
    return WrittenSettings(shlex.join(words), tuple(_differences(places)))


def _differences(places: PlanPlaces) -> Iterator[Difference]:
    yield from places.undivided("one card does everything")
    if places.plan.strategy.name != "freetoken":
        yield from dense_elsewhere(places)
        yield Difference(
            what="experts of layers are where the plan has them",
            instead="as many of every layer are cached on the accelerator, those used last",
        )
    yield from other_formats(places, "FreeToken")
    if places.nearest_kv_format == "q8_0":
        yield Difference(
            what="caches are kept in q8_0", instead="they are in the numbers that are computed in, float16"
        )


def read(text: str, subject: SettingsSubject) -> ReadSettings:
    """Return a command, or measured bandwidths, as a question. Raises UsageError by name for flags that are not known,
    and for a model without experts."""
    if text.lstrip().startswith("{"):
        return _read_bandwidths(text, subject)
    words = list(words_of(text))
    given = list(GRAMMAR.given(words[2:] if words[:1] == ["ft"] else words))
    last = {flag.name: flag for flag in given}
    count = expert_number(subject.model, "FreeToken")
    mode = last["--moe-strategy"].values[0] if "--moe-strategy" in last else "auto"
    assumed = [] if "--max-seq-len-override" in last else ["--max-seq-len-override is left out: that of the question"]
    if mode == "auto":
        assumed.append("--moe-strategy auto: offload, as without a profile of `ft bench bw`")
        mode = "offload"
    if mode not in _MODES:
        problem, remedy = f"--moe-strategy {mode} is not predicted", f"use {', '.join(_MODES)}"
        raise UsageError(problem, field=FIELD, value=mode, remedy=remedy)
    options: dict[str, OptionValue] = {"miss_mode": mode}
    if "--moe-cache-rate" in last:
        options["expert_slots"] = round(number_of(last["--moe-cache-rate"], 1.0) * count)
    elif "--moe-cache-size" in last:
        layers = len(_expert_layers(subject))
        options["expert_slots"] = min(count, whole_number(last["--moe-cache-size"]) // max(1, layers))
    threads = last.get(_THREADS)
    options |= {} if mode == "offload" else fewer_threads(threads, subject)
    placed = [threads.text] if threads is not None and "threads" in options else []
    idle = [threads.text] if threads is not None and mode == "offload" else []
    doubtful = [flag for flag in given if flag.effect == "unpriced" and not _as_priced(flag, subject)]
    unpriced = (flag.text for flag in doubtful if flag.text not in idle)
    kind = last["--dtype"].values[0] if "--dtype" in last else "auto"
    if kind not in _CACHES:
        problem, remedy = "no numbers that FreeToken computes in", f"use {', '.join(_CACHES)}"
        raise UsageError(problem, field=FIELD, value=kind, remedy=remedy)
    doubts = ("caches in the checkpoint's own numbers, priced as f16",) if kind == "auto" else ()
    context = whole_number(last["--max-seq-len-override"], 1) if "--max-seq-len-override" in last else None
    return ReadSettings(
        "freetoken", "freetoken", options, context,
        sequences(last, "--max-running-requests", subject, REQUESTS), _CACHES[kind],
        (*texts(given, "placed"), *placed), tuple(assumed), (*unpriced, *doubts), (*texts(given, "idle"), *idle),
    )  # fmt: skip


def _as_priced(flag: GivenFlag, subject: SettingsSubject) -> bool:
    """Whether a prediction knows what a flag says: as many threads as there are cores, or fewer."""
    return flag.name == _THREADS and threads_are_priced(flag, subject)


def _expert_layers(subject: SettingsSubject) -> set[int]:
    return {tensor.layer for tensor in tensors(subject.model) if tensor.stacked and tensor.layer is not None}


def _read_bandwidths(text: str, subject: SettingsSubject) -> ReadSettings:
    """Return what `auto` does with a profile: what it recommends for the format, or hybrid where the processors are so
    much faster than the link, else offload; of what is missing, hybrid fetches the link's share of both."""
    expert_number(subject.model, "FreeToken")
    content = parsed_object(text, "the profile of bandwidths")
    kernels = content.get("dtype_kernels")
    name = _kernel(subject, kernels if isinstance(kernels, dict) else {})
    entry: Any = kernels[name] if isinstance(kernels, dict) and name is not None else None
    rates = {key: value for key, value in entry.items() if _is_rate(value)} if isinstance(entry, dict) else {}
    if not {"cpu_moe_gbs", "pcie_gather_gbs"} <= set(rates):
        remedy = "give what `ft bench bw` writes, with dtype_kernels"
        raise UsageError("no bandwidths of experts", field=FIELD, remedy=remedy)
    cpu, link = rates["cpu_moe_gbs"], rates["pcie_gather_gbs"]
    cpu_joint, link_joint = rates.get("cpu_moe_overlap_gbs"), rates.get("pcie_gather_overlap_gbs")
    share = link / cpu if cpu_joint is None or link_joint is None else link_joint / (link_joint + cpu_joint)
    verdicts = content.get("dtypes")
    said = verdicts.get(name) if isinstance(verdicts, dict) else None
    mode = said if said in ("hybrid", "offload") else "hybrid" if cpu > THRESHOLD * link else "offload"
    options: dict[str, OptionValue] = {"miss_mode": mode}
    if mode == "hybrid":
        options["fetched_share"] = round(min(0.99, max(0.01, share)), 4)
    placed = (f"{name}: processors {cpu:g} GB/s, link {link:g} GB/s", f"auto: {mode}")
    together = (
        f"together {cpu_joint:g} and {link_joint:g} GB/s" if cpu_joint and link_joint else "not measured together"
    )
    assumed = ("a profile has no context or slots: those of the question, and as many as fit",)
    return ReadSettings("freetoken", "freetoken", options, placed=(*placed, together), assumed=assumed)


def _kernel(subject: SettingsSubject, kernels: Mapping[str, Any]) -> str | None:
    """Return the entry of a profile for the format of weights, or else the first."""
    wanted = {"f16": "bf16", "bf16": "bf16", "mxfp4": "mxfp4", "q4_k": "nvfp4", "q4_0": "nvfp4"}.get(subject.weights)
    return wanted if wanted in kernels else next(iter(kernels), None)


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6


FORMAT = EngineFormat("freetoken", "freetoken", VERSION, SOURCE, "command", write, read)
