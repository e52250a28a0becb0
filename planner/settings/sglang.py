"""SGLang: the command of its server; weights that do not fit come from host memory as vLLM's do, whose code it has."""

import shlex
from collections.abc import Iterator, Mapping
from math import ceil

from helmsman.planner.settings.command_flags import (
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
from helmsman.planner.settings.vllm import caches, sequences
from helmsman.schemas.engine_settings import Difference

VERSION = "0.5.23"
"""The release whose server arguments are followed."""
SOURCE = "sgl-project/sglang: python/sglang/srt/arg_groups/fields/*.py, python/sglang/srt/utils/offloader.py"
"""Its documents, as the package of that release has them: arguments, and what the offloaded GiB are."""

CARDS = "--tensor-parallel-size"
"""The flag of accelerators that divide every layer, one of three names of it."""

STATIC = 0.88
"""The least share of memory for weights and caches that is written, Helm's own choice: SGLang works a share out from
the machine where the flag is left out."""

COMMON_FLAGS = (
    *flags(
        "placed", 1, "--context-length", "--max-running-requests", "--mem-fraction-static", "--cpu-offload-gb",
        "--dtype", "--kv-cache-dtype", "--tp --tp-size --tensor-parallel-size",
    ),
    *flags(
        "unpriced", 1, "--chunked-prefill-size", "--max-prefill-tokens", "--quantization", "--max-total-tokens",
        "--dp --dp-size",
        "--ep --ep-size", "--pp-size", "--attention-backend",
        "--prefill-attention-backend", "--decode-attention-backend", "--schedule-policy", "--schedule-conservativeness",
        "--speculative-algorithm", "--speculative-draft-model-path", "--speculative-num-steps",
        "--speculative-eagle-topk", "--speculative-num-draft-tokens", "--page-size", "--swa-full-tokens-ratio",
        "--moe-runner-backend", "--offload-group-size", "--offload-num-in-group", "--offload-prefetch-step",
        "--offload-mode", "--hicache-ratio", "--hicache-size", "--num-continuous-decode-steps",
    ),
    *flags(
        "unpriced", 0, "--disable-cuda-graph", "--disable-radix-cache", "--enable-torch-compile",
        "--enable-mixed-chunk",
        "--enable-hierarchical-cache", "--disable-shared-experts-fusion", "--enable-dp-attention",
        "--disable-overlap-schedule", "--enable-p2p-check", "--disable-custom-all-reduce",
    ),
    *flags(
        "idle", 1, "--model --model-path", "--tokenizer-path", "--tokenizer-mode", "--host", "--port", "--api-key",
        "--served-model-name", "--random-seed", "--load-format", "--revision", "--chat-template", "--tool-call-parser",
        "--reasoning-parser", "--log-level", "--log-level-http", "--download-dir", "--watchdog-timeout",
        "--stream-interval", "--nccl-port", "--grammar-backend", "--sampling-backend", "--completion-template",
    ),
    *flags(
        "idle", 0, "--trust-remote-code", "--enable-metrics", "--log-requests", "--skip-server-warmup",
        "--skip-tokenizer-init", "--show-time-cost", "--enable-cache-report",
    ),
)  # fmt: skip
"""Flags that ktransformers' build of the server has as well, with the number of their values; `--tp` and `--dp` are
beginnings that its parser completes."""
FLAGS = (
    *COMMON_FLAGS,
    *flags("unpriced", 1, "--cuda-graph-max-bs-decode", "--cuda-graph-max-bs-prefill"),
    *flags("unpriced", -1, "--cuda-graph-bs-decode", "--cuda-graph-bs-prefill"),
)
"""The flags that are known here."""

GRAMMAR = CommandGrammar("SGLang", FLAGS)

_UNITS = {"k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
"""What --context-length may end with."""


def write(places: PlanPlaces) -> WrittenSettings:
    """Return the command. Raises UsageError for a machine without a GPU of its own memory."""
    check_accelerator(places, "SGLang")
    words = [*server_words(places), "--mem-fraction-static", f"{used_share(places, STATIC):g}"]
    offload = ceil(offloaded_gib(places))
    words += ["--cpu-offload-gb", str(offload)] if offload else []
    words += cards_words(places)
    return WrittenSettings(shlex.join(words), tuple(_differences(places)))


def server_words(places: PlanPlaces) -> list[str]:
    """Return the program, and flags of the model, its context and its numbers."""
    work, kind = places.plan.workload, places.nearest_kv_format
    words = ["python", "-m", "sglang.launch_server", "--model-path", places.plan.model.name]
    words += ["--context-length", str(work.context), "--max-running-requests", str(work.batch)]
    return [*words, "--dtype", DTYPES[kind], "--kv-cache-dtype", "fp8_e4m3" if kind == "q8_0" else "auto"]


def cards_words(places: PlanPlaces) -> list[str]:
    """Return the flag for several cards that divide every layer."""
    return ["--tp-size", str(places.cards)] if places.cards > 1 else []


def cards_of_command(last: Mapping[str, GivenFlag]) -> int:
    """Return the cards that divide every layer by a command's flags."""
    return whole_number(last[CARDS], 1) if CARDS in last else 1


def _differences(places: PlanPlaces) -> Iterator[Difference]:
    yield from places.differences()
    yield from host_computes(places)
    yield from other_formats(places, "SGLang")
    offload = offloaded_gib(places)
    if offload != ceil(offload):
        yield Difference(
            what=f"{offload:g} GiB of weights are in host memory",
            instead=f"{ceil(offload)} are: SGLang takes whole GiB",
        )
    yield from eight_bits(places)


def eight_bits(places: PlanPlaces) -> Iterator[Difference]:
    """Yield that caches of 8 bits are others than the plan's."""
    if places.nearest_kv_format == "q8_0":
        yield Difference(
            what="caches are in q8_0, with a scale for 32 values", instead="they are in fp8, 8 bits as well"
        )


def read(text: str, subject: SettingsSubject) -> ReadSettings:
    """Return a command as a question. Raises UsageError by name for flags that are not known."""
    given = list(GRAMMAR.given(flags_after_program(words_of(text))))
    last = {flag.name: flag for flag in given}
    options: dict[str, OptionValue] = {"tensor_parallel_size": cards_of_command(last)}
    if "--cpu-offload-gb" in last:
        options["cpu_offload_gb"] = float(whole_number(last["--cpu-offload-gb"]))
    if "--mem-fraction-static" in last:
        options["gpu_memory_utilization"] = number_of(last["--mem-fraction-static"], 1.0)
    kv, doubts = caches(last)
    context = length(last["--context-length"], _UNITS) if "--context-length" in last else None
    assumed = [] if context else ["--context-length is left out: the context of the question"]
    assumed.append("speed: that of vLLM, whose kernels and offloading it shares")
    return ReadSettings(
        "sglang", "vllm", options, context, sequences(last, "--max-running-requests", subject), kv,
        texts(given, "placed"), tuple(assumed), (*texts(given, "unpriced"), *doubts), texts(given, "idle"),
    )  # fmt: skip


FORMAT = EngineFormat(
    "sglang", "vllm", VERSION, SOURCE, "command", write, read, own_options=({}, {"cpu_offload_gb": "least"})
)
