"""Mixtures of formats that have names, as llama.cpp's files have them: which format each matrix is kept in.

The facts are those of `llama_tensor_get_type_impl` and `tensor_type_fallback` (ggml-org/llama.cpp, src/llama-quant.cpp
at 007dbbf): a matrix has the role that its name in the file says, and a place among those of its role. Mixtures for
which llama.cpp demands an importance matrix are as it makes them with one, the others without. Files that others mix by
rules of their own (`UD-...`) have no name here: they are planned from the file itself."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from helmsman.hwdb.file_names.gguf import gguf_table
from helmsman.lowering.mix_rules import MIXES, OF_EIGHT, Mix, Rules, Share, When
from helmsman.lowering.stored_names import gguf_name, stored_tensors
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.schemas.blocks.feed_forward import Experts
from helmsman.schemas.formats import STORED_FORMATS, NamedMix, StoredFormat, block_of, runs
from helmsman.schemas.model import Model

_ROLES = (
    ("output.weight", "output"),
    ("token_embd.weight", "embedding"),
    ("attn_qkv.weight", "values"),
    ("attn_kv_b.weight", "values"),
    ("attn_v.weight", "values"),
    ("attn_k.weight", "keys"),
    ("attn_q.weight", "queries"),
    ("attn_output.weight", "out"),
    ("ffn_up", "up"),
    ("ffn_gate", "gate"),
    ("ffn_down", "down"),
)
"""A part of a tensor's name in a file, and its role; the first that it has counts. `token_embd` is a part of the table
of every layer's own input, too."""

_WHOLE = ("output.weight",)
"""Names that are not parts of others: `attn_output.weight` is no output."""

_AS_FILES_CALL = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "up": "ffn_up", "gate": "ffn_gate",
                  "down": "ffn_down", "embedding": "token_embd", "head": "output"}  # fmt: skip
"""The names that operations of a family would have that GGUF does not know."""

_KEPT = "per_layer_model_proj"
"""A matrix that llama.cpp never quantises."""

_SHORT_ROWS: Mapping[StoredFormat, StoredFormat] = {
    "q2_k": "q4_0", "q3_k": "q4_0", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0",
}  # fmt: skip
"""Formats of rows that are no whole blocks of 256; of the others `iq4_nl`."""

_LAYERS_OF_70B = 80
"""Layers of the models whose few heads of values have a bit more."""


@dataclass(frozen=True, slots=True)
class MixPlace:
    """A matrix among those of its role: its number of so many; `share`: what of the model rules ask about."""

    number: int
    count: int
    share: frozenset[Share]

    def fits(self, when: When) -> bool:
        """Return whether a rule's condition is met."""
        number, count = self.number, self.count
        match when:
            case "always":
                return True
            case "first-eighth":
                return number < count // 8
            case "first-sixteenth":
                return number < count // 16
            case "first-two":
                return number < 2
            case "first-four":
                return number < 4
            case "middle":
                return count // 8 <= number < 7 * count // 8
            case "more-bits":
                eighth = count // 8
                return number < eighth or number >= 7 * count // 8 or (number - eighth) % 3 == 2
        return when in self.share


def is_planned_by_name(fmt: str) -> bool:
    """Whether a format of weights, or a mixture of several, is planned where its name alone is given."""
    return fmt in MIXES or fmt in STORED_FORMATS


@lru_cache(maxsize=64)
def named_mix(model: Model, name: NamedMix) -> Mapping[tuple[str, int | None], StoredFormat]:
    """Return the formats of all matrices of a model in the mixture of a name; what files never quantise has none.

    In the mixtures that Helm writes itself, what nothing here multiplies is the next larger format that is."""
    mix, share = MIXES[name], _shares(model)
    numbers: Counter[str] = Counter()
    members, routed = _members(model), model.routed
    values = sum(role == "values" for role, _, _ in members)
    tied = not any(role == "output" for role, _, _ in members)
    result = dict[tuple[str, int | None], StoredFormat]()
    for role, file, parts in members:
        count = values if role == "values" else model.layers
        by_layer = routed and role != "values" and not mix.counted and parts[0].layer is not None
        number = (parts[0].layer or 0) if by_layer else numbers[role]
        numbers[role] += 1
        chosen = _chosen(
            mix, "output" if tied and role == "embedding" else role, parts[0], MixPlace(number, count, share)
        )
        fmt = "f16" if _KEPT in file else _stored(parts[0], chosen, mix.written)
        result.update(((part.name, part.layer), fmt) for part in parts)
    return result


