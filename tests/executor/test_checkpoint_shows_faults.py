"""A wrong model shows: peaked logits, small errors that stay small, planted faults that do not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from family_models import family_model
from oracle import RoundedCache, load_oracle, margins, mean_kl, oracle_greedy, oracle_logits

from helmsman.executor.checkpoint.weights_init import printable_ids
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.model import Model, Rope

LENGTH = 512
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

    def changed(self) -> float:
        """Share of positions whose best token is another one now."""
        return float((oracle_logits(self.oracle, self.tokens).argmax(-1) != self.logits.argmax(-1)).mean())

    @property
    def attention(self) -> Any:
        """The attention of a block in the middle."""
        base = self.oracle.model.decoder if self.model.family == "opt" else self.oracle.model
        return base.layers[self.model.layers // 2].self_attn


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
    found = [oracle_greedy(case(family).oracle, tokens[start : start + 24], 64).tokens for start in (0, 24, 48)]
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
    found = oracle_logits(lower, case(family).tokens)
    assert np.isfinite(found).all()
    assert mean_kl(case(family).logits, found) < 0.1


@contextmanager
def replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


def inverse_frequencies(theta: float, dim: int) -> torch.Tensor:
    return 1.0 / theta ** (torch.arange(0, dim, 2) / dim)


def wrong_base(case: Case, theta: float) -> Any:
    assert isinstance(case.model.position, Rope)
    wrong = inverse_frequencies(theta, case.model.position.rotary_dim)
    return replaced(case.oracle.model.rotary_emb, "inv_freq", wrong)


def swapped_heads(case: Case) -> Any:
    """Two KV heads exchanged in one block's keys and values."""
    dim = case.model.head_dim
    return _changed_weights(
        [case.attention.k_proj, case.attention.v_proj],
        lambda weight: torch.cat([weight[dim : 2 * dim], weight[:dim], weight[2 * dim :]]),
    )


def transposed(case: Case, name: str) -> Any:
    return _changed_weights([getattr(case.attention, name)], lambda weight: weight.T.contiguous())


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


def without_qk_norm(case: Case) -> Any:
    return replaced(case.attention, "q_norm", torch.nn.Identity())


FAULTS: dict[str, tuple[str, Callable[[Case], Any]]] = {
    "half the rope base": ("qwen3", lambda case: wrong_base(case, 5e5)),
    "another rope base": ("qwen3", lambda case: wrong_base(case, 1e4)),
    "llama without scaling": ("llama", lambda case: wrong_base(case, 5e5)),
    "swapped heads": ("qwen3", swapped_heads),
    "swapped heads with biases": ("qwen2", swapped_heads),
    "no norm of queries": ("qwen3", without_qk_norm),
    "transposed keys": ("qwen3", lambda case: transposed(case, "k_proj")),
    "transposed values": ("llama", lambda case: transposed(case, "v_proj")),
    "transposed output": ("opt", lambda case: transposed(case, "out_proj")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_shows(fault: str, case: Callable[[str], Case]) -> None:
    family, plant = FAULTS[fault]
    with plant(case(family)):
        assert case(family).kl() > FAULT
        assert case(family).changed() > 0.05
    assert case(family).kl() < 1e-9


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["Qwen3-0.6B", "TinyLlama-1.1B-Chat-v1.0", "opt-125m"])
def test_real_shapes(name: str, tmp_path: Path) -> None:
    case = Case(load_model(name), tmp_path / "c")
    assert np.median(margins(case.logits)) > 0.05
    assert case.kl(RoundedCache(torch.float16)) < 1e-4
    assert case.kl(RoundedCache(torch.bfloat16)) < 1e-3
    faults: list[Any] = [] if name == "opt-125m" else [swapped_heads(case), wrong_base(case, 5e5)]
    faults += [without_qk_norm(case), transposed(case, "v_proj")] if name == "Qwen3-0.6B" else []
    faults += [transposed(case, "out_proj")] if name == "opt-125m" else []
    for fault in faults:
        with fault:
            assert case.kl() > FAULT
