"""Rows of llama-bench, as it prints them with `-o json`, `jsonl`, `csv` and `md` (llama.cpp's tools/llama-bench).

Its SQL is not read. Rows of its table (`md`, the default) name no machine, and those of prompts and outputs together
(`-pg`) are whole requests."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from helmsman.analysis.bench_files.measured_run import Measured, MeasuredRun, RefusedResult
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.plan_question import Value
from helmsman.schemas.read import parse_json

Row = Mapping[str, Any]

_BACKENDS = {"CUDA": "cuda", "ROCM": "rocm", "HIP": "rocm", "VULKAN": "vulkan", "METAL": "metal", "MTL": "metal",
             "SYCL": "sycl", "OPENCL": "opencl"}  # fmt: skip
_LAST_BUILDS = ((1750, "2023"), (4420, "2024"))
"""Numbers of llama.cpp's first builds of the year after, as its releases were numbered (b1750, b4420: first days of
January 2024 and 2025)."""
_TYPE = re.compile(
    r"\b(?P<quant>I?Q\d(?:_\w+)?|TQ\d_\d|BF16|F16|F32|MXFP4)(?: MoE)?"
    r"(?: - (?P<size>Small|Medium|Large|XS|XXS|[MSL]))?\b"
)
"""The format at the end of what llama-bench calls the type of a model: `llama 8B Q4_K - Medium`."""
_SIZES = {"Small": "s", "Medium": "m", "Large": "l"}
_TEST = re.compile(r"(pp(?P<prompt>\d+))?\+?(tg(?P<output>\d+))?(?: *@ *d(?P<depth>\d+))?")
_RATE = re.compile(r"([\d.]+)(?: *[±] *([\d.]+))?")


def is_llama_bench(content: object) -> bool:
    """Whether the first row of a JSON document is one of llama-bench."""
    first = content[0] if isinstance(content, list) and content else content
    return isinstance(first, dict) and "avg_ts" in first and "n_gen" in first


def json_rows(content: object, file: str) -> Iterator[MeasuredRun | RefusedResult]:
    """Yield the runs of a JSON document of llama-bench. Raises BadInputError for a row without what all have."""
    rows: list[Any] = content if isinstance(content, list) else [content]
    return _runs(rows, file)


def csv_rows(text: str, file: str) -> Iterator[MeasuredRun | RefusedResult]:
    """Yield the runs of llama-bench's CSV."""
    return _runs(csv.DictReader(io.StringIO(text)), file)


def jsonl_rows(text: str, file: str) -> Iterator[MeasuredRun | RefusedResult]:
    """Yield the runs of llama-bench's JSON Lines."""
    return _runs((parse_json(line.encode(), file) for line in text.splitlines() if line.strip()), file)


def table_rows(text: str, file: str) -> Iterator[MeasuredRun | RefusedResult]:
    """Yield the runs of llama-bench's table."""
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if "|" in line]
    head = next(iter(cells), [])
    named = (dict(zip(head, row, strict=False)) for row in cells[1:] if len(row) == len(head) and set(row[0]) - {"-"})
    return _runs(map(_of_table, named), file)


def _of_table(row: Mapping[str, str]) -> Row:
    """Return a row of the table under the names that the other forms have."""
    test, rate = _TEST.fullmatch(row.get("test", "")), _RATE.match(row.get("t/s", ""))
    known = {"ngl": "n_gpu_layers", "n_cpu_moe": "n_cpu_moe", "threads": "n_threads", "fa": "flash_attn",
             "n_ubatch": "n_ubatch", "type_k": "type_k", "type_v": "type_v", "ot": "tensor_buft_overrides"}  # fmt: skip
    made: dict[str, Any] = {ours: row[theirs] for theirs, ours in known.items() if theirs in row}
    made |= {"model_type": row.get("model", ""), "backends": row.get("backend", "")}
    if test is not None and rate is not None:
        made |= {"n_prompt": test["prompt"] or 0, "n_gen": test["output"] or 0, "n_depth": test["depth"] or 0}
        made |= {"avg_ts": rate[1], "stddev_ts": rate[2] or 0}
    return made


