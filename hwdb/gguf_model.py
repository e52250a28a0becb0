"""A Model from the header of a GGUF file: dimensions from its metadata, structure from the tensors it has."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, get_args

from helmsman.hwdb.config_fields import MAX_DIMENSION, Fields
from helmsman.hwdb.file_names.gguf import gguf_table
from helmsman.hwdb.gguf_configs.facts import Content, GgufFacts, architecture_fields, block_number
from helmsman.hwdb.gguf_configs.registry import TRANSLATIONS, check_metadata, renamed, translated
from helmsman.hwdb.gguf_header import Array, Header, TensorPlace
from helmsman.hwdb.gguf_rope import ROPE_TENSORS, gguf_rope
from helmsman.hwdb.model_config import model_from_config
from helmsman.schemas.dense_model import DenseModel, Family
from helmsman.schemas.described import described
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import Format
from helmsman.schemas.model import Model

FAMILIES: dict[str, Family] = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "phi3": "phi3"}
"""Architectures of equal, dense blocks, and the families whose operations they have; others are translated."""

_DRAFT_NAMES = tuple(
    f"nextn.{name}.weight"
    for name in ("eh_proj", "embed_tokens", "enorm", "hnorm", "shared_head_head", "shared_head_norm")
)
_SCALES = ("scale", "input_scale")

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


def model_from_gguf(header: Header, content: Content, name: str, data: bytes = b"") -> Model:
    """Return the model that `header` describes; of the `content` of tensors only rotary factors are read.

    `name` is used where the file says none; `data`: the file's beginning, which has the metadata's arrays. Raises
    BadInputError for what is missing, out of range or not covered, and for a key or a tensor that would be left out."""
    architecture = _architecture(header)
    fields = architecture_fields(header, data, architecture)
    if architecture in FAMILIES and not fields.content.get("expert_count"):
        return _dense_model(header, content, name, FAMILIES[architecture], fields)
    facts = _facts(header, content, fields)
    config = translated(facts, architecture)
    try:
        model = model_from_config(config, _name(header, name), header.file)
    except BadInputError as error:
        raise renamed(error, facts) from None
    _check_names(facts, architecture, model)
    return model.model_copy(update=_about_file(header, model.vocab))


def _architecture(header: Header) -> str:
    metadata = header.metadata.get("general.architecture")
    if not isinstance(metadata, str) or metadata not in {*FAMILIES, *TRANSLATIONS}:
        known = sorted({*FAMILIES, *TRANSLATIONS})
        remedy = f"covered: {', '.join(known)}"
        raise _wrong(header, "general.architecture", "not covered", metadata, remedy)
    return metadata


def _facts(header: Header, content: Content, fields: Fields) -> GgufFacts:
    """Return what translations read; blocks behind those of the model propose tokens."""
    blocks = fields.integer("block_count", high=_MAX_LAYERS)
    drafts = fields.integer("nextn_predict_layers", 0, low=0, high=blocks - 1)
    _vocab(header, fields.integer("embedding_length"))
    return GgufFacts(fields, header, content, blocks - drafts, drafts)


def _about_file(header: Header, vocab: int) -> dict[str, Any]:
    """Return the fields of a model that say what its file is."""
    return {
        "native_format": _native_format(header.tensors),
        "eos": _ends(header, vocab),
        "source": _printable(header.file) or "unknown",
    }


def _check_names(facts: GgufFacts, architecture: str, model: Model) -> None:
    """Raise BadInputError for a tensor whose name no tensor of the architecture has, or of a block beyond the last."""
    table = gguf_table(model.family, model.routed)
    assert table is not None
    rules = [complete for rule in (*table.blocks, *table.ends, *table.head) for complete in rule.complete()]
    known = {name for rule in rules for name in rule.files} | {*ROPE_TENSORS, *_DRAFT_NAMES}
    blocks = facts.layers + facts.drafts
    for name in facts.tensors:
        number = block_number(name)
        if number is not None and number >= blocks:
            message = f"a tensor of a block beyond the {blocks} of block_count"
            raise _wrong(facts.header, name, message, None, "the file is damaged: write or download it again")
        own = name.removeprefix(f"blk.{number}.")
        if own not in known and not _scales_another(facts, name):
            message = f"not covered: a tensor that models of {architecture} do not have here"
            raise _wrong(facts.header, name, message, None, "choose a model that is covered")


def _scales_another(facts: GgufFacts, name: str) -> bool:
    """Whether a tensor is the scale of a whole matrix in nvfp4, or of what is multiplied with it."""
    stem, _, part = name.rpartition(".")
    matrix = facts.tensors.get(f"{stem}.weight")
    return part in _SCALES and matrix is not None and matrix.type.name == "nvfp4"


def _dense_model(header: Header, content: Content, name: str, family: Family, fields: Fields) -> Model:
    layers = fields.integer("block_count", high=_MAX_LAYERS)
    _check_tensors(header, family, layers)
    heads = fields.integer("attention.head_count", high=_MAX_HEADS)
    hidden, head_dim = fields.integer("embedding_length"), _head_dim(fields, heads)
    max_context = fields.integer("context_length", high=_MAX_CONTEXT)
    vocab = _vocab(header, hidden)
    model = described(
        DenseModel(
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
            **_about_file(header, vocab),
        )
    )
    check_metadata(fields, family)
    return model


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
