"""A Model from the header of a GGUF file: dimensions from its metadata, structure from the tensors it has."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import get_args

from helmsman.hwdb.config_fields import MAX_DIMENSION, Fields
from helmsman.hwdb.gguf_header import Array, Header, TensorPlace
from helmsman.hwdb.gguf_rope import ROPE_TENSORS, Content, gguf_rope
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import Format
from helmsman.schemas.model import Family, Model

FAMILIES: dict[str, Family] = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "phi3": "phi3"}
"""Architectures of GGUF that are covered, and the families whose operations they have."""

_ENDS = ("token_embd.weight", "output.weight", "output_norm.weight", *ROPE_TENSORS)
_SEPARATE = ("attn_q", "attn_k", "attn_v", "attn_output", "attn_norm", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
_FUSED = ("attn_qkv", "attn_output", "attn_norm", "ffn_norm", "ffn_up", "ffn_down")
_IN_BLOCK: dict[Family, tuple[str, ...]] = {
    "llama": _SEPARATE,
    "qwen2": _SEPARATE,
    "qwen3": (*_SEPARATE, "attn_q_norm", "attn_k_norm"),
    "phi3": _FUSED,
}
_MAX_LAYERS = 1024
_MAX_HEADS = 4096
_MAX_CONTEXT = 2**28
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def model_from_gguf(header: Header, content: Content, name: str) -> Model:
    """Return the model that `header` describes; of the `content` of tensors only rotary factors are read.

    `name` is used where the file says none. Raises BadInputError for what is missing, out of range or not covered."""
    family, fields = _family(header)
    layers = fields.integer("block_count", high=_MAX_LAYERS)
    _check_tensors(header, family, layers)
    heads = fields.integer("attention.head_count", high=_MAX_HEADS)
    hidden, head_dim = fields.integer("embedding_length"), _head_dim(fields, heads)
    max_context = fields.integer("context_length", high=_MAX_CONTEXT)
    vocab = _vocab(header, hidden)
    return Model(
        name=_name(header, name),
        family=family,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(fields, heads),
        head_dim=head_dim,
        ffn=fields.integer("feed_forward_length"),
        vocab=vocab,
        max_context=max_context,
        activation="silu",
        gated=True,
        norm="rms",
        norm_eps=fields.real("attention.layer_norm_rms_epsilon", high=1.0),
        position=gguf_rope(header, content, fields, family, head_dim, max_context),
        qkv_bias="blk.0.attn_q.bias" in header.tensors,
        out_bias="blk.0.attn_output.bias" in header.tensors,
        ffn_bias="blk.0.ffn_up.bias" in header.tensors,
        qk_norm=family == "qwen3",
        tied_embeddings="output.weight" not in header.tensors,
        sliding_window=fields.integer("attention.sliding_window", 0, low=0, high=_MAX_CONTEXT) or None,
        native_format=_native_format(header.tensors),
        eos=_ends(header, vocab),
        source=_printable(header.file) or "unknown",
    )


def _family(header: Header) -> tuple[Family, Fields]:
    metadata = header.metadata.get("general.architecture")
    family = FAMILIES.get(metadata) if isinstance(metadata, str) else None
    if family is None:
        raise _wrong(header, "general.architecture", "not covered", metadata, f"covered: {', '.join(FAMILIES)}")
    prefix = f"{metadata}."
    own = {key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)}
    shown = {key: f"an array of {value.count}" if isinstance(value, Array) else value for key, value in own.items()}
    fields = Fields(shown, header.file, prefix)
    if fields.has("expert_count") and own["expert_count"] != 0:
        raise fields.wrong("expert_count", "not covered: experts", "choose a dense model")
    return family, fields


def _check_tensors(header: Header, family: Family, layers: int) -> None:
    """Raise BadInputError for a tensor that the family's operations, in `layers` blocks, would leave out."""
    in_block = re.compile(rf"blk\.(0|[1-9][0-9]*)\.(?:{'|'.join(_IN_BLOCK[family])})\.(?:weight|bias)")
    for name in header.tensors:
        block = in_block.fullmatch(name)
        if block is not None and int(block[1]) >= layers:
            message = f"a tensor of a block beyond the {layers} of block_count"
            raise _wrong(header, name, message, None, "the file is damaged: write or download it again")
        if name not in _ENDS and block is None:
            message = f"a tensor that models of {header.metadata['general.architecture']} do not have here"
            raise _wrong(header, name, f"not covered: {message}", None, "choose a model that is covered")


def _head_dim(fields: Fields, heads: int) -> int:
    if not fields.has("attention.key_length"):
        hidden = fields.integer("embedding_length")
        if hidden % heads or hidden // heads > _MAX_HEADS:
            remedy = "correct one of the two"
            raise fields.wrong("attention.head_count", f"must divide embedding_length ({hidden})", remedy)
        return hidden // heads
    integer = fields.integer("attention.key_length", high=_MAX_HEADS)
    if fields.integer("attention.value_length", integer, high=_MAX_HEADS) != integer:
        remedy = "choose another model"
        raise fields.wrong("attention.value_length", "not covered: values of another length than keys", remedy)
    return integer


def _kv_heads(fields: Fields, heads: int) -> int:
    kv_heads = fields.integer("attention.head_count_kv", heads, high=_MAX_HEADS)
    if heads % kv_heads:
        raise fields.wrong("attention.head_count_kv", f"must divide attention.head_count ({heads})", "correct it")
    return kv_heads


def _vocab(header: Header, hidden: int) -> int:
    """Return rows of the embedding: files may leave the number out of their metadata."""
    name = "token_embd.weight"
    place = header.tensors.get(name)
    if place is None:
        raise _wrong(header, name, "missing", None, "name the file (or the first of several) that has the weights")
    if len(place.shape) != 2 or place.shape[1] != hidden or place.shape[0] > MAX_DIMENSION:
        remedy = "the file is damaged: write or download it again"
        raise _wrong(header, name, f"rows of {hidden} values are expected", list(place.shape), remedy)
    return place.shape[0]


def _native_format(tensors: Mapping[str, TensorPlace]) -> Format:
    """Return the format that most values of matrices have; f16 where nothing multiplies it as it is."""
    values: Counter[str] = Counter()
    for place in tensors.values():
        if len(place.shape) == 2:
            values[place.type.name] += place.shape[0] * place.shape[1]
    commonest = values.most_common(1)[0][0]
    return next((fmt for fmt in get_args(Format) if fmt == commonest), "f16")


def _ends(header: Header, vocab: int) -> tuple[int, ...]:
    """Return the tokens that end a text or a turn."""
    keys = [f"tokenizer.ggml.{key}" for key in _END_KEYS]
    tokens = [header.metadata[key] for key in keys if key in header.metadata]
    return tuple(dict.fromkeys(token for token in tokens if type(token) is int and 0 <= token < vocab))


def _name(header: Header, otherwise: str) -> str:
    metadata = header.metadata.get("general.name")
    return _printable(metadata if isinstance(metadata, str) else "") or _printable(otherwise) or "model"


def _printable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())[:200]


def _wrong(header: Header, field: str, message: str, value: object, remedy: str) -> BadInputError:
    shown = None if isinstance(value, Array) else value
    return BadInputError(message, file=header.file, field=field, value=shown, remedy=remedy)
