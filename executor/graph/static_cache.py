"""The KV cache that a module sees while it is captured: tensors of fixed size, written in place at given positions."""

from collections.abc import Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class StaticLayer(CacheLayerMixin):
    """One block's keys and values, (batch, kv_heads, context, head_dim) each.

    `past`: tokens already cached, an int64 scalar; None in a prompt's pass, which attends to its own tokens only.
    What attention reads has passed through the cache's type, as it will in later steps."""

    is_compileable = True
    is_sliding = False

    def __init__(self, keys: Tensor, values: Tensor, past: Tensor | None) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self._keys, self._values, self._past = keys, values, past
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing: the tensors are there."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the new keys and values; what attention reads."""
        return self._written(self._keys, key_states), self._written(self._values, value_states)

    def _written(self, cache: Tensor, states: Tensor) -> Tensor:
        count = states.shape[2]
        positions = torch.arange(count, device=states.device)
        if self._past is None:
            return cache.index_copy_(2, positions, states.to(cache.dtype))[:, :, :count].to(states.dtype)
        return cache.index_copy_(2, positions + self._past, states.to(cache.dtype)).to(states.dtype)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(positions that attention reads, the first of them)."""
        return (query_length if self._past is None else self._keys.shape[2]), 0

    def get_seq_length(self) -> Any:
        """Tokens already cached."""
        return 0 if self._past is None else self._past

    def get_max_length(self) -> int:
        """Tokens that fit."""
        return self._keys.shape[2]


def static_cache(keys: Sequence[Tensor], values: Sequence[Tensor], past: Tensor | None) -> Any:
    """The cache of all blocks, as transformers' modules expect it."""
    return Cache(layers=[StaticLayer(k, v, past) for k, v in zip(keys, values, strict=True)])


def cache_argument(module: Any) -> str:
    """Return the name of the keyword by which `module.forward` takes its KV cache: `cache` since transformers 5.24,
    which warns of the older `past_key_values`."""
    return "cache" if "cache" in signature(module.forward).parameters else "past_key_values"
