"""Names the values that transfers carry between operations, and tells which operations read them."""

from helmsman.lowering.ops import INPUT, block_index, end_index
from helmsman.lowering.variants import REORDERED
from helmsman.schemas.model import Model

HIDDEN = "hidden"
"""As transfers call the input of a block, or of what follows the last."""

TOKEN = "token"
"""As transfers call the chosen tokens."""


def reads_value(model: Model, layer: int | None, op: str, moved: str) -> bool:
    """Whether `op` reads the activation that transfers call `moved`, in any order of a block's operations."""
    name = INPUT if moved == HIDDEN else moved
    facts = (end_index(model) if layer is None else block_index(model, layer)).get(op)
    return (facts is not None and name in facts.inputs) or name in REORDERED.get(op, ())
