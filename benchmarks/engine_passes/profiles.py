"""Profiles of operators of others, and what a pass of a model takes by them.

ai-dynamo/aiconfigurator@095f58a (vLLM 0.14 and 0.19: products, attention), casys-kaist/LLMServingSim@5daddb2 (vLLM's
kernels: a whole layer; an older profile: products alone), microsoft/vidur@7d47513 (products alone)."""

import csv
import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.engine_passes.grids import Grid
from helmsman.schemas.model import Model

Parts = dict[str, float]
"""Seconds of a pass by what takes them: products (of layers), head, attention, other."""


@dataclass(frozen=True, slots=True)
class PassShape:
    """A pass: of a prompt (`batch` 1), or a step of `batch` sequences that then hold `context` tokens."""

    phase: str
    batch: int
    tokens: int
    context: int

    @property
    def rows(self) -> int:
        """Return the tokens of all sequences."""
        return self.batch * self.tokens


class Profile(Protocol):
    """The operators of one GPU by one source."""

    @property
    def gpu(self) -> str:
        """Return the GPU's name in the catalogue."""

    @property
    def source(self) -> str:
        """Return where it is from."""

    @property
    def kernel(self) -> str:
        """Return how its products of layers are multiplied."""

    @property
    def older(self) -> bool:
        """Whether its kernels are of engines before vLLM's of today."""

    def models(self) -> tuple[str, ...]:
        """Return the models of which it tells passes."""

    def parts(self, model: Model, shape: PassShape) -> Parts | None:
        """Return the seconds of a pass; None where something was not measured."""


DENSE = (
    "Qwen3-1.7B", "Llama-3.2-3B", "Llama-3.1-8B", "Qwen3-14B", "Qwen3-32B", "Llama-3.1-70B", "Mistral-7B-v0.1",
)  # fmt: skip
"""Models whose shapes the profiles' grids have."""


@dataclass(frozen=True, slots=True)
class OperatorProfile:
    """Products by (rows, columns, tokens) in a kernel and in plain numbers, which heads are kept in, and attention by
    heads, as aiconfigurator's tables have them."""

    gpu: str
    source: str
    kernel: str
    products: Grid
    plain: Grid
    steps: dict[tuple[int, int, int], Grid]
    prompts: dict[tuple[int, int, int], Grid]
    older: bool = False

    def models(self) -> tuple[str, ...]:
        return DENSE

    def parts(self, model: Model, shape: PassShape) -> Parts | None:
        dense, rows = model.dense, float(shape.rows)
        heads = dense.heads, dense.kv_heads, dense.head_dim
        qkv, wide = (dense.heads + 2 * dense.kv_heads) * dense.head_dim, (2 if dense.gated else 1) * dense.ffn
        matrices = (
            (qkv, model.hidden), (model.hidden, dense.heads * dense.head_dim), (wide, model.hidden),
            (model.hidden, dense.ffn),
        )  # fmt: skip
        products = [self.products.at(float(n), float(k), rows) for n, k in matrices]
        head = self.plain.at(65536.0, float(model.hidden), float(shape.batch))
        if shape.phase == "decode":
            grid = self.steps.get(heads)
            attention = grid and grid.at(float(shape.batch), float(shape.context))
        else:
            grid = self.prompts.get(heads)
            attention = grid and grid.at(1.0, float(shape.tokens))
        if attention is None or head is None or any(seconds is None for seconds in products):
            return None
        layers = model.layers
        return {
            "products": layers * sum(seconds or 0.0 for seconds in products),
            "head": head * model.vocab / 65536.0,
            "attention": layers * attention,
        }


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """The operators of one model by name: seconds by tokens, by sequences, and of attention."""

    gpu: str
    source: str
    kernel: str
    model: str
    dense: dict[str, Grid]
    ends: dict[str, Grid]
    steps: Grid | None
    prompts: Grid | None

    @property
    def older(self) -> bool:
        return self.steps is None

    def models(self) -> tuple[str, ...]:
        return (self.model,)

    def parts(self, model: Model, shape: PassShape) -> Parts | None:
        made: Parts = {}
        for part, names, each in (("products", _PRODUCTS, self.dense), ("other", _OTHERS, self.dense)):
            known = [(grid, times) for name, times in names if (grid := each.get(name)) is not None]
            seconds = [(grid.at(float(shape.rows)), times) for grid, times in known]
            if any(value is None for value, _ in seconds):
                return None
            if part == "products" or self.steps is not None:
                made[part] = model.layers * sum((value or 0.0) * times for value, times in seconds)
        if "lm_head" in self.ends:
            head = self.ends["lm_head"].at(float(shape.batch))
            if head is None:
                return None
            made["head"] = head
        if self.steps is None or self.prompts is None:
            return made
        grid = self.steps if shape.phase == "decode" else self.prompts
        point = (shape.batch, shape.context) if shape.phase == "decode" else (shape.tokens,)
        attention = grid.at(*map(float, point))
        once = [self.dense[name].at(float(shape.rows)) for name in ("embedding", "final_layernorm")]
        sampled = self.ends["sampler"].at(float(shape.batch))
        if attention is None or sampled is None or any(value is None for value in once):
            return None
        made["attention"] = model.layers * attention
        made["other"] += sampled + sum(value or 0.0 for value in once)
        return made


