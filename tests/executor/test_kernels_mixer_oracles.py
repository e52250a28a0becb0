"""Routers, recurrences and norms against the modules of transformers, with the default instruction set."""

import os
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Pool

Floats = NDArray[np.float32]
HIDDEN = 24


@pytest.fixture(scope="module")
def pool() -> Pool:
    cpus = sorted(os.sched_getaffinity(0))
    return Pool([cpus[0], cpus[-1]])


def module(family: str) -> Any:
    """The model's own module."""
    return import_module(f"transformers.models.{family}.modeling_{family}")


def router(family: str, name: str, **config: object) -> Any:
    """A router of random weights, biases and corrections."""
    made = getattr(module(family), name)(SimpleNamespace(hidden_size=HIDDEN, **config))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in (*made.parameters(), *made.buffers()):
            tensor.copy_(torch.randn(tensor.shape, generator=generator) / 3)
    return made


def agree(pool: Pool, outcome: tuple[Any, Any, Any], **options: Any) -> None:
    """The oracle gives logits, weights and experts, in any order."""
    logits, weights, ids = (part.detach().numpy() for part in outcome)
    order = np.argsort(ids, 1)
    rows, chosen = ids.shape
    ours, factors = np.zeros((rows, chosen), np.int32), np.zeros((rows, chosen), np.float32)
    kernels.route(pool, np.ascontiguousarray(logits), ours, factors, rows, logits.shape[1], chosen, **options)
    np.testing.assert_array_equal(ours, np.take_along_axis(ids, order, 1))
    np.testing.assert_allclose(factors, np.take_along_axis(weights, order, 1), rtol=3e-6)


@pytest.fixture
def x() -> Any:
    return torch.randn(40, HIDDEN, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize(("family", "name"), [("qwen3_moe", "Qwen3MoeTopKRouter"), ("olmoe", "OlmoeTopKRouter")])
def test_softmax_routers(pool: Pool, x: Any, family: str, name: str, normalised: bool) -> None:
    oracle = router(family, name, num_experts=64, num_experts_per_tok=8, norm_topk_prob=normalised)
    agree(pool, oracle(x), normalised=normalised)


def test_router_of_mixtral(pool: Pool, x: Any) -> None:
    agree(pool, router("mixtral", "MixtralTopKRouter", num_local_experts=8, num_experts_per_tok=2)(x))


def test_router_of_gpt_oss(pool: Pool, x: Any) -> None:
    oracle = router("gpt_oss", "GptOssTopKRouter", num_local_experts=32, num_experts_per_tok=4)
    agree(pool, oracle(x), score="none", weighted="softmax-of-chosen")


@pytest.mark.parametrize("normalised", [False, True])
def test_router_of_deepseek_v3(pool: Pool, x: Any, normalised: bool) -> None:
    oracle = router(
        "deepseek_v3",
        "DeepseekV3TopkRouter",
        num_local_experts=64,
        num_experts_per_tok=6,
        routed_scaling_factor=2.5,
        n_group=8,
        topk_group=3,
        norm_topk_prob=normalised,
    )
    correction = oracle.e_score_correction_bias.numpy()
    agree(
        pool,
        oracle(x),
        score="sigmoid",
        correction=correction,
        groups=8,
        kept=3,
        normalised=normalised,
        eps=1e-20,
        scaling=2.5,
    )


def test_router_of_minimax_m2(pool: Pool, x: Any) -> None:
    oracle = router("minimax_m2", "MiniMaxM2TopKRouter", num_local_experts=32, num_experts_per_tok=8)
    correction = torch.randn(32, generator=torch.Generator().manual_seed(3))
    agree(pool, oracle(x, correction), score="sigmoid", correction=correction.numpy())


def test_router_of_deepseek_v4(pool: Pool, x: Any) -> None:
    oracle = router(
        "deepseek_v4",
        "DeepseekV4TopKRouter",
        num_local_experts=48,
        num_experts_per_tok=6,
        scoring_func="sqrtsoftplus",
        routed_scaling_factor=1.5,
    )
    correction = oracle.e_score_correction_bias.numpy()
    agree(pool, oracle(x), score="sqrt-softplus", correction=correction, eps=1e-20, scaling=1.5)


def delta_inputs(tokens: int, per_dimension: bool = False) -> dict[str, Any]:
    """Queries and keys of two heads, values of four (two where decays are per dimension), as the oracles name them."""
    generator = torch.Generator().manual_seed(tokens)
    heads = 2 if per_dimension else 4

    def normal(*shape: int) -> Any:
        return torch.randn(1, tokens, *shape, generator=generator)

    return {
        "query": normal(2, 32),
        "key": normal(2, 32),
        "value": normal(heads, 48),
        "g": -torch.nn.functional.softplus(normal(heads, 32) if per_dimension else normal(heads)),
        "beta": torch.sigmoid(normal(heads)),
        "initial_state": torch.randn(1, heads, 32, 48, generator=generator),
    }


def check_delta(pool: Pool, inputs: dict[str, Any], oracle: Any, per_dimension: bool) -> None:
    exact, after = oracle(**inputs, output_final_state=True, use_qk_l2norm_in_kernel=True)
    arrays = {name: value.numpy().copy() for name, value in inputs.items()}
    state, out = arrays["initial_state"], np.zeros(exact.shape, np.float32)
    shape = (2, exact.shape[2], 32, 48)
    kernels.recur(
        pool,
        *(arrays[name] for name in ("query", "key", "value", "g", "beta")),
        None,
        state,
        out,
        shape,
        1,
        exact.shape[1],
        per_dimension=per_dimension,
        query_scale=32**-0.5,
    )
    for ours, theirs in ((out, exact.numpy()), (state, after.numpy())):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())


