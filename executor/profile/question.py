"""The question that an operation table answers, and the digest by which it is found again (PARK-49)."""

import hashlib
import json
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from helmsman import __version__
from helmsman.executor._kernels import isa
from helmsman.lowering.operation import Formats, Operation
from helmsman.lowering.ops import block_ops
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.formats import Format, StoredFormat
from helmsman.schemas.hardware import Link
from helmsman.schemas.model import Model

CONTEXT = 192
"""Tokens in the cache at the mean decode step of 128 tokens after a prompt of 128."""
FILLED = 0.75
"""Part of a cache that is in use at the mean decode step when as many tokens are made as were given."""
STEP = 16

_NOT_OF_A_LAYER = {
    "name",
    "family",
    "layers",
    "vocab",
    "max_context",
    "eos",
    "tied_embeddings",
    "native_format",
    "source",
}


@dataclass(frozen=True, slots=True)
class LayerQuestion:
    """A decode step of one layer of `model`: `batch` sequences, `context` tokens in the cache of each.

    `storage`: folders on the devices that weights may come from. Caches are read by divided attention: value by
    value."""

    model: Model
    batch: int = 1
    context: int = CONTEXT
    format: StoredFormat = "f16"
    kv_format: Format = "f16"
    storage: tuple[Path, ...] = ()

    @property
    def capacity(self) -> int:
        """Tokens the cache has room for: its rows lie that far apart."""
        return ceil(self.context / FILLED / STEP) * STEP

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations of the layer in order, attention divided, with the bytes they stream."""
        step = Iteration(1, "decode", self.batch, 1, self.context)
        return block_ops(self.model, 0, step, Formats(self.format, self.kv_format, "f32"), divided=True)


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    """A device of this machine: its name in the record, and its CPUs."""

    name: str
    cpus: tuple[int, ...]


def profile_key(
    question: LayerQuestion, processor: str, host: MeasuredDevice, accelerator: MeasuredDevice, link: Link
) -> str:
    """Digest of all that the table of `question` depends on; `processor` is the CPU's product name.

    Of the link two digits: measured again, a throttled one differs in the fifth."""
    content = {
        "layer": question.model.dense.model_dump(mode="json", exclude=_NOT_OF_A_LAYER),
        "workload": [question.batch, question.context, question.capacity, question.format, question.kv_format],
        "storage": [str(folder.resolve()) for folder in question.storage],
        "devices": [processor, isa(), [host.name, *host.cpus], [accelerator.name, *accelerator.cpus]],
        "link": [link.name, f"{link.bandwidth.value:.1e}", f"{link.latency.value:.1e}"],
        "tool": __version__,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
