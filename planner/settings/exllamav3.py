"""exllamav3: the arguments with which its programs load a model.

Experts compute on processors in models of the mul1 codebook alone; layers of others stay on the GPU."""

import re
import shlex
from collections.abc import Iterator

from helmsman.lowering.tensors import tensors
from helmsman.planner.settings.command_flags import (
    FIELD,
    CommandGrammar,
    flags,
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
from helmsman.planner.settings.ktransformers import dense_elsewhere, expert_number, held_experts
from helmsman.planner.settings.llama_places import numbers_pattern
from helmsman.planner.settings.on_accelerator import check_accelerator, other_formats
from helmsman.planner.settings.plan_places import HOST, PlanPlaces
from helmsman.schemas.engine_settings import Difference
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import KvFormat
from helmsman.schemas.model import Model

VERSION = "0148de2"
"""The commit 0148de2993d1378080e8db6a2a840e627429c65b of turboderp-org/exllamav3 that arguments are from. The program
is read at 4f8ad0121f483ba66a5336244a4c3b6d7210385e, where it takes those of model_init.py with caches, sampling and
drafts: its text at the first commit was not to be had."""
SOURCE = "turboderp-org/exllamav3: exllamav3/model_init.py, examples/chat.py"
"""The documents of these commits."""

FLAGS = (
    *flags(
        "placed", 1, "-mcl --moe_cpu_offload", "-mcs --moe_cpu_split", "-cs --cache_size", "-cq --cache_quant",
        "-ambs --autosplit_max_batch_size",
    ),
    *flags(
        "unpriced", 1, "-gs --gpu_split", "-lpd --layers_per_device", "-placement --placement", "-or --override",
        "-mct --moe_cpu_threads", "-tpb --tp_backend", "-tp_attn --tp_max_parallelism_attn",
        "-tp_mlp --tp_max_parallelism_mlp", "-tp_moe --tp_max_parallelism_moe", "-ccs --cpu_cache_size",
        "-tp_linear --tp_max_parallelism_linear", "-chunk_size --chunk_size", "-rcs --recurrent_cache_size",
        "-layer_map --layer_map", "-dm --draft_model_dir", "-ndt --num_draft_tokens", "-ngram --ngram_match_min",
        "-dgs --draft_gpu_split", "-dlpd --draft_layers_per_device", "-dmcl --draft_moe_cpu_layers",
        "-tp_linear_attn --tp_max_parallelism_linear_attn", "-ngram_corpus --ngram_corpus", "-dc --draft_confidence",
    ),
    *flags(
        "unpriced", 0, "-tp --tensor_parallel", "-swa_full --swa_full", "-embd --embed_disk", "-ngl --ngram_lock",
        "-ngr --ngram_ram", "-mtp --mtp", "-dds --dynamic_draft", "-tp_moe_ts --tp_moe_tensor_split",
    ),
    *flags(
        "idle", 1, "-m --model_dir", "-temp --temperature", "-repp --repetition_penalty", "-presp --presence_penalty",
        "-freqp --frequency_penalty", "-penr --penalty_range", "-minp --min_p", "-topk --top_k", "-topp --top_p",
        "-cca --cache_compand_a", "-adaptive_target --adaptive_target", "-adaptive_decay --adaptive_decay",
        "-mode --mode", "-un --user_name", "-bn --bot_name", "-sp --system_prompt", "-maxr --max_response_tokens",
        "-think_budget --think_budget", "-prompt --prompt", "-save --save",
    ),
    *flags(
        "idle", 0, "-lm --load_metrics", "-lv --load_verbose", "-asnf --autosplit_no_forward", "-nw --no_warmup",
        "-temp_first --temperature_first", "-mli --multiline", "-basic --basic_console", "-think --think",
        "-no_think --no_think", "-amnesia --amnesia", "-tps --show_tps",
    ),
)  # fmt: skip
"""The arguments that are known here, with the number of their values."""

GRAMMAR = CommandGrammar("exllamav3", FLAGS, dashes=False)

_BITS: dict[KvFormat, int] = {"q8_0": 8}
_PAGE = 256
"""Tokens of a page, of which a cache has a whole number."""


def write(places: PlanPlaces) -> WrittenSettings:
    """Return the arguments after a program of exllamav3. Raises UsageError for a machine without a GPU of its own
    memory."""
    check_accelerator(places, "exllamav3")
    work, kind = places.plan.workload, places.nearest_kv_format
    words = ["python", "examples/chat.py", "-m", f"{places.plan.model.name}-exl3"]
    words += ["-cs", str(-(-work.context // _PAGE) * _PAGE * work.batch), "-ambs", str(work.batch)]
    words += ["-cq", str(_BITS[kind])] if kind in _BITS else []
    words += _experts(places)
    return WrittenSettings(shlex.join(words), tuple(_differences(places)))


def _experts(places: PlanPlaces) -> list[str]:
    """Return the arguments that place experts: whole layers, or the last experts of every layer."""
    away, divided = _away(places)
    words = ["-mcl", _ranges(away)] if away else []
    if divided:
        kept = held_experts(places, "exllamav3")
        words = ["-mcs", str(expert_number(places.plan.model, "exllamav3") - kept)]
    if words and places.threads is not None:
        words += ["-mct", str(places.threads)]
    return words


def _away(places: PlanPlaces) -> tuple[list[int], bool]:
    """Return the layers whose experts are in host memory, and whether layers are divided or cached instead."""
    stacked = [tensor for tensor in tensors(places.plan.model) if tensor.stacked and tensor.layer is not None]
    divided = bool(places.plan.expert_slots) or any(not places.tensors[t.name, t.layer].whole for t in stacked)
    away = {t.layer for t in stacked if places.tensors[t.name, t.layer].side == HOST and t.layer is not None}
    return sorted(away), divided


def _ranges(layers: list[int]) -> str:
    """Return `8..23,30..30`; a number alone would count layers."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and runs[-1][1] == layer - 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return ",".join(f"{first}..{last}" for first, last in runs)


def _differences(places: PlanPlaces) -> Iterator[Difference]:
    yield from dense_elsewhere(places)
    yield from places.undivided("every card has layers of its own: no -tp is set")
    yield from other_formats(places, "EXL3")
    if _away(places)[1] and not places.plan.expert_slots:
        instead = "often used ones are brought there in turn; EXL3_MOE_CPU_SWAP=0 keeps them where they are"
        yield Difference(what="the same experts stay on the accelerator", instead=instead)
    if places.plan.expert_slots:
        yield Difference(what="experts are cached in slots", instead="as many of every layer are on the accelerator")
    if places.nearest_kv_format not in ("f16", "q8_0"):
        yield Difference(what=f"caches are kept in {places.nearest_kv_format}", instead="they are in 16 bits")
    if places.nearest_kv_format == "q8_0":
        yield Difference(
            what="caches are in q8_0, with a scale for 32 values", instead="they are in 8 bits of EXL3's own"
        )
    if places.plan.workload.context % _PAGE:
        what = f"a context of {places.plan.workload.context} tokens"
        yield Difference(what=what, instead=f"whole pages of {_PAGE} tokens")


def read(text: str, subject: SettingsSubject) -> ReadSettings:
    """Return a command as a question. Raises UsageError by name for arguments that are not known."""
    words = list(words_of(text))
    start = next((number for number, word in enumerate(words) if word in GRAMMAR.known), len(words))
    given = list(GRAMMAR.given(words[start:]))
    last = {flag.name: flag for flag in given}
    if "--moe_cpu_offload" in last and "--moe_cpu_split" in last:
        problem, remedy = "-mcl and -mcs together are not predicted", "leave one of them out"
        raise UsageError(problem, field=FIELD, remedy=remedy)
    strategy, options = "llama-cpp", dict[str, OptionValue]({"ngl": subject.model.layers + 1})
    if "--moe_cpu_offload" in last:
        options |= _offloaded(last["--moe_cpu_offload"].values[0], subject.model)
    if "--moe_cpu_split" in last:
        away, count = whole_number(last["--moe_cpu_split"]), expert_number(subject.model, "exllamav3")
        strategy, options = "ktransformers", {"gpu_experts": max(0, count - away), "tensor_parallel_size": 1}
    batch = whole_number(last["--autosplit_max_batch_size"], 1) if "--autosplit_max_batch_size" in last else None
    tokens = whole_number(last["--cache_size"], 1) if "--cache_size" in last else None
    context = None if tokens is None else tokens // (batch or subject.workload.batch)
    bits = last["--cache_quant"].values[0] if "--cache_quant" in last else "16"
    doubts = [] if bits == "16" else [f"caches of {bits} bits, priced as q8_0"]
    doubts += ["experts change places by use, unless EXL3_MOE_CPU_SWAP=0"] if "--moe_cpu_split" in last else []
    assumed = ("weights: the format of the question stands for EXL3", "speed: llama.cpp's kernels stand for EXL3's")
    return ReadSettings(
        "exllamav3", strategy, options, context, batch, "f16" if bits == "16" else "q8_0", texts(given, "placed"),
        assumed, (*texts(given, "unpriced"), *doubts), texts(given, "idle"),
    )  # fmt: skip


def _offloaded(value: str, model: Model) -> dict[str, OptionValue]:
    """Return the option for the first N layers that have experts, or for layers by number."""
    if re.fullmatch(r"\d{1,4}", value):
        having = sorted({tensor.layer for tensor in tensors(model) if tensor.stacked and tensor.layer is not None})
        away = having[: int(value)]
        return {"n_cpu_moe": away[-1] + 1} if away else {}
    layers: set[int] = set()
    for part in value.split(","):
        said = re.fullmatch(r"(\d{1,4})(?:\.\.(\d{1,4}))?", part)
        if said is None:
            raise UsageError("no layers: -mcl", field=FIELD, value=value, remedy="write N, or 8..23,30..30")
        layers |= set(range(int(said[1]), int(said[2] or said[1]) + 1))
    if layers == set(range(len(layers))):
        return {"n_cpu_moe": len(layers)}
    pattern = rf"blk\.{numbers_pattern(sorted(layers))}\.ffn_(gate|up|down|gate_up)_exps\."
    return {"override_tensor": f"{pattern}=CPU"}


FORMAT = EngineFormat("exllamav3", "llama-cpp", VERSION, SOURCE, "command", write, read)