EXPERTS = {
    "Mixtral-8x7B-v0.1": (4096, 14336, 2, 8),
    "Mixtral-8x22B-v0.1": (6144, 16384, 2, 8),
    "Qwen3-30B-A3B": (2048, 768, 8, 128),
    "Qwen3-235B-A22B": (4096, 1536, 8, 128),
    "Qwen3-Coder-480B-A35B-Instruct": (6144, 2560, 8, 160),
}
"""Models whose experts the tables have: hidden state, width, chosen experts, and how many there are."""


@dataclass(frozen=True, slots=True)
class ExpertProfile:
    """Experts of a layer together, by tokens that prefer some a little, as aiconfigurator's tables have them."""

    gpu: str
    source: str
    kernel: str
    layers: dict[tuple[int, ...], Grid]
    older: bool = False

    def models(self) -> tuple[str, ...]:
        return tuple(name for name, shape in EXPERTS.items() if shape in self.layers)

    def parts(self, model: Model, shape: PassShape) -> Parts | None:
        seconds = self.layers[EXPERTS[model.name]].at(float(shape.rows))
        return None if seconds is None else {"experts": model.layers * seconds}


_PRODUCTS = tuple(
    (name, 1) for name in (
        "qkv_proj", "o_proj", "gate_up_proj", "down_proj", "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj",
        "attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj",
    )
)  # fmt: skip
_OTHERS = (("layernorm", 2), ("qk_norm", 1), ("rotary_emb", 1), ("act_fn", 1))

_TABLES = (
    ("a100_sxm", "A100 SXM 80GB"), ("h100_sxm", "H100 SXM 80GB"), ("h200_sxm", "H200 SXM 141GB"), ("l40s", "L40S"),
    ("rtx_pro_6000_server", "RTX PRO 6000 Blackwell 96GB"),
)  # fmt: skip
_LAYERS = (
    ("RTX4090/Llama-3.1-8B", "RTX 4090", "Llama-3.1-8B"),
    ("RTXPRO6000/Llama-3.1-8B", "RTX PRO 6000 Blackwell 96GB", "Llama-3.1-8B"),
    ("RTXPRO6000/Qwen3-32B", "RTX PRO 6000 Blackwell 96GB", "Qwen3-32B"),
)
_EARLIER = (("RTX3090", "RTX 3090"), ("A6000", "RTX A6000"), ("H100", "H100 SXM 80GB"))
_VIDUR = (("a100", "A100 SXM 80GB"), ("a40", "A40"), ("h100", "H100 SXM 80GB"))
_VIDUR_MODELS = ("Llama-2-7b-hf", "Llama-2-70b-hf", "CodeLlama-34b-Instruct-hf")


def read_profiles(folder: Path) -> Iterator[Profile]:
    """Yield all profiles of a folder."""
    for name, gpu in _TABLES:
        for version in sorted((folder / "aiconfigurator" / name).glob("vllm_*")):
            if (version / "gemm_perf.csv.gz").exists():
                yield from _operators(version, gpu)
            if (version / "moe_perf.csv.gz").exists():
                yield _experts(version, gpu)
    for name, gpu, model in _LAYERS:
        yield _layer(folder / "llmservingsim" / name, gpu, model)
    for name, gpu in _EARLIER:
        yield _earlier(folder / "llmservingsim" / name / "Llama-3.1-8B" / "layers.csv", gpu)
    for name, gpu in _VIDUR:
        for model in _VIDUR_MODELS:
            yield _vidur(folder / "vidur" / name / model / "mlp.csv", gpu, model)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as stream:
        yield from csv.DictReader(stream)


_KERNELS = {"bfloat16": "16", "fp8": "fp8", "nvfp4": "fp4"}
"""Kernels by the tables' types of products."""


