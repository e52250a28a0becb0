"""Operations that stages of all models have, as specifications."""

from helmsman.executor.devices.operations import (
    EmbeddingOperation,
    HeadOperation,
    LinearOperation,
    NormOperation,
    NormSumOperation,
)
from helmsman.executor.devices.tensors import Linear, NormVectors, Vector
from helmsman.schemas.blocks.feed_forward import Activation
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.model import Head


def embedding(table: Linear, looked_up: bool, positions: Vector | None, scale: float = 1.0) -> EmbeddingOperation:
    """Return the lookup of tokens, whose rows are multiplied by `scale`."""
    return {
        "kind": "embedding",
        "name": "embedding",
        "block": None,
        "inputs": [],
        "output": "hidden",
        "table": table,
        "looked_up": looked_up,
        "positions": positions,
        "scale": scale,
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


def norm_sum(
    name: str, block: int, value: str, output: str, norm: Norm, weights: NormVectors | None, adds: bool = True
) -> NormSumOperation:
    """Return the norm of a value that a body left, which is added to the output or takes its place."""
    return {
        "kind": "norm-sum",
        "name": name,
        "block": block,
        "inputs": [value],
        "output": output,
        "norm": norm.kind,
        "eps": norm.eps,
        "weights": weights,
        "adds": adds,
        "factor": None,
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


def head_operation(matrix: Linear, head: Head) -> HeadOperation:
    """Return the head, which chooses tokens, with the factor and the cap of its logits."""
    return {
        "kind": "head",
        "name": "head",
        "block": None,
        "inputs": ["normed"],
        "output": "logits",
        "matrix": matrix,
        "factor": head.scale / head.divide,
        "softcap": head.softcap,
    }
