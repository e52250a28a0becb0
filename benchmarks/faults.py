"""Faults to plant in a transformers model: what a wrong executor would do. Each lasts as long as its context."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from helmsman.schemas.blocks.positions import Rope
from helmsman.schemas.model import Model

Plant = Callable[[Any, Model], AbstractContextManager[None]]
"""Plants a fault in a loaded model, which is of the second."""


@contextmanager
def replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


@contextmanager
def _changed_weights(linears: list[Any], change: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    before = [linear.weight.data for linear in linears]
    for linear in linears:
        linear.weight.data = change(linear.weight.data)
    try:
        yield
    finally:
        for linear, weight in zip(linears, before, strict=True):
            linear.weight.data = weight


def attention_of(oracle: Any, model: Model) -> Any:
    """The attention of a block in the middle."""
    base = oracle.model.decoder if model.family == "opt" else oracle.model
    return base.layers[model.layers // 2].self_attn


def wrong_base(theta: float) -> Plant:
    """Another base of rotary positions, without scaling."""

    def plant(oracle: Any, model: Model) -> AbstractContextManager[None]:
        rope = model.dense.position
        assert isinstance(rope, Rope)
        exponents = torch.arange(0, rope.rotary_dim, 2) / rope.rotary_dim
        return replaced(oracle.model.rotary_emb, "inv_freq", 1.0 / theta**exponents)

    return plant


def swapped_heads(oracle: Any, model: Model) -> AbstractContextManager[None]:
    """Two KV heads exchanged in one block's keys and values."""
    attention, dim = attention_of(oracle, model), model.dense.head_dim
    return _changed_weights(
        [attention.k_proj, attention.v_proj],
        lambda weight: torch.cat([weight[dim : 2 * dim], weight[:dim], weight[2 * dim :]]),
    )


def transposed(name: str) -> Plant:
    """One block's square matrix, read by columns."""

    def plant(oracle: Any, model: Model) -> AbstractContextManager[None]:
        return _changed_weights([getattr(attention_of(oracle, model), name)], lambda weight: weight.T.contiguous())

    return plant


def without_qk_norm(oracle: Any, model: Model) -> AbstractContextManager[None]:
    """One block's queries are not normalised."""
    return replaced(attention_of(oracle, model), "q_norm", torch.nn.Identity())
