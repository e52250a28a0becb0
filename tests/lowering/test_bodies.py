"""Operations of every kind of mixer and network: FLOPs, bytes and dataflow against sums written out."""

import pytest
from together import together

from helmsman.hwdb.load_model import load_model
from helmsman.lowering.bodies.block_pass import seen_by
from helmsman.lowering.buffers import CHUNK_ROWS
from helmsman.lowering.operation import Formats, Operation
from helmsman.lowering.ops import INPUT, block_index, block_ops, embedding_ops, operations, output_ops
from helmsman.lowering.routing import distinct_experts
from helmsman.lowering.tensors import block_tensors, parameters, tensors
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.blocks.attention import LatentAttention
from helmsman.schemas.blocks.feed_forward import Experts
from helmsman.schemas.model import Model

MODELS = (
    "Qwen3-8B",
    "Qwen3-30B-A3B",
    "gpt-oss-20b",
    "gemma-2-2b",
    "gemma-3-4b-it",
    "gemma-4-26B-A4B",
    "gemma-4-E2B-it",
    "Qwen3.5-35B-A3B",
    "DeepSeek-V2-Lite",
    "DeepSeek-V3.2",
    "DeepSeek-V4-Flash",
    "Kimi-Linear-48B-A3B-Instruct",
    "Llama-4-Scout-17B-16E-Instruct",
    "NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4",
    "LFM2-8B-A1B",
    "Falcon-H1-0.5B",
    "opt-350m",
)
BF16 = Formats(weights="bf16", kv="bf16", activations="bf16")
STEP = Iteration(1, "decode", 1, 1, 5000)
PROMPT = Iteration(0, "prefill", 1, 1000, 1000)


def named(model: Model, layer: int, name: str, iteration: Iteration = STEP) -> Operation:
    return next(op for op in block_ops(model, layer, iteration, BF16) if op.name == name)


def body_of(model: Model, kind: type, layer: int = -1) -> object:
    return next(body.op for body in model.blocks[layer].bodies if isinstance(body.op, kind))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("iteration", [STEP, PROMPT], ids=["step", "prompt"])
def test_every_operation_reads_what_earlier_ones_made(name: str, iteration: Iteration) -> None:
    model, made = load_model(name), set[str]()
    for op in operations(model, iteration, BF16):
        missing = set(op.inputs) - made - {"new_kv"}
        assert not missing, f"{op.name} of block {op.layer} reads {missing}"
        made |= set(op.names)
    assert {INPUT, "head"} <= made


@together("name", MODELS)
def test_every_tensor_is_read_by_one_operation(name: str) -> None:
    """What mixes a block's streams has an offset and scales beside its matrix."""
    model = load_model(name)
    for layer in (0, model.layers - 1):
        read = [tensor for op in block_ops(model, layer, STEP, BF16) for tensor in op.tensors]
        assert len(set(read)) == len(read)
        unread = {tensor.name for tensor in block_tensors(model, layer)} - {tensor.name for tensor in read}
        assert all(name.startswith(("mix", "block_scale")) for name in unread), unread
    ends = [*embedding_ops(model, STEP, BF16), *output_ops(model, STEP, BF16)]
    outside = {tensor for tensor in tensors(model) if tensor.layer is None}
    assert {tensor for op in ends for tensor in op.tensors} >= {
        tensor for tensor in outside if not tensor.name.startswith("merge_")
    }


@together("name", MODELS)
def test_names_of_a_blocks_operations_differ(name: str) -> None:
    model = load_model(name)
    for layout in model.layouts:
        ops = block_ops(model, model.pattern.index(layout.letter), STEP, BF16)
        assert len({op.name for op in ops}) == len(ops)


@together("window", [None, 1, 7, 64, 10_000])
@together(("past", "new"), [(0, 1), (0, 50), (63, 1), (64, 1), (100, 30), (5, 64)])
def test_pairs_of_a_window_are_those_of_every_token(window: int | None, past: int, new: int) -> None:
    seen = seen_by(Iteration(0, "prefill", 1, new, past + new), window)
    positions = range(past, past + new)
    firsts = {position: 0 if window is None else max(0, position - window + 1) for position in positions}
    assert seen.pairs == sum(position - first + 1 for position, first in firsts.items())
    assert seen.cached == past + new - min(firsts.values())


