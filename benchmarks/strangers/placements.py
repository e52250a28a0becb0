"""The placement of a row, as options of the strategy that stands for its engine: where its source states them, or says
in words what they come to."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.strangers.rows import OpenRow, UnansweredError
from helmsman.schemas.model import Model

Flags = dict[str, str | int | bool]
"""Options of `llama-cpp`."""

_ENGINES = re.compile(r"^((ik_)?llama\.cpp|ollama)")
_CACHED = re.compile(r"cache|fork \(QVAC\)", re.IGNORECASE)
_OTHERS = re.compile(r"-ser |50% of experts(?! on GPU)|(?<!no )MTP|drafter|\d concurrent", re.IGNORECASE)
_WITHOUT_OFFLOAD = re.compile(r"-rtr|_R4")
"""Weights in the order of ik_llama.cpp's processors' kernels are not brought to an accelerator."""


@dataclass(frozen=True, slots=True)
class StatedPlacement:
    """The flags of a row; `spilled`: networks of as many last layers as must are on the host, by patterns; `strategy`:
    the one that stands for the engine."""

    flags: Flags = field(default_factory=dict)
    spilled: bool = False
    strategy: str = "llama-cpp"


def placement_of(row: OpenRow, model: Model) -> StatedPlacement:
    """Return the placement. Raises UnansweredError for another engine's, and for one that is not stated."""
    if _OTHERS.search(f"{row.settings} {row.note}"):
        raise UnansweredError("more is changed than a placement", "mode")
    if re.match(r"KT-Kernel|KTransformers", row.engine):
        return _ktransformers(row, model)
    if re.match(r"FreeToken", row.engine):
        return _freetoken(row)
    if not _ENGINES.match(row.engine):
        engine = row.engine.split(" ")[0]
        raise UnansweredError(f"{engine} places experts by rules that no strategy has", "engine")
    if _CACHED.search(f"{row.engine} {row.settings}"):
        raise UnansweredError("experts are cached, which llama.cpp does not", "engine")
    stated = f"{row.settings} {row.engine}"
    for pattern, read in _FORMS:
        matched = re.search(pattern, stated)
        if matched:
            flags = read(matched, model)
            if flags is not None:
                flags = {**_offloads(row, flags), **_divides(row, flags), **_counts(row), **_attends(row)}
                return StatedPlacement(flags, "weight spill" in stated)
    raise UnansweredError(f"the placement is not stated ({row.settings or 'nothing'})")


def _ktransformers(row: OpenRow, model: Model) -> StatedPlacement:
    """Return the placement of ktransformers' kernels: so many experts of every layer on the accelerator, or on several
    that divide every layer."""
    number = re.search(r"--kt-num-gpu-experts (\d+)(?!\d*-)|(\d+) GPU experts per layer", row.settings)
    share = re.search(r"(\d+)% of experts on GPU", row.settings)
    if number is None and share is None:
        raise UnansweredError(f"the placement is not stated ({row.settings or 'nothing'})")
    held = int(number[1] or number[2]) if number else round(int(share[1]) / 100 * _experts(model)) if share else 0
    flags: Flags = {"gpu_experts": held}
    several = re.match(r"([2-9])x ", row.gpu)
    if several is not None:
        flags["tensor_parallel_size"] = int(several[1])
    threshold = re.search(r"prefill above (\d+)-token", row.settings)
    if threshold is not None:
        flags["stream_above"] = int(threshold[1])
    return StatedPlacement(flags, strategy="ktransformers")


def _experts(model: Model) -> int:
    """Return how many experts a layer has."""
    return max(body.op.experts for block in model.blocks for body in block.bodies if body.op.kind == "experts")


