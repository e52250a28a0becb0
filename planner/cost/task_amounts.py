"""The amounts of a task at which rates are looked up: tokens that share a read, caches, chunks of a prompt."""

from helmsman.lowering.buffers import CHUNK_ROWS
from helmsman.lowering.graph import Task
from helmsman.lowering.serving_names import DECODE_ATTENTION, HOST_ATTENTION
from helmsman.schemas.hardware import Device

ATTENDING = ("attention", "scores", "wv")
"""Kinds of tasks that read caches."""


OVERHEAD_ROWS = 128
"""Engines add a `prompt_overhead` to an operation for every so many rows of a prompt: constants were fitted so."""
assert CHUNK_ROWS % OVERHEAD_ROWS == 0, "prompts with as many overheads have as many chunks of ours"


def chunks_of(task: Task, rows: int = CHUNK_ROWS) -> int:
    """Return in how many chunks of so many `rows`, by default those that pass through a stage of ours at a time, an
    operation takes the tokens of its pass."""
    return -(-round(task.tokens / task.per_token) // rows)


def tokens_together(task: Task, alone: bool) -> float:
    """Return the tokens that share what is read: in a decode step each has a cache of its own, and an expert is read
    for those that choose it. `alone`: by a curve of attention itself, which was measured of one sequence; others are of
    all tokens of a pass."""
    if task.kind == "experts" or (task.kind in ATTENDING and (alone or task.phase == "decode")):
        return task.tokens / task.sequences
    return task.tokens


def caches_read(task: Task, device: Device) -> int:
    """Return how many caches a task reads, each a new start for the memory; of a pass of served requests that is priced
    with the requests, where the device's record has that."""
    online = task.op == HOST_ATTENTION or (task.op == DECODE_ATTENTION and device.request is not None)
    return 1 if online else task.sequences