@pytest.mark.parametrize("tokens", [1, 7, 64, 100])
@pytest.mark.parametrize("form", ["torch_recurrent_gated_delta_rule", "torch_chunk_gated_delta_rule"])
def test_gated_delta_rule(pool: Pool, tokens: int, form: str) -> None:
    check_delta(pool, delta_inputs(tokens), getattr(module("qwen3_next"), form), per_dimension=False)


@pytest.mark.parametrize("tokens", [1, 100])
def test_delta_rule_of_kimi(pool: Pool, tokens: int) -> None:
    oracle = module("kimi_linear").recurrent_kimi_delta_attention
    check_delta(pool, delta_inputs(tokens, per_dimension=True), oracle, per_dimension=True)


@pytest.mark.parametrize("tokens", [1, 9, 100])
@pytest.mark.parametrize("longest", [np.inf, 0.5])
def test_state_space_of_nemotron(pool: Pool, tokens: int, longest: float) -> None:
    """States are transposed: (head, state, channel) here, (head, channel, state) there."""
    generator = torch.Generator().manual_seed(tokens)
    heads, groups, channels, width = 6, 2, 24, 40
    values = torch.randn(1, tokens, heads, channels, generator=generator)
    raw = torch.randn(1, tokens, heads, generator=generator)
    b, c = (torch.randn(1, tokens, groups, width, generator=generator) for _ in range(2))
    bias, a_log, skip = (torch.randn(heads, generator=generator) for _ in range(3))
    before = torch.randn(1, heads, channels, width, generator=generator)
    exact, after = module("nemotron_h").mamba2_chunk_scan(
        values,
        raw,
        -torch.exp(a_log),
        b,
        c,
        16,
        D=skip,
        dt_bias=bias,
        initial_states=before,
        dt_softplus=True,
        dt_limit=(0.0, longest),
        return_final_states=True,
    )
    dt, decay = (np.zeros((tokens, heads), np.float32) for _ in range(2))
    for t in range(tokens):
        kernels.decays(raw[0, t].numpy(), bias.numpy(), a_log.numpy(), dt[t], decay[t], heads, 1, longest)
    state = np.ascontiguousarray(before.numpy().swapaxes(2, 3))
    out = np.zeros(exact.shape, np.float32)
    kernels.recur(
        pool,
        c.numpy(),
        b.numpy(),
        values.numpy(),
        decay,
        dt,
        skip.numpy(),
        state,
        out,
        (groups, heads, width, channels),
        1,
        tokens,
        corrects=False,
        normalised=False,
    )
    for ours, theirs in ((out, exact.numpy()), (state.swapaxes(2, 3), after.numpy())):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())


def test_decays_of_kimi() -> None:
    forget = module("kimi_linear").KimiLinearForgetGate
    oracle = forget(SimpleNamespace(linear_head_dim=16, linear_num_heads=3, hidden_size=HIDDEN))
    with torch.no_grad():
        for tensor in oracle.parameters():
            tensor.copy_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(tensor.numel())))
        values = torch.randn(1, 1, HIDDEN, generator=torch.Generator().manual_seed(0))
        raw = oracle.f_b_proj(oracle.f_a_proj(values)).flatten().numpy()
        exact = oracle(values).flatten().numpy()
    ours = np.zeros(48, np.float32)
    bias, a_log = oracle.dt_bias.detach().numpy(), oracle.A_log.detach().flatten().numpy()
    kernels.decays(raw, bias, a_log, None, ours, 3, 16)
    np.testing.assert_allclose(ours, exact, rtol=2e-5, atol=1e-6)


def test_convolutions_and_norms_of_mixers(pool: Pool) -> None:
    generator = torch.Generator().manual_seed(4)
    values, gates = (torch.randn(9, 48, generator=generator) for _ in range(2))
    weight, bias = torch.randn(48, 4, generator=generator), torch.randn(48, generator=generator)
    nemotron = module("nemotron_h")
    exact = nemotron.causal_conv1d_fn(values.T[None], weight, bias, activation="silu")[0].T.numpy()
    out, state = values.numpy().copy(), np.zeros((3, 48), np.float32)
    kernels.convolve(pool, out, np.ascontiguousarray(weight.numpy().T), bias.numpy(), state, 9, 48, 4, True)
    np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-6)
    norms: tuple[tuple[Any, int, dict[str, Any]], ...] = (
        (module("qwen3_next").Qwen3NextRMSNormGated(48, eps=1e-6), 48, {"kind": "silu"}),
        (module("kimi_linear").KimiLinearRMSNormGated(48, eps=1e-6), 48, {"kind": "sigmoid"}),
        (nemotron.NemotronHRMSNormGated(48, 16, 1e-6), 16, {"kind": "silu", "gate_first": True, "own_weights": True}),
    )
    for norm, width, options in norms:
        with torch.no_grad():
            norm.weight.copy_(torch.randn(48, generator=generator))
            theirs = norm(values, gates).numpy()
        scale, ours = norm.weight.detach().numpy(), np.zeros((9, 48), np.float32)
        for row in range(9):
            x, z = values[row].numpy(), gates[row].numpy()
            kernels.gated_norm(x, z, scale, ours[row], 48 // width, width, 1e-6, **options)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