@pytest.mark.parametrize(("past", "new"), [(0, 1), (0, 50), (63, 1), (64, 1), (100, 30), (5, 64)])
def test_pairs_of_a_chunk_are_those_of_every_token(past: int, new: int) -> None:
    chunk = 16
    seen = seen_by(Iteration(0, "prefill", 1, new, past + new), chunk=chunk)
    firsts = {position: position // chunk * chunk for position in range(past, past + new)}
    assert seen.pairs == sum(position - first + 1 for position, first in firsts.items())
    assert seen.cached == past + new - min(firsts.values())


def test_distinct_experts_are_those_of_a_simulation() -> None:
    experts = body_of(load_model("Qwen3-30B-A3B"), Experts)
    assert isinstance(experts, Experts)
    assert distinct_experts(experts, 1) == pytest.approx(8)
    assert distinct_experts(experts, 16) == pytest.approx(82.42, abs=0.005)
    assert distinct_experts(experts, 10_000) == pytest.approx(128)


def test_experts_read_those_that_are_chosen() -> None:
    model = load_model("Qwen3-30B-A3B")
    one = 3 * 2048 * 768 * 2
    step = [named(model, 0, f"experts_{which}") for which in ("gate", "up", "down")]
    assert sum(op.weight_bytes for op in step) == 8 * one
    assert sum(op.flops for op in step) == 8 * 2 * 3 * 2048 * 768
    prompt = [named(model, 0, f"experts_{which}", PROMPT) for which in ("gate", "up", "down")]
    assert sum(op.weight_bytes for op in prompt) == pytest.approx(128 * one, rel=1e-9)
    assert sum(op.flops for op in prompt) == 1000 * 8 * 2 * 3 * 2048 * 768


@pytest.mark.parametrize("name", ["DeepSeek-V2-Lite", "DeepSeek-V3", "GLM-4.7-Flash", "Kimi-K2-Instruct"])
def test_expanding_latent_attention_takes_fewer_flops_from_some_hundred_tokens_on(name: str) -> None:
    """Expanding would pay for more tokens than 171 to 399; a chunk of a prompt has up to CHUNK_ROWS, which the kernels
    attend to over latent vectors as they do decode steps."""
    latent = body_of(load_model(name), LatentAttention)
    assert isinstance(latent, LatentAttention)
    expanded = latent.latent * (latent.nope_dim + latent.value_dim)
    saved = 2 * latent.latent - latent.nope_dim - latent.value_dim
    assert 170 * saved < expanded < 400 * saved < CHUNK_ROWS * saved


def test_a_step_of_latent_attention() -> None:
    model = load_model("DeepSeek-V3")
    heads, nope, rope, latent, values, context = 128, 128, 64, 512, 128, STEP.context
    assert named(model, 0, "k_b").flops == 2 * heads * nope * latent
    assert named(model, 0, "v_b").flops == 2 * heads * values * latent
    attention = named(model, 0, "attention")
    assert attention.flops == 2 * heads * context * (latent + rope) + 2 * heads * context * latent
    assert attention.kv_read == context * (latent + rope) * 2
    assert named(model, 0, "append").kv_write == (latent + rope) * 2


def test_a_prompt_of_latent_attention() -> None:
    model, pairs = load_model("DeepSeek-V3"), 1000 * 1001 // 2
    attention = named(model, 0, "attention", PROMPT)
    assert attention.flops == 2 * 128 * pairs * (512 + 64 + 512)
    own = named(model, 0, "k_b", PROMPT).flops + named(model, 0, "v_b", PROMPT).flops
    assert own == 2 * 1000 * 512 * 128 * (128 + 128)


def test_an_indexer_reads_all_keys_and_attention_the_chosen() -> None:
    model = load_model("DeepSeek-V3.2")
    index, attention = named(model, 0, "index"), named(model, 0, "attention")
    assert index.kv_read == STEP.context * 128 * 2
    assert index.flops == 2 * STEP.context * 64 * 129
    assert attention.kv_read == 2048 * 576 * 2


def test_a_step_of_the_delta_rule() -> None:
    model = load_model("Qwen3.5-35B-A3B")
    delta = named(model, 0, "delta")
    assert delta.flops == 7 * 32 * 128 * 128
    assert delta.kv_read == 2 * 4 * 32 * 128 * 128
    prompt = named(model, 0, "delta", PROMPT)
    assert prompt.flops == 1000 * 32 * (6 * 128 * 128 + 64 * (5 * 128 + 3 * 128))


def test_a_window_reads_its_tokens_and_full_layers_all() -> None:
    model = load_model("gemma-3-4b-it")
    reads = [named(model, layer, "attention").kv_read for layer in range(6)]
    per_token = 4 * 2 * 256 * 2
    assert reads == [*[1024 * per_token] * 5, STEP.context * per_token]


def test_shared_caches_have_no_projections_of_keys() -> None:
    """Layers of Gemma 4 E that read an earlier layer's cache have queries alone, and read as much."""
    model = load_model("gemma-4-E2B-it")
    shared = [layer for layer in range(model.layers) if "rotate" in block_index(model, layer)]
    assert shared == list(range(15, 35))
    names = {op.name for op in block_ops(model, 20, STEP, BF16)}
    assert names.isdisjoint({"k", "v", "append"}) and {"q", "rotate", "attention"} <= names


@pytest.mark.parametrize(
    ("name", "layer", "elements"),
    [
        ("Qwen3.5-35B-A3B", 0, 842_700_992),
        ("Qwen3.5-35B-A3B", 3, 836_246_016),
        ("DeepSeek-V3", 0, 583_483_392),
        ("DeepSeek-V3", 3, 11_507_286_016),
        ("gpt-oss-20b", 0, 823_186_976),
        ("Falcon-H1-0.5B", 0, 12_618_568),
    ],
)
def test_parameters_of_a_layer(name: str, layer: int, elements: int) -> None:
    members = block_tensors(load_model(name), layer)
    assert sum(tensor.elements for tensor in members if not tensor.buffer) == elements


def test_fewer_layers_have_fewer_parameters() -> None:
    model = load_model("Qwen3.5-35B-A3B")
    half = model.with_layers(20)
    ends = sum(tensor.elements for tensor in tensors(model) if tensor.layer is None)
    assert parameters(model) - ends == 2 * (parameters(half) - ends)
