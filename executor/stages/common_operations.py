"""Operations that stages of all models have, as specifications."""

from math import sqrt

from helmsman.executor.devices.operations import (
    EmbeddingOperation,
    HeadOperation,
    LayerInputsOperation,
    LayerTableOperation,
    LinearOperation,
    NormOperation,
    NormSumOperation,
)
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.tensors import Linear, NormVectors, Vector
from helmsman.lowering.bodies.per_layer_input import LAYER_INPUTS, LAYER_NORM, LAYER_PROJECTION, LAYER_TABLE
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


def layer_table(table: Linear, looked_up: bool, width: int, rows: Buffer) -> LayerTableOperation:
    """Return the lookup of what layers read of tokens, whose rows are multiplied by the root of a layer's `width`."""
    return {
        "kind": "layer-table",
        "name": LAYER_TABLE,
        "block": None,
        "inputs": [],
        "output": LAYER_INPUTS,
        "table": table,
        "looked_up": looked_up,
        "scale": sqrt(width),
        "layer_inputs": rows,
    }


def layer_inputs(
    norm: Norm, weights: NormVectors | None, layers: int, width: int, rows: Buffer
) -> LayerInputsOperation:
    """Return the norm of a projection of embeddings, layer by layer, and its sum with rows of the table, over
    sqrt(2)."""
    return {
        "kind": "layer-inputs",
        "name": LAYER_NORM,
        "block": None,
        "inputs": [LAYER_PROJECTION],
        "output": LAYER_INPUTS,
        "width": layers * width,
        "part": width,
        "norm": norm.kind,
        "eps": norm.eps,
        "weights": weights,
        "scale": sqrt(0.5),
        "layer_inputs": rows,
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
    block: int | None,
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
