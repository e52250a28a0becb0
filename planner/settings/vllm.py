"""vLLM: the command of its server."""

import re
import shlex
from collections.abc import Iterator, Mapping

from helmsman.planner.settings.command_flags import (
    FIELD,
    CommandGrammar,
    GivenFlag,
    flags,
    flags_after_program,
    length,
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
from helmsman.planner.settings.on_accelerator import (
    DTYPES,
    check_accelerator,
    host_computes,
    offloaded_gib,
    other_formats,
    used_share,
)
from helmsman.planner.settings.plan_places import PlanPlaces
from helmsman.schemas.engine_settings import Difference
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import KvFormat

VERSION = "0.33.0"
"""The release whose arguments are followed; five that it has no more are read as commit
99d7eb5d6a512cfcc5a2b104f24ebf2d6cda772b had them."""
SOURCE = (
    "vllm-project/vllm: vllm/engine/arg_utils.py, vllm/entrypoints/common/cli_args.py, vllm/config/{cache,offload}.py"
)
"""The documents of that release, as its package has them: arguments, and what they mean."""

UTILIZATION = 0.9
"""The share of memory that plans of vLLM are made with where none is given."""
DEFAULT_UTILIZATION = 0.92
"""The share of memory where a command has no --gpu-memory-utilization (`CacheConfig` of that release)."""

_BOTH = (
    "enforce-eager", "enable-chunked-prefill", "enable-prefix-caching", "async-scheduling", "enable-expert-parallel",
    "disable-sliding-window", "disable-custom-all-reduce", "disable-cascade-attn",
)  # fmt: skip
"""Switches of speed or memory, each with a `--no-` of its own."""
_BOTH_IDLE = (
    "trust-remote-code", "enable-log-requests", "enable-auto-tool-choice",
    "skip-tokenizer-init", "enable-prompt-embeds", "enable-server-load-tracking", "return-tokens-as-token-ids",
    "enable-request-id-headers", "disable-fastapi-docs", "allow-credentials", "enable-lora", "enable-sleep-mode",
)  # fmt: skip

EARLIER = (
    *flags("unpriced", 1, "--swap-space", "--max-num-partial-prefills", "--num-lookahead-slots"),
    *flags("unpriced", 0, "--calculate-kv-scales", "--no-calculate-kv-scales"),
    *flags("idle", 0, "--disable-log-requests", "--no-disable-log-requests"),
)
"""Flags of the earlier commit, which people's commands still have."""

FLAGS = (
    *flags(
        "placed", 1, "--max-model-len", "--max-num-seqs", "--cpu-offload-gb", "--gpu-memory-utilization", "--dtype",
        "--kv-cache-dtype", "-tp --tensor-parallel-size", "-pp --pipeline-parallel-size", "-q --quantization",
    ),
    *flags(
        "unpriced", 1, "--max-num-batched-tokens", "--block-size",
        "--kv-offloading-size", "--kv-offloading-backend", "--offload-backend", "--offload-group-size",
        "--offload-num-in-group", "--offload-prefetch-step", "-sc --speculative-config", "-dp --data-parallel-size",
        "-cc --compilation-config", "-O --optimization-level", "--additional-config",
        "--attention-backend", "--num-gpu-blocks-override", "--kv-cache-memory-bytes",
        "--hf-overrides", "--long-prefill-token-threshold", "--scheduling-policy",
        "--all2all-backend", "--kv-transfer-config", "--max-cudagraph-capture-size",
        "--distributed-executor-backend", "--moe-backend", "--linear-backend", "--mamba-cache-dtype",
        "--mamba-block-size", "--mamba-ssm-cache-dtype",
    ),
    *flags("unpriced", -1, "--cpu-offload-params", "--offload-params", "--cudagraph-capture-sizes"),
    *flags("unpriced", 0, *(f"--{name}" for name in _BOTH), *(f"--no-{name}" for name in _BOTH)),
    *flags(
        "idle", 1, "--model", "--host", "--port", "--seed", "--tokenizer", "--tokenizer-mode",
        "--revision",
        "--code-revision", "--tokenizer-revision", "--download-dir", "--load-format", "--hf-config-path",
        "--chat-template", "--chat-template-content-format", "--response-role", "--tool-call-parser",
        "--reasoning-parser", "--tool-parser-plugin", "--uvicorn-log-level", "--generation-config",
        "--override-generation-config", "--max-log-len", "--max-logprobs", "--runner", "--convert",
        "--config",
        "--root-path", "--ssl-keyfile", "--ssl-certfile", "--api-server-count", "--limit-mm-per-prompt",
        "--structured-outputs-config", "--default-chat-template-kwargs",
        "--prefix-caching-hash-algo", "--otlp-traces-endpoint",
    ),
    *flags(
        "idle", -1, "--served-model-name", "--allowed-origins", "--middleware", "--lora-modules", "--api-key",
        "--hf-token", "--ignore-patterns", "--logits-processors",
    ),
    *flags("idle", 0, "--disable-log-stats", "--headless"),
    *flags("idle", 0, *(f"--{name}" for name in _BOTH_IDLE), *(f"--no-{name}" for name in _BOTH_IDLE)),
)  # fmt: skip
"""The flags that are known here, with the number of their values."""

GRAMMAR = CommandGrammar("vLLM", (*FLAGS, *EARLIER))

_CACHES: Mapping[str, KvFormat] = {
    "float32": "f32", "float": "f32", "float16": "f16", "half": "f16", "bfloat16": "bf16", "bf16": "bf16",
    "auto": "f16",
}  # fmt: skip
"""Formats of caches by --dtype; `auto` is that of the checkpoint, and priced as 16 bits."""

QUANTISATIONS = ("fp8", "awq", "gptq", "nvfp4", "mxfp4")
"""Methods that plans of vLLM know."""

_METHODS = {"awq_marlin": "awq", "gptq_marlin": "gptq", "modelopt_fp4": "nvfp4", "mxfp4_marlin": "mxfp4"}
"""Other names of theirs, by their kernels or makers."""

_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
"""What --max-model-len may end with."""

_OFFLOADED = re.compile(r"([\d.]+) GiB offloaded")
"""The part of a plan's label that says the number that it was made with."""


def write(places: PlanPlaces) -> WrittenSettings:
    """Return the command. Raises UsageError for a machine without a GPU of its own memory."""
    check_accelerator(places, "vLLM")
    plan, kind = places.plan, places.nearest_kv_format
    words = ["vllm", "serve", plan.model.name, "--max-model-len", str(plan.workload.context)]
    words += ["--max-num-seqs", str(plan.workload.batch), "--gpu-memory-utilization", f"{_utilization(places):g}"]
    offload = _offload(places)
    words += ["--cpu-offload-gb", f"{offload:g}"] if offload else []
    words += ["--tensor-parallel-size", str(places.cards)] if places.cards > 1 else []
    quantised = plan.strategy.options.get("quantization") if plan.strategy.name == "vllm" else None
    words += ["--quantization", str(quantised)] if quantised else []
    words += ["--dtype", DTYPES[kind], "--kv-cache-dtype", "fp8" if kind == "q8_0" else "auto"]
    return WrittenSettings(shlex.join(words), tuple(_differences(places)))


def _offload(places: PlanPlaces) -> float:
    said = _OFFLOADED.search(places.plan.label) if places.plan.strategy.name == "vllm" else None
    return offloaded_gib(places) if said is None else float(said[1])


def _utilization(places: PlanPlaces) -> float:
    given = places.plan.strategy.options.get("gpu_memory_utilization")
    if places.plan.strategy.name == "vllm":
        return float(given) if isinstance(given, int | float) else UTILIZATION
    return used_share(places, UTILIZATION)


def _differences(places: PlanPlaces) -> Iterator[Difference]:
    yield from places.differences()
    yield from host_computes(places)
    yield from other_formats(places, "vLLM")
    if len({rule.device for rule in places.plan.compute} & {d.name for d in places.roles.accelerators}) > 1:
        yield Difference(what="several accelerators work", instead="one does: no --tensor-parallel-size is set")
    if places.nearest_kv_format == "q8_0":
        yield Difference(
            what="caches are in q8_0, with a scale for 32 values", instead="they are in fp8, 8 bits as well"
        )


def read(text: str, subject: SettingsSubject) -> ReadSettings:
    """Return a command as a question. Raises UsageError by name for flags that are not known."""
    given = list(GRAMMAR.given(flags_after_program(words_of(text))))
    last = {flag.name: flag for flag in given}
    name = "--pipeline-parallel-size"
    if name in last and whole_number(last[name], 1) > 1:
        problem, remedy = f"{last[name].text} is not predicted here", "use 1, or helm-sim --pipeline-parallel"
        raise UsageError(problem, field=FIELD, remedy=remedy)
    cards = whole_number(last["--tensor-parallel-size"], 1) if "--tensor-parallel-size" in last else 1
    options: dict[str, OptionValue] = {"tensor_parallel_size": cards}
    if "--cpu-offload-gb" in last:
        options["cpu_offload_gb"] = number_of(last["--cpu-offload-gb"])
    if "--gpu-memory-utilization" in last:
        options["gpu_memory_utilization"] = number_of(last["--gpu-memory-utilization"], 1.0)
    else:
        options["gpu_memory_utilization"] = DEFAULT_UTILIZATION
    kv, doubts = caches(last)
    assumed = (
        [] if "--gpu-memory-utilization" in last else [f"--gpu-memory-utilization {DEFAULT_UTILIZATION}: vLLM's own"]
    )
    if "--quantization" in last:
        named = last["--quantization"]
        method = _METHODS.get(named.values[0], named.values[0])
        if method in QUANTISATIONS:
            options["quantization"] = method
        else:
            doubts = (*doubts, named.text)
    elif (stated := _checkpoint_method(text)) is not None:
        options["quantization"] = stated
        assumed.append(f"a checkpoint in {stated}, as its name states")
    assumed += [] if "--max-model-len" in last else ["--max-model-len is left out: the context of the question"]
    return ReadSettings(
        "vllm", "vllm", options, _length(last), sequences(last, "--max-num-seqs", subject), kv,
        texts(given, "placed"), tuple(assumed), (*texts(given, "unpriced"), *doubts), texts(given, "idle"),
    )  # fmt: skip


_CHECKPOINT = re.compile(r"(?:\bserve\s+|--model[ =]|--model-path[ =])(\S+)")
"""Matches the checkpoint that a command of vLLM serves, its first group."""
_METHOD_IN_NAME = re.compile(rf"[-_/]({'|'.join(QUANTISATIONS)})(?![a-z0-9])", re.IGNORECASE)
"""Matches the quantisation method in the name of a checkpoint."""


def _checkpoint_method(text: str) -> str | None:
    """Return the method by which the checkpoint of a command is quantised, as its name states (`..-AWQ`, `..-FP8`);
    None where it states none."""
    checkpoint = _CHECKPOINT.search(text)
    method = _METHOD_IN_NAME.search(checkpoint[1]) if checkpoint is not None else None
    return method[1].lower() if method is not None else None


def caches(last: Mapping[str, GivenFlag]) -> tuple[KvFormat, tuple[str, ...]]:
    """Return the format of caches by both flags of numbers, and what is not priced as it is."""
    numbers = last["--dtype"].values[0] if "--dtype" in last else "auto"
    kind = last["--kv-cache-dtype"].values[0] if "--kv-cache-dtype" in last else "auto"
    if kind.startswith(("fp8", "int8")):
        return "q8_0", (f"caches in {kind}, priced as q8_0",)
    name = numbers if kind == "auto" else kind
    if name not in _CACHES:
        remedy = f"use one of {', '.join(_CACHES)}, or fp8"
        raise UsageError("no format of caches that is known here", field=FIELD, value=name, remedy=remedy)
    return _CACHES[name], ("caches in the checkpoint's own numbers, priced as f16",) if name == "auto" else ()


def sequences(
    last: Mapping[str, GivenFlag], name: str, subject: SettingsSubject, usual: int | None = None
) -> int | None:
    """Return how many sequences advance together, where a limit leaves fewer than are asked about. `usual`: the limit
    without the flag; None where there is none so low."""
    most = whole_number(last[name], 1) if name in last else usual or subject.workload.batch
    return most if most < subject.workload.batch else None


def _length(last: Mapping[str, GivenFlag]) -> int | None:
    if "--max-model-len" not in last or last["--max-model-len"].values[0] in ("auto", "-1"):
        return None
    return length(last["--max-model-len"], _UNITS)


FORMAT = EngineFormat(
    "vllm", "vllm", VERSION, SOURCE, "command", write, read, own_options=({}, {"cpu_offload_gb": "least"})
)
