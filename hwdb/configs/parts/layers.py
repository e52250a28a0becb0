"""Tells which layer has what: kinds listed layer by layer, or counted from the first."""

from collections.abc import Collection, Sequence

from helmsman.hwdb.config_fields import Fields

MLP_KINDS = ("dense", "sparse")
"""The names that configs give layers with one dense network, and layers with experts."""


def layer_kinds(
    fields: Fields,
    key: str,
    layers: int,
    kinds: Collection[str],
    otherwise: Sequence[str] | None = None,
    rule: str | None = None,
) -> tuple[str, ...]:
    """Return the kind of every layer; `otherwise`: what they are where the key is absent, None where it must be there;
    `rule`: the key that these follow from, which may contradict no list that stands beside it.

    Raises BadInputError for another number of layers, for an unknown kind and for such a contradiction."""
    if otherwise is not None and not fields.has(key):
        fields.texts(key)
        return tuple(otherwise)
    names = fields.texts(key)
    if not fields.has(key):
        raise fields.wrong(key, "missing", f"add {key}, as the model's original config.json has it")
    check_kinds(fields, key, names, kinds)
    if len(names) != layers:
        message = f"{layers} layers are expected, not {len(names)}"
        raise fields.wrong(key, message, f"correct {key} or num_hidden_layers")
    if rule is not None and fields.has(rule) and names != tuple(otherwise or ()):
        raise fields.wrong(rule, f"contradicts {key}", "correct one of the two")
    return names


def check_kinds(fields: Fields, key: str, names: Sequence[str], kinds: Collection[str]) -> None:
    """Raise BadInputError that names the first kind which is not covered."""
    for name in names:
        if name not in kinds:
            raise fields.wrong(key, f"not covered: {name[:40]} layers", f"covered: {', '.join(kinds)}")


def every_nth(layers: int, interval: int, nth: str, others: str) -> tuple[str, ...]:
    """Return kinds where every `interval`-th layer, counted from 1, is `nth` and the rest are `others`."""
    return tuple(others if (layer + 1) % interval else nth for layer in range(layers))


def dense_layers(fields: Fields, layers: int, default: int, key: str = "first_k_dense_replace") -> tuple[str, ...]:
    """Return "dense" for the first layers and "sparse" for the others; a list of kinds wins over their number, which
    transformers 5 writes beside it whatever the list says.

    Raises BadInputError for experts in not every other layer."""
    if fields.integer("moe_layer_freq", 1) != 1:
        raise fields.wrong("moe_layer_freq", "not covered: experts in some of the later layers only", "covered: 1")
    if fields.has("mlp_layer_types"):
        fields.read.add(key)
        return layer_kinds(fields, "mlp_layer_types", layers, MLP_KINDS)
    first = fields.integer(key, default, low=0, high=layers)
    return tuple(MLP_KINDS[layer >= first] for layer in range(layers))
