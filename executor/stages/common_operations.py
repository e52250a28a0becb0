"""Operations that stages of all models have, as specifications."""

from helmsman.executor.devices.operations import (
    EmbeddingOperation,
    HeadOperation,
    LinearOperation,
    NormOperation,
)
from helmsman.executor.devices.tensors import Linear, NormVectors, Vector
from helmsman.schemas.blocks.feed_forward import Activation
from helmsman.schemas.blocks.norms import Norm


def embedding(table: Linear, looked_up: bool, positions: Vector | None) -> EmbeddingOperation:
    """Return the lookup of tokens."""
    return {
        "kind": "embedding",
        "name": "embedding",
        "block": None,
        "inputs": [],
        "output": "hidden",
        "table": table,
        "looked_up": looked_up,
        "positions": positions,
    }


def norm_operation(name: str, block: int | None, norm: Norm, weights: NormVectors | None) -> NormOperation:
    """Return a norm of hidden states; outside blocks of the last tokens' alone."""
    return {
        "kind": "norm",
        "name": name,
        "block": block,
        "inputs": ["hidden"],
        "output": "normed",
        "norm": norm.kind,
        "eps": norm.eps,
        "weights": weights,
        "last": block is None,
    }


def linear_operation(
    name: str,
    block: int,
    inputs: list[str],
    output: str,
    shape: tuple[int, int],
    matrix: Linear | None,
    activation: Activation | None = None,
) -> LinearOperation:
    """Return a product with a matrix of (rows, columns) `shape`."""
    return {
        "kind": "linear",
        "name": name,
        "block": block,
        "inputs": inputs,
        "output": output,
        "rows": shape[0],
        "columns": shape[1],
        "matrix": matrix,
        "activation": activation,
    }


def head_operation(matrix: Linear) -> HeadOperation:
    """Return the head, which chooses tokens."""
    return {
        "kind": "head",
        "name": "head",
        "block": None,
        "inputs": ["normed"],
        "output": "logits",
        "matrix": matrix,
    }
