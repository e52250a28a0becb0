"""What holds for every model and shape: totals by unit, linearity, and prefill as a sum of single steps."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from helmsman.hwdb.model_config import model_from_config
from helmsman.lowering.operation import Formats, Operation
from helmsman.lowering.ops import operations
from helmsman.lowering.tensors import tensors
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.formats import FORMATS
from helmsman.schemas.model import Model

FORMAT = st.sampled_from(FORMATS)


@st.composite
def models(draw: st.DrawFn) -> Model:
    family = draw(st.sampled_from(["llama", "mistral", "opt", "phi3", "qwen2", "qwen3"]))
    kv_heads, groups, head_dim = draw(st.integers(1, 4)), draw(st.integers(1, 4)), 2 * draw(st.integers(1, 8))
    heads = kv_heads if family == "opt" else kv_heads * groups
    config: dict[str, Any] = {
        "model_type": family,
        "num_hidden_layers": draw(st.integers(1, 4)),
        "hidden_size": heads * head_dim,
        "num_attention_heads": heads,
        ("ffn_dim" if family == "opt" else "intermediate_size"): draw(st.integers(1, 99)),
        "vocab_size": draw(st.integers(1, 99)),
        "max_position_embeddings": 256,
        "tie_word_embeddings": draw(st.booleans()),
    }
    if family != "opt":
        config["num_key_value_heads"] = kv_heads
    if family == "qwen3":
        config["head_dim"] = 2 * draw(st.integers(1, 8))
    if family == "llama":
        config |= {"attention_bias": draw(st.booleans()), "mlp_bias": draw(st.booleans())}
    return model_from_config(config, "drawn", "config.json")


@st.composite
def iterations(draw: st.DrawFn) -> Iteration:
    tokens = draw(st.integers(1, 40))
    context = tokens + draw(st.integers(0, 40))
    phase = "decode" if tokens == 1 else "prefill"
    return Iteration(draw(st.integers(0, 5)), phase, draw(st.integers(1, 4)), tokens, context)


formats = st.builds(Formats, FORMAT, FORMAT, FORMAT)
quick = settings(max_examples=60, deadline=None)


def total(found: tuple[Operation, ...], field: str) -> int:
    return sum(getattr(op, field) for op in found)


@quick
@given(models(), iterations(), formats)
def test_every_unit_streams_exactly_its_tensors(model: Model, it: Iteration, fmt: Formats) -> None:
    found = operations(model, it, fmt)
    by_unit = Counter[int]()
    for op in found:
        by_unit[op.unit] += op.weight_bytes
    stored = Counter[int]()
    for tensor in tensors(model):
        unit = model.layers + 1 if tensor.op in ("final_norm", "head") else (tensor.layer or 0) + 1
        stored[0 if tensor.op == "embedding" else unit] += tensor.size(fmt.weights)
    assert {unit: by_unit[unit] for unit in by_unit if unit} == {u: stored[u] for u in stored if u}
    assert sum(by_unit.values()) == total(found, "weight_bytes")


@quick
@given(models(), iterations(), formats)
def test_order_and_shape_of_the_list(model: Model, it: Iteration, fmt: Formats) -> None:
    found = operations(model, it, fmt)
    units = [op.unit for op in found]
    assert units == sorted(units) and set(units) == set(range(model.units))
    assert len({(op.unit, op.name) for op in found}) == len(found)
    assert all(op.flops >= 0 and op.out_bytes > 0 and op.activation_bytes > 0 for op in found)
    assert all(op.layer == (op.unit - 1 if 0 < op.unit <= model.layers else None) for op in found)


@quick
@given(models(), iterations(), formats, st.integers(2, 5))
def test_a_batch_multiplies_work_but_not_weights(model: Model, it: Iteration, fmt: Formats, n: int) -> None:
    one = operations(model, Iteration(it.index, it.phase, 1, it.tokens, it.context), fmt)
    many = operations(model, Iteration(it.index, it.phase, n, it.tokens, it.context), fmt)
    for a, b in zip(one, many, strict=True):
        assert b.flops == n * a.flops
        assert (b.kv_read, b.kv_write) == (n * a.kv_read, n * a.kv_write)
        assert (b.activation_bytes, b.out_bytes) == (n * a.activation_bytes, n * a.out_bytes)
        assert b.weight_bytes == (n * a.weight_bytes if a.kind == "lookup" else a.weight_bytes)


@quick
@given(models(), st.integers(1, 20), st.integers(1, 3))
def test_prefill_is_the_sum_of_single_steps(model: Model, prompt: int, batch: int) -> None:
    """FLOPs of every operation but the output's, and the bytes written to the cache."""
    whole = operations(model, Iteration(0, "prefill", batch, prompt, prompt), Formats())
    flops, written = Counter[tuple[int, str]](), 0
    for context in range(1, prompt + 1):
        for op in operations(model, Iteration(0, "decode", batch, 1, context), Formats()):
            flops[op.unit, op.name] += op.flops
            written += op.kv_write
    assert all(flops[op.unit, op.name] == op.flops for op in whole if op.unit <= model.layers)
    assert total(whole, "kv_write") == written
    assert total(whole, "kv_read") == written


@quick
@given(models(), iterations(), st.integers(1, 50))
def test_only_attention_grows_with_the_context(model: Model, it: Iteration, more: int) -> None:
    short = operations(model, it, Formats())
    long = operations(model, Iteration(it.index, it.phase, it.batch, it.tokens, it.context + more), Formats())
    for a, b in zip(short, long, strict=True):
        if a.kind != "attention":
            assert a == b
            continue
        assert b.flops - a.flops == 4 * model.dense.q_width * it.batch * it.tokens * more
        assert b.kv_read - a.kv_read == 2 * it.batch * more * model.dense.kv_width * 2


@quick
@given(models(), iterations(), formats)
def test_formats_scale_their_own_bytes_only(model: Model, it: Iteration, fmt: Formats) -> None:
    f32 = Formats("f32", "f32", "f32")
    width = {"f32": 4, "f16": 2, "bf16": 2}
    for a, b in zip(operations(model, it, fmt), operations(model, it, f32), strict=True):
        assert a.flops == b.flops
        assert a.weight_bytes * 4 == b.weight_bytes * width[fmt.weights]
        assert a.kv_read * 4 == b.kv_read * width[fmt.kv]
        assert a.kv_write * 4 == b.kv_write * width[fmt.kv]
        assert a.out_bytes * 4 == b.out_bytes * width[fmt.activations]


def test_rotation_counts_the_dimensions_that_are_rotated() -> None:
    """Three FLOPs for each: two products and a sum; with a partial rotary factor the other dimensions stay."""
    config = {
        "model_type": "phi3",
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 80,
        "vocab_size": 99,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "partial_rotary_factor": 0.5,
    }
    model = model_from_config(config, "half", "config.json")
    found = operations(model, Iteration(1, "decode", 3, 1, 9), Formats())
    (append,) = (op for op in found if op.kind == "append")
    assert append.flops == 3 * 3 * (4 + 2) * 8