def _freetoken(row: OpenRow) -> StatedPlacement:
    """Return the placement of FreeToken: a cache of experts as large as there is room, and what is done with misses."""
    _check_single(row)
    mode = re.search(r"offload|hybrid", f"{row.engine} {row.settings}")
    if mode is None:
        raise UnansweredError(f"the placement is not stated ({row.settings or 'nothing'})")
    return StatedPlacement({"miss_mode": mode[0]}, strategy="freetoken")


def _check_single(row: OpenRow) -> None:
    if re.match(r"[2-9]x ", row.gpu):
        raise UnansweredError("several accelerators divide every layer (tensor parallelism)", "mode")


def _offloads(row: OpenRow, flags: Flags) -> Flags:
    """Return the flags with what the engine does with large products."""
    stays = _WITHOUT_OFFLOAD.search(f"{row.settings} {row.quant}")
    return {**flags, "no_op_offload": True} if stays else flags


def _divides(row: OpenRow, flags: Flags) -> Flags:
    """Return that slots are on all accelerators, as llama.cpp puts them where nothing else is said."""
    several = " + " in row.gpu or re.match(r"[2-9]x ", row.gpu)
    return {"split_mode": "layer"} if several and flags.keys() == {"ngl"} and flags["ngl"] else {}


def _counts(row: OpenRow) -> Flags:
    """Return the flags for the micro-batch and the threads that a row states."""
    stated = ((name, re.search(pattern, row.settings)) for name, pattern in _COUNTS.items())
    return {name: int(count[1]) for name, count in stated if count}


_COUNTS = {"ubatch": r"-ub (\d+)", "threads": r"(?:^| )(?:-t|th) (\d+)"}
"""Flags of numbers that settings state, and how."""


def _attends(row: OpenRow) -> Flags:
    """Return the flag for attention as the engine ran it: as a kernel of its own, which builds from 2025 on choose by
    themselves, unless a row says otherwise. A plan that leaves it open has what is predicted to be faster."""
    return {"flash_attn": "off" if re.search(r"-fa (0|off)\b", row.settings) else "on"}


def _numbers(blocks: range) -> str:
    return r"blk\.(" + "|".join(map(str, blocks)) + r")\."


def rules_for(blocks: range, what: str, memory: str) -> str:
    """Return rules for many blocks, each of a length that is taken."""
    parts = (blocks[start : start + 30] for start in range(0, len(blocks), 30))
    return ",".join(f"{_numbers(part)}{what}={memory}" for part in parts)


def _rest_on_host(kept: range, model: Model, what: str = "ffn.*") -> Flags:
    """Return the flags that keep a part of blocks on the host but for those `kept`, which come first."""
    return {"override_tensor": rules_for(range(kept.stop, model.layers), what, "CPU")}


def _kept_first(matched: re.Match[str], model: Model) -> Flags:
    first, last = int(matched[1]), int(matched[2])
    kept = rules_for(range(first, last + 1), "ffn.*", "CUDA0")
    return {"override_tensor": f"{kept},exps=CPU"}


def _two_then_host(matched: re.Match[str], model: Model) -> Flags:
    """Return the flags for networks of the first layers on two accelerators, the others' on the host."""
    first, second = int(matched[1]) + 1, int(matched[2]) + 1
    kept = f"{rules_for(range(first), 'ffn.*', 'CUDA0')},{rules_for(range(first, second), 'ffn.*', 'CUDA1')}"
    rest = rules_for(range(second, model.layers), "ffn.*", "CPU")
    return {"split_mode": "layer", "override_tensor": f"{kept},{rest}"}


def _last_experts(matched: re.Match[str], model: Model) -> Flags:
    """Return the flags for experts of so many layers on the host."""
    return {"n_cpu_moe": min(int(matched[1]), model.layers)}


def _away(matched: re.Match[str], model: Model) -> Flags:
    first, last = int(matched[1]), int(matched[2])
    return {"override_tensor": rules_for(range(first, last + 1), "ffn.*", "CPU")}