def _operators(folder: Path, gpu: str) -> Iterator[OperatorProfile]:
    products: dict[str, dict[tuple[float, ...], float]] = {}
    for row in _rows(folder / "gemm_perf.csv.gz"):
        if row["gemm_dtype"] in _KERNELS:
            point = float(row["n"]), float(row["k"]), float(row["m"])
            products.setdefault(_KERNELS[row["gemm_dtype"]], {})[point] = 1e-3 * float(row["latency"])
    tables: list[dict[tuple[int, int, int], Grid]] = []
    points: tuple[Callable[[dict[str, str]], tuple[float, ...]], ...] = (
        lambda row: (float(row["batch_size"]), float(row["step"]) + 1.0),
        lambda row: (float(row["batch_size"]), float(row["isl"])),
    )
    for name, point in zip(("generation_attention_perf", "context_attention_perf"), points, strict=True):
        by: dict[tuple[int, int, int], dict[tuple[float, ...], float]] = {}
        for row in _rows(folder / f"{name}.csv.gz"):
            if (row["attn_dtype"], row["kv_cache_dtype"]) == ("bfloat16", "bfloat16"):
                heads = int(row["num_heads"]), int(row["num_key_value_heads"]), int(row["head_dim"])
                by.setdefault(heads, {})[point(row)] = 1e-3 * float(row["latency"])
        tables.append({heads: Grid(seconds) for heads, seconds in by.items()})
    source, plain = f"aiconfigurator {folder.parent.name} {folder.name}", Grid(products["16"])
    for kernel, seconds in products.items():
        yield OperatorProfile(gpu, source, kernel, Grid(seconds), plain, *tables)


def _experts(folder: Path, gpu: str) -> ExpertProfile:
    layers: dict[tuple[int, ...], dict[tuple[float, ...], float]] = {}
    shape = ("hidden_size", "inter_size", "topk", "num_experts")
    for row in _rows(folder / "moe_perf.csv.gz"):
        whole = row["moe_tp_size"] == row["moe_ep_size"] == "1"
        if whole and (row["moe_dtype"], row["distribution"]) == ("bfloat16", "power_law_1.01"):
            key = tuple(int(row[name]) for name in shape)
            layers.setdefault(key, {})[(float(row["num_tokens"]),)] = 1e-3 * float(row["latency"])
    source = f"aiconfigurator {folder.parent.name} {folder.name}"
    return ExpertProfile(gpu, source, "16", {key: Grid(known) for key, known in layers.items()})


def _layer(folder: Path, gpu: str, model: str) -> LayerProfile:
    dense: dict[str, dict[tuple[float, ...], float]] = {}
    ends: dict[str, dict[tuple[float, ...], float]] = {}
    for row in _rows(folder / "dense.csv"):
        dense.setdefault(row["layer"], {})[(float(row["tokens"]),)] = 1e-6 * float(row["time_us"])
    for row in _rows(folder / "per_sequence.csv"):
        ends.setdefault(row["layer"], {})[(float(row["sequences"]),)] = 1e-6 * float(row["time_us"])
    steps: dict[tuple[float, ...], float] = {}
    prompts: dict[tuple[float, ...], float] = {}
    for row in _rows(folder / "attention.csv"):
        seconds = 1e-6 * float(row["time_us"])
        if row["prefill_chunk"] == "0":
            steps[float(row["n_decode"]), float(row["kv_decode"])] = seconds
        elif row["n_decode"] == "0" and row["kv_prefill"] == "0":
            prompts[(float(row["prefill_chunk"]),)] = seconds
    grids = [{name: Grid(seconds) for name, seconds in known.items()} for known in (dense, ends)]
    return LayerProfile(gpu, f"LLMServingSim {folder.parent.name}", "16", model, *grids, Grid(steps), Grid(prompts))


def _earlier(path: Path, gpu: str) -> LayerProfile:
    dense: dict[str, dict[tuple[float, ...], float]] = {}
    for row in _rows(path):
        if row["tp_size"] == "1" and row["kv_cache"] == "0":
            dense.setdefault(row["layer_name"], {})[(float(row["input"]),)] = 1e-9 * float(row["latency(ns)"])
    grids = {name: Grid(seconds) for name, seconds in dense.items() if name.endswith("_proj")}
    head = {"lm_head": Grid(dense["lm_head"])}
    return LayerProfile(gpu, f"LLMServingSim {path.parts[-3]} v0", "16", "Llama-3.1-8B", grids, head, None, None)


def _vidur(path: Path, gpu: str, model: str) -> LayerProfile:
    names = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
    dense: dict[str, dict[tuple[float, ...], float]] = {name: {} for name in names}
    for row in _rows(path):
        if row["num_tensor_parallel_workers"] == "1":
            for name in names:
                dense[name][(float(row["num_tokens"]),)] = 1e-3 * float(row[f"time_stats.{name}.median"])
    return LayerProfile(
        gpu,
        f"vidur {path.parts[-3]}",
        "16",
        model,
        {name: Grid(known) for name, known in dense.items()},
        {},
        None,
        None,
    )