def _runs(rows: Iterable[Row], file: str) -> Iterator[MeasuredRun | RefusedResult]:
    for number, row in enumerate(rows, 1):
        where = f"{file}, row {number}"
        try:
            refused = _refusal(row)
            yield _run(row, where) if refused is None else RefusedResult(where, refused)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            problem, remedy = f"no row of llama-bench: {error}", "write it with llama-bench -o json"
            raise BadInputError(problem, file=file, field=f"row {number}", remedy=remedy) from None


def _refusal(row: Row) -> str | None:
    """Return why a row says nothing of a plan that Helm makes; None where it does."""
    if row.get("split_mode", "layer") == "row":
        return "rows of matrices on several GPUs are not planned"
    if _truth(row.get("no_kv_offload")):
        return "caches away from their layers are not planned"
    if row.get("type_k", "f16") != row.get("type_v", "f16"):
        return "keys and values in different formats are not planned"
    if _truth(row.get("embeddings")):
        return "embeddings are not decode steps"
    return None


def _run(row: Row, where: str) -> MeasuredRun:
    prompt, output, depth = (int(row.get(name) or 0) for name in ("n_prompt", "n_gen", "n_depth"))
    rate, deviation = float(row["avg_ts"]), float(row.get("stddev_ts") or 0.0)
    if not rate > 0.0 or not prompt + output:
        raise ValueError(f"{rate} tokens/s of {prompt + output} tokens")
    of: Measured = "request" if prompt and output else "decode" if output else "prefill"
    backends = re.split(r"[,+ ]", str(row.get("backends", "")).upper())
    backend = next((_BACKENDS[name] for name in backends if name in _BACKENDS), None)
    gpus = tuple(name.strip() for name in str(row.get("gpu_info") or "").split(",") if name.strip())
    file = PurePath(str(row.get("model_filename") or "").replace("\\", "/")).name.removesuffix(".gguf")
    named = re.sub(r"-\d{5}-of-\d{5}$", "", file)
    layers = int(row.get("n_gpu_layers") or 0) if backend else 0
    ubatch, experts = int(row.get("n_ubatch") or 0), int(row.get("n_cpu_moe") or 0)
    overrides = str(row.get("tensor_buft_overrides") or "none")
    options: dict[str, Value] = {"ngl": layers if layers >= 0 else 999, "backend": backend} if backend else {}
    options |= {"ubatch": ubatch} if ubatch else {}
    options |= {"n_cpu_moe": experts} if experts else {}
    options |= {"override_tensor": overrides.replace(";", ",")} if overrides != "none" else {}
    if "flash_attn" in row and str(row["flash_attn"]).lower() not in ("-1", "auto"):
        options["flash_attn"] = "on" if _truth(row["flash_attn"]) else "off"
    tokens = prompt + output
    return MeasuredRun(
        of=of,
        value=tokens / rate if of == "request" else rate,
        where=where,
        prompt=depth + (prompt or (0 if depth else 1)),
        output=output or 1,
        prefix=depth if prompt else 0,
        batch=1,
        noise=deviation / rate,
        model=named or None,
        parameters=int(row["model_n_params"]) if row.get("model_n_params") else None,
        format=_format(str(row.get("model_type") or "")),
        kv=str(row.get("type_k") or "f16"),
        gpus=gpus if backend else (),
        cpu=str(row.get("cpu_info") or "") or None,
        options=options,
        era=_era(row),
        whole=layers >= 99 and not experts and overrides == "none",
    )


def _format(kind: str) -> str | None:
    """Return the format that a model's type states, as people call files of it."""
    stated = list(_TYPE.finditer(kind))
    if not stated:
        return None
    last = stated[-1]
    size = _SIZES.get(last["size"], (last["size"] or "").lower())
    return f"{last['quant']}_{size}".lower() if size else last["quant"].lower()


def _era(row: Row) -> str | None:
    """Return the year of a build by its number, else by the time of the test, which no build is younger than."""
    number = int(row.get("build_number") or 0)
    if number:
        return next((year for last, year in _LAST_BUILDS if number < last), "2025")
    year = re.match(r"(\d{4})-", str(row.get("test_time") or ""))
    return None if year is None else str(min(max(int(year[1]), 2023), 2025))


def _truth(value: object) -> bool:
    return str(value).lower() in ("1", "true", "on", "yes")
