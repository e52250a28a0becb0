"""Rows of the tables of single devices and of partial offload, in the form of those with experts."""

import re
from collections.abc import Iterator, Sequence

from benchmarks.engine_rows.rows import EngineRow
from benchmarks.strangers.rows import OpenRow

_TWICE = frozenset({1631, 1646})
"""Rows that the table with experts has too, of the same runs."""


def partial_rows(rows: Sequence[EngineRow]) -> Iterator[OpenRow]:
    """Yield the rows of llama.cpp with part of a model on a processor that is named."""
    for row in rows:
        engine = row.engine.replace("llamacpp", "llama.cpp")
        beside = row.split in ("partial_layers", "moe_experts_on_cpu") and bool(row.cpu)
        if engine.startswith("llama.cpp") and beside and not row.caution and row.number not in _TWICE:
            yield as_open_row(row)


def as_open_row(row: EngineRow) -> OpenRow:
    """Return a row of the other tables in the form of those with experts, of ktransformers where all of these are on
    the processor."""
    measured = re.search(r"~?(\d+) GB/s measured", row.placement)
    known = {
        "prompt_tokens": row.prompt,
        "gen_tokens": row.output,
        "prefill_tps": row.prefill,
        "decode_tps": row.decode,
    }
    return OpenRow(
        number=row.number, source=row.source, model=row.model, quant=row.quant, gpu=_gpus(row), cpu=_cpu(row.cpu),
        ram_type=f"{row.ram} {row.placement}", ram_bw_gbs=measured[1] if measured else "",
        engine=row.engine.replace("llamacpp", "llama.cpp"), settings=_settings(row), context="", note=row.note,
        vram_gb="", **{name: "" if value is None else str(value) for name, value in known.items()},
    )  # fmt: skip


def _settings(row: EngineRow) -> str:
    """Return what says where everything is, as options of the engine where the row has these."""
    if row.split == "partial_auto":
        return "plain layer split"
    if "routed experts on CPU" in row.placement:
        return "--kt-num-gpu-experts 0"
    if row.cpu_experts is not None:
        return f"-ngl {row.ngl} --n-cpu-moe {row.cpu_experts}"
    return f"-ngl {row.ngl}" if row.ngl.isdecimal() else row.placement


def _gpus(row: EngineRow) -> str:
    """Return the GPUs' name without its vendor, and how many of them there are."""
    name = re.sub(r"^N(?:VIDIA|vidia) (?:GeForce )?| \d+GB$", "", row.gpu)
    name = re.sub(r"^(?=\d{4}$)", "RTX ", name)
    return name if row.gpus == 1 else f"{row.gpus}x {name}"


def _cpu(text: str) -> str:
    """Return a processor's name as the catalogue has it."""
    if "unnamed" in text:
        return "not stated"
    return re.sub(r"\(.*?\)|\bCPU\b|@.*$", "", text).replace("  ", " ").strip()
