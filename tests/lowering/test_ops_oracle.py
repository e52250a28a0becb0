"""FLOPs against torch's own counter and weight bytes against a state dict, on small models of every structure."""

from collections.abc import Callable
from typing import Any

import pytest

from helmsman.hwdb.model_config import model_from_config
from helmsman.lowering.operation import Formats, Operation
from helmsman.lowering.ops import operations
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.formats import size_of
from helmsman.schemas.model import Model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
flop_counter = pytest.importorskip("torch.utils.flop_counter")

PROMPT, BATCH = 11, 2


def build(config: dict[str, Any]) -> Any:
    transformers.set_seed(0)
    hf = transformers.AutoConfig.for_model(**config)
    model = transformers.AutoModelForCausalLM.from_config(hf, attn_implementation="eager")
    return model.eval()


def counted(run: Callable[[], Any]) -> tuple[int, Any]:
    """(FLOPs of matrix products, result)."""
    with torch.no_grad(), flop_counter.FlopCounterMode(display=False) as counter:
        result = run()
    return counter.get_total_flops(), result


def product_flops(model: Model, it: Iteration) -> int:
    """FLOPs of matrix products alone (no bias adds), attention over the whole context as eager torch computes it."""
    found = operations(model, it, Formats())
    linear = sum(op.flops - bias_adds(op) for op in found if op.kind == "linear")
    dense = 4 * model.dense.heads * model.dense.head_dim * it.batch * it.tokens * it.context * model.layers
    return linear + dense


def bias_adds(op: Operation) -> int:
    return sum(op.tokens * tensor.elements for tensor in op.tensors if len(tensor.shape) == 1)


def test_flops_of_prefill_and_one_decode_step(small: tuple[dict[str, Any], Model]) -> None:
    from helmsman.executor.graph.static_cache import cache_argument

    config, model = small
    oracle = build(config)
    prompt = torch.arange(BATCH * PROMPT).reshape(BATCH, PROMPT) % model.vocab
    flops, out = counted(lambda: oracle(prompt, use_cache=True, logits_to_keep=1))
    assert flops == product_flops(model, Iteration(0, "prefill", BATCH, PROMPT, PROMPT))
    cache = {cache_argument(oracle): out.past_key_values}
    flops, _ = counted(lambda: oracle(prompt[:, :1], use_cache=True, **cache))
    assert flops == product_flops(model, Iteration(1, "decode", BATCH, 1, PROMPT + 1))


def test_causal_attention_counts_only_the_past() -> None:
    """Causal: the sum over tokens of what each may see; torch's dense count is the upper bound."""
    it = Iteration(0, "prefill", BATCH, PROMPT, PROMPT)
    config = {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "vocab_size": 8,
        "max_position_embeddings": 16,
    }
    model = model_from_config(config, "tiny", "config.json")
    (attention,) = (op for op in operations(model, it, Formats()) if op.kind == "attention")
    mask = torch.ones(PROMPT, PROMPT).tril()
    assert attention.flops == 4 * model.dense.q_width * BATCH * int(mask.sum())


def test_weight_bytes_of_a_pass_are_the_state_dict(small: tuple[dict[str, Any], Model]) -> None:
    config, model = small
    oracle = build(config).half()
    stored = sum(value.nbytes for value in oracle.state_dict().values())
    found = operations(model, Iteration(1, "decode", 1, 1, PROMPT), Formats())
    lookups = [op for op in found if op.kind == "lookup"]
    streamed = sum(op.weight_bytes for op in found if op.kind != "lookup")
    tables = sum(tensor.size("f16") for op in lookups for tensor in op.tensors)
    assert streamed + tables == stored  # a state dict lists a tied head under both names
    assert sum(op.weight_bytes for op in lookups) == size_of(model.hidden, "f16") * len(lookups[0].tensors)


def test_kv_bytes_are_the_caches(small: tuple[dict[str, Any], Model]) -> None:
    config, model = small
    oracle = build(config).to(torch.bfloat16)
    prompt = torch.arange(BATCH * PROMPT).reshape(BATCH, PROMPT) % model.vocab
    with torch.no_grad():
        cache = oracle(prompt, use_cache=True).past_key_values
    stored = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    written = operations(model, Iteration(0, "prefill", BATCH, PROMPT, PROMPT), Formats())
    read = operations(model, Iteration(1, "decode", BATCH, 1, PROMPT), Formats())
    assert sum(op.kv_write for op in written) == stored
    assert sum(op.kv_read for op in read) == stored


def test_every_tensor_belongs_to_exactly_one_operation(small: tuple[dict[str, Any], Model]) -> None:
    model = small[1]
    found = operations(model, Iteration(0, "prefill", 1, 3, 3), Formats())
    used: list[Tensor] = [tensor for op in found for tensor in op.tensors]
    assert sorted(used, key=repr) == sorted(tensors(model), key=repr)
    assert all(op.name == tensor.op for op in found for tensor in op.tensors)
