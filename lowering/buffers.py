"""Scratch memory of a device: what an executor needs beside weights and KV."""

from helmsman.schemas.model import Model

CHUNK = 256


def workspace_bytes(model: Model, batch: int, tokens: int) -> int:
    """Bytes of scratch for a pass of `batch` sequences by `tokens`, an upper bound over all stages.

    Two hidden states for every token; projections and FFN for one chunk of tokens; logits."""
    rows = batch * tokens
    chunk = batch * min(tokens, CHUNK)
    hidden = 2 * rows * model.hidden
    projections = chunk * (model.hidden + 2 * model.q_width + 2 * model.kv_width + 2 * model.ffn)
    return 4 * (hidden + projections + batch * model.vocab) + (1 << 20)
