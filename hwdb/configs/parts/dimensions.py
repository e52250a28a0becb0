"""Reads dimensions and other plain facts of a model, from the keys that nearly every `config.json` has."""

from dataclasses import dataclass

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.parts.config import Config
from helmsman.schemas.dense_model import DenseActivation
from helmsman.schemas.formats import Format

MAX_LAYERS = 1024
MAX_HEADS = 4096
MAX_CONTEXT = 2**28

_ACTIVATIONS: dict[str, DenseActivation] = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
_DTYPES: dict[str, Format] = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}


@dataclass(frozen=True, slots=True)
class HeadCounts:
    """Holds how many query heads and key/value heads there are, and values of a head."""

    count: int
    kv: int
    dim: int

    @property
    def scale(self) -> float:
        """Return by what scores are multiplied where nothing else is said: dim^-1/2."""
        return float(self.dim**-0.5)


def layer_count(fields: Fields) -> int:
    """Return how many layers the config states."""
    return fields.integer("num_hidden_layers", high=MAX_LAYERS)


def hidden_size(fields: Fields) -> int:
    """Return values of a token's hidden state."""
    return fields.integer("hidden_size")


def context(fields: Fields, default: int | None = None) -> int:
    """Return the longest context in tokens; required unless the class's default is given."""
    return fields.integer("max_position_embeddings", default, high=MAX_CONTEXT)


def grouped_heads(fields: Fields, head_dim: int | None = None) -> HeadCounts:
    """Return the heads of grouped-query attention; `head_dim`: the class's default, hidden / heads without one.

    Raises BadInputError where they do not divide."""
    count = fields.integer("num_attention_heads", high=MAX_HEADS)
    if fields.has("head_dim"):
        dim = fields.integer("head_dim", high=MAX_HEADS)
    else:
        dim = head_dim or head_dim_from_hidden(fields, hidden_size(fields), count)
    return HeadCounts(count, kv_heads(fields, count), dim)


def head_dim_from_hidden(fields: Fields, hidden: int, heads: int, key: str = "num_attention_heads") -> int:
    """Return hidden / heads. Raises BadInputError where that is no whole number or too large."""
    if hidden % heads or hidden // heads > MAX_HEADS:
        message = f"must divide the hidden size ({hidden}) into heads of at most {MAX_HEADS}"
        raise fields.wrong(key, message, "correct one of the two")
    return hidden // heads


def kv_heads(fields: Fields, heads: int, optional: bool = False, key: str = "num_key_value_heads") -> int:
    """Return key/value heads; null means as many as query heads, and so does absence where that is `optional`.

    Classes have a fixed number as default, whatever the heads: readers ask rather than guess."""
    default = heads if optional or key in fields.content else None
    count = fields.integer(key, default, high=MAX_HEADS)
    if heads % count:
        raise fields.wrong(key, f"must divide num_attention_heads ({heads})", "correct it")
    return count


def activation(fields: Fields, key: str, default: str) -> DenseActivation:
    """Return the function of a network. Raises BadInputError that names one which is not covered."""
    result = _ACTIVATIONS.get(fields.text(key, default))
    if result is None:
        raise fields.wrong(key, "activation not covered", f"covered: {', '.join(_ACTIVATIONS)}")
    return result


def native_format(config: Config) -> Format:
    """Return the format of weights that are not quantised."""
    fields, key = next(
        (
            (fields, key)
            for fields in (config.fields, config.whole)
            for key in ("dtype", "torch_dtype")
            if fields.has(key)
        ),
        (config.fields, "torch_dtype"),
    )
    # PyTorch builds float32 where nothing is said; what stands beside quantised weights never is.
    default = "bfloat16" if config.holder("quantization_config").has("quantization_config") else "float32"
    result = _DTYPES.get(fields.text(key, default).removeprefix("torch."))
    if result is None:
        raise fields.wrong(key, "format not covered", f"covered: {', '.join(_DTYPES)}")
    return result


def end_tokens(config: Config, default: tuple[int, ...]) -> tuple[int, ...]:
    """Return the tokens that end a text; the whole file's, where the text model's are others."""
    return config.holder("eos_token_id").integers("eos_token_id") or default


def tied(config: Config, default: bool) -> bool:
    """Return whether the head is the embedding's table."""
    return config.agreed("tie_word_embeddings", lambda fields: fields.flag("tie_word_embeddings", default))


def source(config: Config) -> str:
    """Return where the dimensions come from: what a catalogue's file says, otherwise the file's name."""
    content = config.whole.content.get("_source")
    text = content if isinstance(content, str) and content else config.whole.file
    printable = "".join(letter for letter in text if letter.isprintable())
    return printable[:200] or "unknown"