def _all_but(matched: re.Match[str], model: Model) -> Flags:
    """Return the flags for experts on the host but for those of the first layers that have some."""
    dense = next(layer for layer in range(model.layers) if "experts" in _kinds(model, layer))
    return _rest_on_host(range(dense, dense + int(matched[1])), model, ".*exps.*")


def _parts_away() -> Flags:
    """Return the flags for one matrix of the experts of the first 20 layers, and two of all, on the host."""
    return {"override_tensor": rules_for(range(20), "ffn_gate_exps", "CPU") + ",ffn_(up|down)_exps=CPU"}


def _kinds(model: Model, layer: int) -> set[str]:
    return {body.op.kind for body in model.blocks[layer].bodies}


_FORMS: tuple[tuple[str, Callable[[re.Match[str], Model], Flags | None]], ...] = (
    (r"CPU only|default top-k", lambda m, model: {"ngl": 0}),
    (r"experts on GPU|fully in VRAM|all in VRAM|everything resident", lambda m, model: {"ngl": model.layers + 1}),
    (r"plain layer split|layers with their KV spill", lambda m, model: {"n_cpu_moe": 0} if model.routed else {}),
    (r"--fit on", lambda m, model: {"fit": True}),
    (r"weight spill", lambda m, model: {"ngl": model.layers + 1}),
    (r"all but (\d+) layers experts on CPU", _all_but),
    (r"(?:-ngl (\d+) .*)?gate exps of layers 0-19 and all up/down exps on CPU",
     lambda m, model: {**({"ngl": int(m[1])} if m[1] else {}), **_parts_away()}),
    (r"[Ff]fn_up/gate of layers (\d+)-(\d+) =CUDA0, exps=CPU",
     lambda m, model: {"override_tensor": rules_for(range(int(m[1]), int(m[2]) + 1), "ffn_(up|gate)_exps", "CUDA0")
                       + ",exps=CPU"}),
    (r"blk\.\((\d+)\.\.(\d+)\)\.ffn=CUDA0 -ot exps=CPU", _kept_first),
    (r"blk\.(\d+)() ffn=CUDA0 -ot exps=CPU",
     lambda m, model: {"override_tensor": rules_for(range(int(m[1]), int(m[1]) + 1), "ffn.*", "CUDA0") + ",exps=CPU"}),
    (r"FFN of layers 0-(\d+) CUDA0, \d+-(\d+) CUDA1, rest CPU|layers 0-(\d+) CUDA0, \d+-(\d+) CUDA1",
     lambda m, model: _two_then_host(_without_none(m), model)),
    (r"ffn of layers (\d+)-(\d+) =CPU", _away),
    (r"FFN of layers 0-(\d+) on GPU", lambda m, model: _rest_on_host(range(int(m[1]) + 1), model)),
    (r"(\d+) (?:MoE )?layers(?: of experts)? on CPU", _last_experts),
    (r"--?n-?cpu-?moe (\d+)|-ncmoe (\d+)", lambda m, model: _last_experts(_without_none(m), model)),
    (r"^-ngl (\d+) (?:llama\.cpp|ollama)(?!.*-cpu-moe)", lambda m, model: {"ngl": min(int(m[1]), model.layers + 1)}),
    (r"exps=CPU,attn_kv_b=CPU", lambda m, model: {"override_tensor": "exps=CPU,attn_kv_b=CPU"}),
    (r"exps=CPU|_exps\.=CPU|-cmoe|--cpu-moe|all routed experts in RAM, greedy|experts on CPU",
     lambda m, model: {"cpu_moe": True}),
)  # fmt: skip
"""The words of settings, and the flags for them; the first that are there count."""


def _without_none(matched: re.Match[str]) -> re.Match[str]:
    """Return the same match, numbered by the groups that took part."""
    given = [group for group in matched.groups() if group is not None]
    again = re.fullmatch(" ".join([r"(\d+)"] * len(given)), " ".join(given))
    assert again is not None
    return again
