"""Keys and values of a prompt's first tokens that were computed before, and lie in a store (LMCache, HELM-90)."""

from helmsman.lowering.caches import appended_sizes
from helmsman.lowering.placement import Placed
from helmsman.lowering.rules import prefix_rule
from helmsman.schemas.formats import KeptFormat
from helmsman.schemas.plan import KvRule


def stored_sizes(placed: Placed, layer: int, sequences: int) -> dict[tuple[str, KeptFormat], int]:
    """By home and format of a block's cache, bytes that come there from the store for so many sequences; nothing where
    no rule names a store, or the store is the home itself."""
    rule, tokens = prefix_rule(placed, layer), placed.workload.prefix_tokens
    if rule is None or not tokens:
        return {}
    sizes = appended_sizes(placed, layer, sequences * tokens)
    return {(home, fmt): size for (home, fmt), size in sizes.items() if home != rule.memory}


def stores(placed: Placed) -> tuple[KvRule, ...]:
    """Return the rules of stores, where there are known tokens."""
    rules = (prefix_rule(placed, layer) for layer in range(placed.model.layers))
    return tuple(rule for rule in rules if rule is not None) if placed.workload.prefix_tokens else ()
