"""Reads rotary positions from a `config.json`: transformers 4's `rope_scaling` and transformers 5's
`rope_parameters`."""

from dataclasses import dataclass
from typing import Literal

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.parts.dimensions import MAX_CONTEXT
from helmsman.hwdb.configs.parts.rope_scalings import llama3, longrope, yarn
from helmsman.schemas.blocks.positions import LinearScaling, ProportionalScaling, Rope, RopeScaling

LayerKind = Literal["full_attention", "sliding_attention"]
"""Kinds of layers whose rotations `rope_parameters` may state apart."""

DENSE_KINDS = ("linear", "llama3", "longrope")
"""Scalings of the families whose blocks are all alike."""


@dataclass(frozen=True, slots=True)
class RopeRules:
    """Says what a family's class makes of its config.

    `theta`: the default base; `share`: the default of `share_key`, None where all dimensions turn and another share is
    refused; `scalings`: those covered; `original`: the default context that scalings start from;
    `dim_key`: what states the dimensions, where that is no head's size; `stated_magnitudes`, `equal_bounds`: see
    `longrope` and `llama3`."""

    theta: float = 10000.0
    share: float | None = None
    share_key: str = "partial_rotary_factor"
    pairs: Literal["half", "interleaved"] = "half"
    at: Literal["leading", "trailing"] = "leading"
    scalings: tuple[str, ...] = (*DENSE_KINDS, "yarn")
    original: int | None = None
    dim_key: str | None = None
    stated_magnitudes: bool = False
    equal_bounds: bool = False


def rope(
    fields: Fields,
    family: str,
    head_dim: int,
    max_context: int,
    rules: RopeRules | None = None,
    layer_kind: LayerKind | None = None,
) -> Rope:
    """Return the rotary embedding of a model, or of its layers of one kind where the config tells them apart.

    Raises BadInputError naming a kind of scaling that is not covered."""
    rules = rules or RopeRules()
    scaling = scaling_fields(fields, layer_kind)
    dim = _rotary_dim(fields, scaling, family, head_dim, rules)
    theta = _theta(fields, scaling, rules.theta, layer_kind)
    spread = _scaling(fields, scaling, rules, dim, max_context)
    return Rope(theta=theta, rotary_dim=dim, at=rules.at, pairs=rules.pairs, scaling=spread)


def scaling_fields(fields: Fields, layer_kind: LayerKind | None = None) -> Fields:
    """Return the object that states the rotation, an empty one where there is none.

    transformers 5 reads `rope_scaling or rope_parameters`, in this order."""
    for key in ("rope_scaling", "rope_parameters"):
        if fields.has(key):
            stated = fields.inner(key)
            return stated.inner(layer_kind) if layer_kind is not None and stated.has(layer_kind) else stated
    return Fields({}, fields.file)


def told_apart(fields: Fields) -> bool:
    """Whether `rope_parameters` has an object per kind of layers."""
    return fields.has("rope_parameters") and any(
        isinstance(value, dict) for value in fields.inner("rope_parameters").content.values()
    )


def _theta(fields: Fields, scaling: Fields, default: float, layer_kind: LayerKind | None) -> float:
    if scaling.has("rope_theta") or (layer_kind is not None and told_apart(fields)):
        theta = scaling.real("rope_theta", default)
        if layer_kind is None and fields.has("rope_theta") and fields.real("rope_theta") != theta:
            raise fields.wrong("rope_theta", f"differs from that of the rotation ({theta:g})", "correct one of the two")
        return theta
    if fields.has("rope_parameters") and fields.inner("rope_parameters").has("rope_theta"):
        return fields.inner("rope_parameters").real("rope_theta")
    key = "rotary_emb_base" if fields.has("rotary_emb_base") else "rope_theta"
    return fields.real(key, default)


def _rotary_dim(fields: Fields, scaling: Fields, family: str, head_dim: int, rules: RopeRules) -> int:
    if scaling.text("rope_type", "default") == "proportional":
        return head_dim
    holder = scaling if scaling.has("partial_rotary_factor") else fields
    key = rules.share_key if holder is fields and fields.has(rules.share_key) else "partial_rotary_factor"
    share = holder.real(key, 1.0 if rules.share is None else rules.share, high=1.0)
    if holder is scaling and fields.has(key) and fields.real(key, high=1.0) != share:
        raise fields.wrong(key, "differs from that of the rotation", "correct one of the two")
    if share != 1.0 and rules.share is None:
        raise holder.wrong(key, f"not covered in the family {family}", "remove it")
    dim = int(head_dim * share)
    if dim < 2 or dim % 2:
        key = rules.dim_key or ("head_dim" if fields.has("head_dim") else "hidden_size")
        raise fields.wrong(key, f"gives {dim} rotary dimensions, which must be even", "correct the value")
    return dim


def _scaling(fields: Fields, scaling: Fields, rules: RopeRules, dim: int, max_context: int) -> RopeScaling | None:
    key = "rope_type" if scaling.has("rope_type") else "type"
    kind = scaling.text(key, "default")
    if any(isinstance(value, dict) for value in scaling.content.values()):
        raise scaling.wrong(key, "not covered: rope parameters per layer type", "choose another model")
    kind = "longrope" if kind == "su" else kind
    if kind == "default":
        _check_sections(scaling, dim)
        return None
    if kind not in rules.scalings:
        raise scaling.wrong(key, f"not covered: rope scaling {kind!r}", f"covered: {', '.join(rules.scalings)}")
    match kind:
        case "linear":
            return LinearScaling(factor=scaling.real("factor"))
        case "llama3":
            return llama3(scaling, _original_context(fields, scaling, None), rules.equal_bounds)
        case "proportional":
            return ProportionalScaling(share=scaling.real("partial_rotary_factor", 1.0, high=1.0))
        case "yarn":
            return yarn(scaling, _original_context(fields, scaling, None))
    original = _original_context(fields, scaling, rules.original)
    return longrope(scaling, original, dim, max_context, rules.stated_magnitudes)


def _check_sections(scaling: Fields, dim: int) -> None:
    """Raise BadInputError where dimensions for time, height and width are not all; text turns them alike."""
    if scaling.has("mrope_section"):
        sections = scaling.numbers("mrope_section", MAX_CONTEXT)
        scaling.flag("mrope_interleaved", False)
        if sum(sections) != dim // 2:
            message = f"must add up to {dim // 2}, half of the rotary dimensions"
            raise scaling.wrong("mrope_section", message, "correct the list")


def _original_context(fields: Fields, scaling: Fields, default: int | None) -> int:
    key = "original_max_position_embeddings"
    if scaling.has(key) and fields.has(key):
        fields.integer(key, high=MAX_CONTEXT)
    holder = scaling if scaling.has(key) or not (fields.has(key) or default) else fields
    return holder.integer(key, default, high=MAX_CONTEXT)
