"""A wrong model shows: peaked logits, small errors that stay small, planted faults that do not."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.faults import Plant, swapped_heads, transposed, without_qk_norm, wrong_base
from benchmarks.oracle import RoundedCache, load_oracle, margins, mean_kl, oracle_greedy, oracle_logits
from family_models import family_model

from helmsman.executor.checkpoint.weights_init import printable_ids
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.model import Model

LENGTH = 256
SHORT = 128
"""Of the tokens, for types in which processors are slow."""
FAULT = 1e-2


class Case:
    """A model with its checkpoint loaded by transformers, random text and its logits."""

    def __init__(self, model: Model, directory: Path) -> None:
        write_checkpoint(model, directory, seed=1)
        self.model, self.oracle = model, load_oracle(directory)
        generator = np.random.default_rng(0)
        self.tokens = generator.choice(printable_ids(model), LENGTH).tolist()
        self.logits = oracle_logits(self.oracle, self.tokens)

    def kl(self, cache: Any = None) -> float:
        """Divergence of what the oracle says now from what it said at first."""
        return mean_kl(self.logits, oracle_logits(self.oracle, self.tokens, cache))

    def changed(self) -> tuple[float, float]:
        """Divergence of what the oracle says now, and the share of positions whose best token is another one."""
        now = oracle_logits(self.oracle, self.tokens)
        return mean_kl(self.logits, now), float((now.argmax(-1) != self.logits.argmax(-1)).mean())


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    cases: dict[str, Case] = {}

    def built(family: str) -> Case:
        if family not in cases:
            place = tmp_path_factory.mktemp(family) / "c"
            cases[family] = Case(family_model(family), place)
        return cases[family]

    return built


FAMILIES = ("llama", "opt", "phi3", "qwen2", "qwen3")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_best_token_leads_visibly_and_varies(family: str, case: Callable[[str], Case]) -> None:
    best = case(family).logits.argmax(-1)
    assert np.median(margins(case(family).logits)) > 0.05
    assert len(set(best.tolist())) > 20
    assert np.isin(best, printable_ids(case(family).model)).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_rounded_kv_hardly_shows(family: str, case: Callable[[str], Case]) -> None:
    assert case(family).kl(RoundedCache(torch.float16)) < 1e-4
    assert case(family).kl(RoundedCache(torch.bfloat16)) < 1e-3


@pytest.mark.parametrize("family", ["llama", "opt", "qwen3"])
def test_greedy_text_varies_and_depends_on_the_prompt(family: str, case: Callable[[str], Case]) -> None:
    tokens = case(family).tokens
    found = [oracle_greedy(case(family).oracle, tokens[start : start + 24], 16).tokens for start in (0, 24, 48)]
    assert all(len(set(text)) >= 5 for text in found)
    assert len({tuple(text) for text in found}) == 3


@pytest.mark.parametrize("family", ["llama", "opt"])
def test_attention_is_far_from_uniform(family: str, case: Callable[[str], Case]) -> None:
    with torch.inference_mode():
        output = case(family).oracle(torch.tensor([case(family).tokens]), output_attentions=True)
    for weights in output.attentions:
        attended = 1 / weights[0, :, -64:].square().sum(-1)
        assert float(attended.median()) < LENGTH / 8


@pytest.mark.parametrize("family", ["opt", "qwen3"])
def test_activations_stay_finite_in_bf16(family: str, case: Callable[[str], Case]) -> None:
    lower = deepcopy(case(family).oracle).to(torch.bfloat16)
    found = oracle_logits(lower, case(family).tokens[:SHORT])
    assert np.isfinite(found).all()
    assert mean_kl(case(family).logits[:SHORT], found) < 0.1


FAULTS: dict[str, tuple[str, Plant]] = {
    "half the rope base": ("qwen3", wrong_base(5e5)),
    "another rope base": ("qwen3", wrong_base(1e4)),
    "llama without scaling": ("llama", wrong_base(5e5)),
    "swapped heads": ("qwen3", swapped_heads),
    "swapped heads with biases": ("qwen2", swapped_heads),
    "no norm of queries": ("qwen3", without_qk_norm),
    "transposed keys": ("qwen3", transposed("k_proj")),
    "transposed values": ("llama", transposed("v_proj")),
    "transposed output": ("opt", transposed("out_proj")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_shows(fault: str, case: Callable[[str], Case]) -> None:
    family, plant = FAULTS[fault]
    with plant(case(family).oracle, case(family).model):
        divergence, changed = case(family).changed()
        assert divergence > FAULT and changed > 0.05
    assert case(family).kl() < 1e-9


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["Qwen3-0.6B", "TinyLlama-1.1B-Chat-v1.0", "opt-125m"])
def test_real_shapes(name: str, tmp_path: Path) -> None:
    case = Case(load_model(name), tmp_path / "c")
    assert np.median(margins(case.logits)) > 0.05
    assert case.kl(RoundedCache(torch.float16)) < 1e-4
    assert case.kl(RoundedCache(torch.bfloat16)) < 1e-3
    faults: list[Plant] = [] if name == "opt-125m" else [swapped_heads, wrong_base(5e5)]
    faults += [without_qk_norm, transposed("v_proj")] if name == "Qwen3-0.6B" else []
    faults += [transposed("out_proj")] if name == "opt-125m" else []
    for plant in faults:
        with plant(case.oracle, case.model):
            assert case.kl() > FAULT
