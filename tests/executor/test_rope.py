"""Rotary tables against the rotary modules of transformers."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from family_models import family_model
from together import together
from transformers import AutoConfig

from helmsman.executor.checkpoint.config import hf_config
from helmsman.executor.passes.model_check import check_native
from helmsman.executor.stages.rope import rope_tables
from helmsman.hwdb.load_model import catalogue_names, load_model
from helmsman.schemas.blocks.positions import LinearScaling, LongRope, Rope
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.model import Model


def runs_and_turns(name: str) -> bool:
    """Whether kernels compute a model of the catalogue, with rotary positions."""
    try:
        check_native(load_model(name))
    except (BadInputError, UsageError):
        return False
    model = load_model(name)
    return model.is_dense and isinstance(model.dense.position, Rope)


ROTARY = [name for name in catalogue_names() if runs_and_turns(name)]


def reference(model: Model, capacity: int) -> tuple[Any, Any]:
    """(cos, sin) of the model's own module for one sequence of `capacity` tokens."""
    module = import_module(f"transformers.models.{model.family}.modeling_{model.family}")
    rotary = getattr(module, f"{model.family.capitalize()}RotaryEmbedding")
    config = AutoConfig.for_model(**hf_config(model, "f32"))
    found = rotary(config)(torch.zeros(1), torch.arange(capacity)[None])
    return tuple(table[0, :, : table.shape[-1] // 2].numpy() for table in found)


def check(model: Model, capacity: int) -> None:
    tables = rope_tables(model, capacity)
    assert tables is not None
    # The module's f32 powers are off by a few ulps (which, depends on where torch's vectors begin), times a position.
    allowed = 1e-6 + np.arange(capacity)[:, None] * 2.0**-21
    for ours, theirs in zip(tables, reference(model, capacity), strict=True):
        assert ours.dtype == np.float32
        assert ours.shape == theirs.shape
        assert np.all(np.abs(ours - theirs) <= allowed)


@together("name", ROTARY)
def test_every_catalogue_model(name: str) -> None:
    model = load_model(name)
    check(model, 300)
    if isinstance(model.dense.position, Rope) and isinstance(model.dense.position.scaling, LongRope):
        check(model, model.dense.position.scaling.original_context)
        check(model, model.dense.position.scaling.original_context + 1)


@pytest.mark.parametrize("family", ["llama", "mistral", "phi3", "qwen2", "qwen3"])
def test_every_family_to_its_context(family: str) -> None:
    check(family_model(family), 2048)


def test_linear_scaling() -> None:
    position = Rope(theta=1e4, rotary_dim=64, scaling=LinearScaling(factor=4.0))
    check(reshaped(family_model("llama"), position=position), 1000)


def test_the_first_positions_agree_to_a_millionth() -> None:
    tables = rope_tables(family_model("phi3"), 16)
    assert tables is not None
    for ours, theirs in zip(tables, reference(family_model("phi3"), 16), strict=True):
        assert np.abs(ours - theirs).max() <= 1e-6


def test_learned_positions_have_no_tables() -> None:
    assert rope_tables(family_model("opt"), 100) is None