@lru_cache(maxsize=8)
def _members(model: Model) -> tuple[tuple[str, str, tuple[Tensor, ...]], ...]:
    """Return the matrices of a model's file: the role and the name of each, and the tensors that it holds."""
    return tuple((role_of(file), file, parts) for file, parts in _in_files(model) if parts[0].quantised)


def role_of(file: str) -> str:
    """Return what a tensor of a file is to the rules of mixtures; `other` for one that none of them names."""
    return next((role for part, role in _ROLES if (file == part if part in _WHOLE else part in file)), "other")


def _in_files(model: Model) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """Yield the tensors of a model's file, each with its name and those of ours that it holds."""
    if gguf_table(model.family, model.routed) is None:
        own = (tensor for tensor in tensors(model) if tensor.tied_to is None)
        yield from ((f"{_AS_FILES_CALL.get(tensor.op, tensor.op)}.weight", (tensor,)) for tensor in own)
        return
    yield from ((stored.name, stored.parts) for stored in stored_tensors(model, gguf_name))


def _chosen(mix: Mix, role: str, tensor: Tensor, place: MixPlace) -> StoredFormat:
    """Return the format that a mixture has for a matrix, were all rows whole blocks."""
    if role == "output":
        short = tensor.shape[-1] % block_of(mix.base) != 0
        return "q8_0" if short or mix.base in ("q8_0", "mxfp4") else mix.output
    if mix.base == "mxfp4":
        return "mxfp4" if tensor.stacked else "q8_0"
    if role == "embedding":
        return mix.embedding or mix.base
    eight = "8-experts" in place.share
    stated = OF_EIGHT[role][mix.counted] if eight and role in OF_EIGHT else None
    rules = mix.rules.get(f"{role} of 8") if eight else None
    chosen = stated or _first(mix.rules.get(role, ()) if rules is None else rules, place) or mix.base
    few_values = role == "values" and "70b" in place.share and not mix.counted
    return "q5_k" if few_values and chosen in ("q3_k", "q4_k") else chosen


def _first(rules: Rules, place: MixPlace) -> StoredFormat | None:
    return next((fmt for when, fmt in rules if place.fits(when)), None)


def _stored(tensor: Tensor, fmt: StoredFormat, written: bool) -> StoredFormat:
    """Return the format for rows that may be no whole blocks."""
    columns = tensor.shape[-1]
    if columns % block_of(fmt):
        fmt = _SHORT_ROWS.get(fmt, "iq4_nl")
    if written and not runs(fmt):
        fmt = "q6_k" if columns % block_of("q6_k") == 0 else "q8_0"
    return fmt if columns % block_of(fmt) == 0 else "f16"


def _shares(model: Model) -> frozenset[Share]:
    """Return what rules ask about a model: whether four query heads share keys, and how many experts there are."""
    attentions = [block.attention for block in model.layouts if block.attention is not None]
    grouped = bool(attentions) and attentions[0].heads >= 4 * attentions[0].kv_heads
    bodies = (body.op for block in model.layouts for body in block.bodies)
    experts = max((body.experts for body in bodies if isinstance(body, Experts)), default=0)
    large = model.layers == _LAYERS_OF_70B and any(one.heads > one.kv_heads for one in attentions)
    stated: dict[Share, bool] = {
        "grouped": grouped,
        "grouped-or-experts": grouped or experts >= 4,
        "8-experts": experts == 8,
        "70b": large,
    }
    return frozenset(name for name, holds in stated.items() if holds)
