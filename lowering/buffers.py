"""Scratch memory of a device: what an executor needs beside weights and KV."""

from helmsman.schemas.model import Model

CHUNK_ROWS = 128
"""Rows (sequences x tokens) that pass through a stage at a time; csrc/stage.h's kChunkRows."""

_SMALL_BUFFERS = 1 << 20
"""Token ids, and the padding of every buffer to 64 bytes."""


def workspace_bytes(model: Model, batch: int, tokens: int) -> int:
    """Bytes of scratch for a pass of `batch` sequences by `tokens`, an upper bound over all stages.

    The closed form of `Stage.workspace_size` (f32): the hidden states, normed states or attention outputs,
    q, k, v or the two sides of the FFN, and a packed copy of a layer's input, for one chunk of rows; logits."""
    rows = batch * min(tokens, max(1, CHUNK_ROWS // batch))
    wide = max(model.hidden, model.q_width)
    inner = max(model.q_width + 2 * model.kv_width, 2 * model.ffn)
    width = model.hidden + wide + inner + max(wide, model.ffn)
    return 4 * (rows * width + batch * model.vocab) + _SMALL_BUFFERS
