"""FLOPs of a decode step against the size of the KV cache, across architectures and batches (Fig 3, PARK-10)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from helmsman.lowering.operation import Formats
from helmsman.lowering.ops import operations
from helmsman.scheduler.iteration import decode
from helmsman.schemas.formats import Format, size_of
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

BATCHES = (10, 25, 50)
"""The batches of Fig 3."""

LENGTHS = ((512, 32), (1024, 32), (1920, 128))
"""(prompt, output) tokens."""


@dataclass(frozen=True, slots=True)
class Character:
    """One model under one workload: FLOPs of the last decode step, all sequences; bytes of weights and of KV then.

    `reads`: FLOPs per byte of weights and cache that the step must bring."""

    model: str
    batch: int
    prompt: int
    output: int
    flops: int
    weight_bytes: int
    kv_bytes: int

    @property
    def reads(self) -> float:
        """FLOPs per byte."""
        return self.flops / (self.weight_bytes + self.kv_bytes)


def characterise(
    models: Sequence[Model],
    batches: Sequence[int] = BATCHES,
    lengths: Sequence[tuple[int, int]] = LENGTHS,
    fmt: Format = "f16",
) -> Iterator[Character]:
    """Yield every model with every batch and length it has positions for, weights and cache in `fmt`."""
    for model in models:
        for prompt, output in lengths:
            if prompt + output <= model.max_context:
                yield from (character(model, batch, prompt, output, fmt) for batch in batches)


def character(model: Model, batch: int, prompt: int, output: int, fmt: Format = "f16") -> Character:
    """Return the last decode step of `batch` sequences of `prompt` + `output` tokens."""
    work = Workload(prompt_tokens=prompt, output_tokens=output, batch=batch, context=prompt + output)
    step = decode(work, output - 1)
    ops = operations(model, step, Formats(fmt, fmt, fmt))
    cache = size_of(2 * batch * step.context * model.dense.kv_width, fmt) * model.layers
    weights = sum(op.weight_bytes for op in ops)
    return Character(model.name, batch, prompt, output, sum(op.flops for op in ops), weights, cache)
