"""Published and hand-derived numbers: HELM's running example (eq 2.7, 4.1 to 4.5) and KV bytes of many models."""

import pytest

from helmsman.hwdb.load_model import load_model
from helmsman.lowering.operation import Formats, Operation
from helmsman.lowering.ops import operations
from helmsman.lowering.tensors import block_tensors
from helmsman.scheduler.iteration import Iteration, prefill
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

QWEN3_8B = load_model("Qwen3-8B")


def step(model: Model, context: int, batch: int = 1) -> tuple[Operation, ...]:
    return operations(model, Iteration(1, "decode", batch, 1, context), Formats())


def kv_bytes_per_token(model: Model) -> int:
    return sum(op.kv_write for op in step(model, 1))


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [  # 2 (K, V) x layers x kv heads x head dim x 2 B
        ("Qwen3-8B", 2 * 36 * 8 * 128 * 2),
        ("Qwen3-0.6B", 2 * 28 * 8 * 128 * 2),
        ("Qwen3-4B", 2 * 36 * 8 * 128 * 2),
        ("Qwen3-14B", 2 * 40 * 8 * 128 * 2),
        ("Qwen3-32B", 2 * 64 * 8 * 128 * 2),
        ("Qwen2.5-0.5B", 2 * 24 * 2 * 64 * 2),
        ("Qwen2.5-7B", 2 * 28 * 4 * 128 * 2),
        ("Llama-2-7b-hf", 2 * 32 * 32 * 128 * 2),
        ("Llama-2-70b-hf", 2 * 80 * 8 * 128 * 2),
        ("Llama-3.1-8B", 2 * 32 * 8 * 128 * 2),
        ("Llama-3.1-405B", 2 * 126 * 8 * 128 * 2),
        ("Llama-3.2-1B", 2 * 16 * 8 * 64 * 2),
        ("CodeLlama-34b-hf", 2 * 48 * 8 * 128 * 2),
        ("Mistral-7B-v0.1", 2 * 32 * 8 * 128 * 2),
        ("Phi-3-mini-4k-instruct", 2 * 32 * 32 * 96 * 2),
        ("Phi-4-mini-instruct", 2 * 32 * 8 * 128 * 2),
        ("phi-4", 2 * 40 * 10 * 128 * 2),
        ("TinyLlama-1.1B-Chat-v1.0", 2 * 22 * 4 * 64 * 2),
        ("opt-30b", 2 * 48 * 7168 * 2),
        ("opt-175b", 2 * 96 * 12288 * 2),
    ],
)
def test_kv_bytes_per_token(name: str, bytes_per_token: int) -> None:
    assert kv_bytes_per_token(load_model(name)) == bytes_per_token


def test_kv_of_the_running_example() -> None:
    """HELM-07 and eq 2.7: 144 KiB per token, 576 MiB at 4096; E-HELM-01: 16 MiB per block, not 16 KB."""
    assert kv_bytes_per_token(QWEN3_8B) == 144 * 2**10
    reads = [op.kv_read for op in step(QWEN3_8B, 4096) if op.kind == "attention"]
    assert sum(reads) == 576 * 2**20
    assert set(reads) == {16 * 2**20}


def test_kv_of_opt_175b() -> None:
    """E-GUPTA-04: keys and values of one block at 2048 tokens are 96 MiB, all blocks 9 GiB."""
    reads = [op.kv_read for op in step(load_model("opt-175b"), 2048) if op.kind == "attention"]
    assert set(reads) == {96 * 2**20}
    assert sum(reads) == 9 * 2**30


def test_block_weights_of_the_running_example() -> None:
    """Eq 4.1 to 4.3: W_attn 83.9 MB, W_FFN 302 MB, W_norm 0.016 MB, W_param 386 MB, FFN 78 % of it."""
    size = {tensor.name: tensor.size("f16") for tensor in block_tensors(QWEN3_8B, 0)}
    attention = sum(size[f"{name}.weight"] for name in "qkvo")
    ffn = sum(size[f"{name}.weight"] for name in ("gate", "up", "down"))
    norms = size["norm1.weight"] + size["norm2.weight"]
    assert attention == 83_886_080
    assert ffn == 301_989_888
    assert norms == 16_384
    assert sum(size.values()) == pytest.approx(386e6, rel=1e-3)
    assert ffn / sum(size.values()) == pytest.approx(0.78, abs=0.005)
    # Eq 4.1 leaves out the QK norms: 2 x 128 weights.
    assert sum(size.values()) - attention - ffn - norms == 512


def test_units_and_boundary() -> None:
    """HELM-11: L + 2 units; eq 4.4: 8 KB cross a boundary at batch 1."""
    assert [load_model(f"Qwen3-{size}").units for size in ("8B", "14B", "32B")] == [38, 42, 66]
    found = step(QWEN3_8B, 1)
    assert {op.unit for op in found} == set(range(38))
    assert {op.out_bytes for op in found if op.name in ("embedding", "down")} == {8192}


def test_embedding_is_looked_up_and_head_is_streamed() -> None:
    """E-HELM-05: 1.245 GB each; of the embedding a step reads one row."""
    first, *_, head = step(QWEN3_8B, 1)
    assert first.weight_bytes == 8192
    assert head.weight_bytes == 151936 * 4096 * 2 == 1_244_659_712


def test_arithmetic_intensity_of_both_phases() -> None:
    """Eq 2.3 to 2.6: S FLOP per weight byte in prefill, 1 in decode (f16)."""
    for tokens in (1, 512):
        it = Iteration(0, "prefill", 1, tokens, tokens)
        for op in operations(QWEN3_8B, it, Formats()):
            if op.kind == "linear" and op.name != "head":
                assert op.flops == tokens * op.weight_bytes


def test_projection_flops_use_the_width_of_the_heads() -> None:
    """E-HELM-09: q and o of Qwen3-4B are 4096 wide, not H = 2560; eq 4.9 as printed has 92.2 % of the FLOPs."""
    model = load_model("Qwen3-4B")
    block = [op for op in step(model, 1) if op.kind == "linear" and op.unit == 1]
    true = sum(op.flops for op in block)
    h, kv, f = model.hidden, model.dense.kv_width, model.dense.ffn
    printed = 2 * (2 * h * h + 2 * h * kv + 3 * h * f)
    assert printed / true == pytest.approx(0.922, abs=5e-4)


def test_attention_flops_of_a_step() -> None:
    """Eq 4.11: 4 B h_a c d_h per block."""
    found = [op for op in step(QWEN3_8B, 1000, batch=3) if op.kind == "attention"]
    assert {op.flops for op in found} == {4 * 3 * 32 * 1000 * 128}
    assert {op.kv_read for op in found} == {2 * 3 * 1000 * 8 * 128 * 2}  # eq 4.12


def test_prefill_computes_logits_of_the_last_position_only() -> None:
    """HELM-04."""
    found = operations(QWEN3_8B, prefill(Workload(prompt_tokens=128, batch=2)), Formats())
    tokens = {op.name: op.tokens for op in found}
    assert tokens["head"] == tokens["final_norm"] == 2
    assert tokens["down"] == 256
