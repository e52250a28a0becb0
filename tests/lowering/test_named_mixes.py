"""Mixtures by their names, against sizes that llama.cpp publishes, and rules that no size of one model shows."""

import pytest
from together import together

from helmsman.hwdb.load_model import load_model
from helmsman.lowering.mix_rules import MIXES
from helmsman.lowering.named_mixes import named_mix, role_of
from helmsman.planner.file_formats import resolve_formats, true_bits
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import NAMED_MIXES, NamedMix, StoredFormat, block_of, format_named

PUBLISHED = {
    "iq1_s": 2.0042, "iq1_m": 2.1460, "iq2_xxs": 2.3824, "iq2_xs": 2.5882, "iq2_s": 2.7403, "iq2_m": 2.9294,
    "iq3_xxs": 3.2548, "iq3_xs": 3.4977, "iq3_s": 3.6606, "iq3_m": 3.7628, "iq4_xs": 4.4597, "iq4_nl": 4.6818,
    "q2_k_s": 2.9697, "q2_k": 3.1593, "q3_k_s": 3.6429, "q3_k_l": 4.2979, "q4_k_s": 4.6672, "q4_k_m": 4.8944,
    "q5_k_s": 5.5704, "q5_k_m": 5.7036, "q6_k": 6.5633, "q8_0": 8.5008, "f16": 16.0005,
}  # fmt: skip
"""Bits a weight of Llama-3.1-8B (ggml-org/llama.cpp, tools/quantize/README.md at 311c2c9)."""

GIB = {"q3_k_m": 3.74, "q5_0": 5.21, "q5_1": 5.65, "q4_1": 4.78}
"""GiB of files of Llama-3-8B, which have 7 MB of vocabulary beside (tools/perplexity/README.md, revision f364eb6f)."""

HEADER = 0.008


@together(("fmt", "bits"), PUBLISHED.items())
def test_a_mixture_has_the_published_bits(fmt: str, bits: float) -> None:
    name = "Llama-3.1-8B"
    got = true_bits(load_model(name), name, fmt)[1]
    # Plain vectors are f32 in llama.cpp's f16 files, and f16 in ours.
    assert got == pytest.approx(bits, abs=6e-4 if fmt == "f16" else 6e-5)


@pytest.mark.parametrize(("fmt", "size"), GIB.items())
def test_a_mixture_has_the_published_size(fmt: str, size: float) -> None:
    name = "Meta-Llama-3-8B"
    got = true_bits(load_model(name), name, fmt)[0] / 2**30
    assert got - 0.005 <= size <= got + HEADER + 0.005


def formats_of(name: str, mix: NamedMix, op: str) -> list[StoredFormat]:
    """The formats of an operation's matrices, block by block."""
    formats = named_mix(load_model(name), mix)
    return [fmt for (tensor, _), fmt in formats.items() if tensor == f"{op}.weight"]


def test_models_of_eight_experts_keep_attention_in_more_bits() -> None:
    mixtral = "Mixtral-8x7B-v0.1"
    assert set(formats_of(mixtral, "q5_k_m", "v")) == {"q8_0"} == set(formats_of(mixtral, "q3_k_m", "k"))
    assert set(formats_of(mixtral, "q3_k_m", "o")) == {"q5_k"} and set(formats_of(mixtral, "q3_k_l", "o")) == {"q3_k"}
    assert set(formats_of(mixtral, "iq2_m", "v")) == {"q4_k"} and set(formats_of(mixtral, "iq2_m", "o")) == {"q5_k"}


def test_values_of_eighty_layers_have_a_bit_more() -> None:
    assert set(formats_of("Llama-3.1-70B", "q4_k_s", "v")) == {"q5_k"}
    assert set(formats_of("Llama-3.1-70B", "q3_k_s", "v")) == {"q5_k"}
    assert set(formats_of("Llama-3.1-8B", "q3_k_s", "v")) == {"q3_k"}


def test_a_tied_embedding_is_the_output() -> None:
    assert formats_of("Qwen3-0.6B", "q4_k_s", "embedding") == ["q6_k"]
    assert formats_of("Qwen3-8B", "q4_k_s", "embedding") == ["q4_k"]


def test_rows_that_are_no_whole_blocks_have_shorter_ones() -> None:
    """Of 896 columns; the mixture that Helm writes has what its kernels multiply."""
    name = "Qwen2.5-0.5B"
    assert set(formats_of(name, "q4_k_s", "q")) == {"q5_0"} and set(formats_of(name, "q3_k_s", "q")) == {"q4_0"}
    assert set(formats_of(name, "q4_k_m", "q")) == {"q8_0"} and set(formats_of(name, "iq4_xs", "q")) == {"iq4_nl"}


def test_every_mixture_is_of_whole_blocks_in_models_of_every_kind() -> None:
    from helmsman.lowering.tensors import tensors

    for name in (
        "opt-125m",
        "Phi-3.5-mini-instruct",
        "DeepSeek-V2-Lite",
        "Qwen3-Next-80B-A3B-Instruct",
        "gemma-4-E2B-it",
    ):
        model = load_model(name)
        shapes = {(tensor.name, tensor.layer): tensor for tensor in tensors(model)}
        for mix in NAMED_MIXES:
            formats = named_mix(model, mix)
            assert set(formats) == {key for key, one in shapes.items() if one.quantised and one.tied_to is None}
            assert not [key for key, fmt in formats.items() if shapes[key].shape[-1] % block_of(fmt)], (name, mix)


@pytest.mark.parametrize(
    ("file", "role"),
    [
        ("blk.0.attn_output.weight", "out"),
        ("output.weight", "output"),
        ("per_layer_token_embd.weight", "embedding"),
        ("blk.3.attn_qkv.weight", "values"),
        ("blk.3.attn_q_a.weight", "other"),
        ("blk.3.ffn_gate_up_exps.weight", "gate"),
        ("blk.3.ffn_down_shexp.weight", "down"),
        ("blk.3.ssm_out.weight", "other"),
    ],
)
def test_a_tensor_has_the_role_that_its_name_says(file: str, role: str) -> None:
    assert role_of(file) == role


def test_mixtures_are_named_as_files_are() -> None:
    assert set(MIXES) == set(NAMED_MIXES)
    assert format_named("MXFP4_MOE") == "mxfp4" and format_named("Q5_K_S") == "q5_k_s"
    with pytest.raises(UsageError, match="GGUF file itself"):
        format_named("UD-Q4_K_XL")
    with pytest.raises(UsageError, match="experts"):
        resolve_formats("mxfp4", "Qwen3-8B", load_model("Qwen3-8B"))
    formats = resolve_formats("mxfp4", "Qwen3-30B-A3B", load_model("Qwen3-30B-A3B"))[1]
    assert formats["experts_up.weight", 0] == "mxfp4" and formats["q.weight", 0] == "q8_0"
