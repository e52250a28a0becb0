"""One layer of a stage as tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from helmsman.executor.devices.specs import Block as BlockSpec
from helmsman.executor.devices.specs import StageSpec
from helmsman.executor.devices.torch.caches import HeadsCache, cache_of
from helmsman.executor.devices.torch.regions import LINEARS
from helmsman.executor.devices.torch.weights import TorchLinear, TorchNorm, linear_of, norm_of

NormName = Literal["norm1", "norm2", "q_norm", "k_norm"]


@dataclass(frozen=True)
class StageBlock:
    """The part of a layer that a stage has; what it never runs is missing."""

    linears: Mapping[str, TorchLinear]
    norms: Mapping[str, TorchNorm]
    keys: HeadsCache | None
    values: HeadsCache | None
    scores_heads: range
    weighted_heads: range


def block_of(spec: StageSpec, block: BlockSpec, space: torch.Tensor) -> StageBlock:
    """From what native stages are made of too; `space`: where quantised weights are expanded."""
    divided = spec.get("attention") == "divided"
    linears = {op: linear_of(block[op], space) for op in LINEARS}
    hidden, head = spec["hidden"], spec["head_dim"]
    widths: dict[NormName, int] = {"norm1": hidden, "norm2": hidden, "q_norm": head, "k_norm": head}
    norms = {name: norm_of(block[name], width) for name, width in widths.items()}
    return StageBlock(
        {op: linear for op, linear in linears.items() if linear is not None},
        {name: norm for name, norm in norms.items() if norm is not None},
        cache_of(spec, block["keys"], block.get("kept_keys", []), divided),
        cache_of(spec, block["values"], block.get("kept_values", []), transposed=False),
        _heads(spec, block.get("scores_heads")),
        _heads(spec, block.get("wv_heads")),
    )


def _heads(spec: StageSpec, stated: tuple[int, int] | None) -> range:
    return range(spec["kv_heads"]) if stated is None else range(*stated)
