"""One layer of a stage as tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch

from helmsman.executor.torch_device.caches import HeadsCache, cache_of
from helmsman.executor.torch_device.regions import LINEARS
from helmsman.executor.torch_device.weights import TorchLinear, TorchNorm, linear_of, norm_of

if TYPE_CHECKING:
    from helmsman.executor._kernels import Block as BlockSpec
    from helmsman.executor._kernels import StageSpec


@dataclass(frozen=True)
class Block:
    """What a stage has of a layer; what it never runs is missing."""

    linears: Mapping[str, TorchLinear]
    norms: Mapping[str, TorchNorm]
    keys: HeadsCache | None
    values: HeadsCache | None
    scores_heads: range
    weighted_heads: range


def block_of(spec: "StageSpec", block: "BlockSpec", space: torch.Tensor) -> Block:
    """From what native stages are made of too; `space`: where quantised weights are expanded."""
    divided = spec.get("attention") == "divided"
    parts = cast("Mapping[str, Any]", block)
    linears = {op: linear_of(parts[op], space) for op in LINEARS}
    widths = {"norm1": spec["hidden"], "norm2": spec["hidden"], "q_norm": spec["head_dim"], "k_norm": spec["head_dim"]}
    norms = {name: norm_of(parts[name], width) for name, width in widths.items()}
    return Block(
        {op: each for op, each in linears.items() if each is not None},
        {name: each for name, each in norms.items() if each is not None},
        cache_of(spec, block["keys"], block.get("kept_keys", []), divided),
        cache_of(spec, block["values"], block.get("kept_values", []), transposed=False),
        _heads(spec, block.get("scores_heads")),
        _heads(spec, block.get("wv_heads")),
    )


def _heads(spec: "StageSpec", stated: tuple[int, int] | None) -> range:
    return range(spec["kv_heads"]) if stated is None else range(*stated)
