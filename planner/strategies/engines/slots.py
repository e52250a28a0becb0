"""A model's last layers on the accelerator, the others computed by the CPU where they live: llama.cpp's division."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from helmsman.lowering.ops import LINEAR_OPS
from helmsman.lowering.placement import Placement
from helmsman.lowering.stages import first_ops, last_ops
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors, embedding_tensors, output_tensors
from helmsman.planner.strategies.engines.overrides import FIELD, SIDES, Override, Side, side_of
from helmsman.planner.strategies.engines.rules import cached_in, computed, home, stretches
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Device
from helmsman.schemas.plan import ComputeRule, LayerRange, Residence

OFFLOADED_TOKENS = 32
"""From so many tokens on, llama.cpp's GPU backends take products of weights in host memory (ggml's op offload)."""

MOST_RULES = 256
"""Of one kind in a plan."""


@dataclass(frozen=True, slots=True)
class SlotSplit:
    """The last `slots` of a model on the accelerator, but for what `overrides` put elsewhere; `op_offload`: products of
    many tokens are computed there even so."""

    frame: Frame
    slots: int
    overrides: tuple[Override, ...] = ()
    op_offload: bool = True

    @property
    def cut(self) -> int:
        """The first block on the accelerator."""
        return min(self.frame.model.layers + 1 - self.slots, self.frame.model.layers)

    @property
    def output(self) -> Side:
        """Where the last slot is."""
        return "accelerator" if self.slots else "host"

    def device(self, side: Side) -> Device:
        """The device of a side; the CPU has every core where the accelerator does nothing."""
        if side == "accelerator":
            return self.frame.accelerator
        alone = self.slots == 0 and all(override.side == "host" for override in self.overrides)
        return self.frame.roles.solo if alone else self.frame.roles.host

    def base(self, layer: int) -> Side:
        """Where a block is without overrides."""
        return "host" if layer < self.cut else "accelerator"

    def sides(self, tensor: Tensor) -> tuple[Side, ...]:
        """Where a block's tensor is in every block."""
        overrides, layers = self.overrides, range(self.frame.model.layers)
        if not overrides:
            host: tuple[Side, ...] = ("host",)
            accelerator: tuple[Side, ...] = ("accelerator",)
            return host * self.cut + accelerator * (layers.stop - self.cut)
        return tuple(side_of(overrides, tensor, layer) or self.base(layer) for layer in layers)

    def spans(self) -> Iterator[tuple[Side, LayerRange]]:
        """The blocks of each side, without overrides."""
        edges: tuple[tuple[Side, int, int], ...]
        edges = (("host", 0, self.cut), ("accelerator", self.cut, self.frame.model.layers))
        for side, start, stop in edges:
            if start < stop:
                yield side, LayerRange(start=start, stop=stop)


def place(split: SlotSplit) -> Placement:
    """The rules. Raises UsageError where overrides lead to more than a plan can have."""
    frame, residence, compute = split.frame, tuple(_residence(split)), tuple(_compute(split))
    if max(len(residence), len(compute)) > MOST_RULES:
        problem = f"leads to {max(len(residence), len(compute))} rules, and a plan has at most {MOST_RULES}"
        raise UsageError(problem, field=FIELD, remedy="select neighbouring blocks, or fewer kinds of tensors")
    return Placement(
        model=frame.model,
        hardware=frame.roles.hardware,
        workload=frame.workload,
        residence=residence,
        kv=tuple(
            cached_in(split.device(side).memory, frame.kv, (span.start, span.stop)) for side, span in split.spans()
        ),
        compute=compute,
        activations=frame.roles.activations,
    )


def _residence(split: SlotSplit) -> Iterator[Residence]:
    """Weights in host memory are mapped from their file, hence pageable."""
    frame = split.frame
    for tensor, layers, side in _moved(split):
        yield home(frame, split.device(side).memory, tensor.name, layers, "pageable")
    for names, side in _ends(split):
        yield home(frame, split.device(side).memory, f"{names}*", path="pageable")
    for side, span in split.spans():
        yield home(frame, split.device(side).memory, layers=(span.start, span.stop), path="pageable")


def _compute(split: SlotSplit) -> Iterator[ComputeRule]:
    yield from _offloaded(split)
    for tensor, layers, side in _moved(split):
        if tensor.name == f"{tensor.op}.weight":
            yield computed(split.device(side).name, tensor.op, layers)
    for names, side in _ends(split):
        if names != "positions":
            yield computed(split.device(side).name, names)
    for side, span in split.spans():
        yield computed(split.device(side).name, layers=(span.start, span.stop))


def _ends(split: SlotSplit) -> tuple[tuple[str, Side], ...]:
    model = split.frame.model
    more = sorted(first_ops(model) - {"embedding", "positions"})
    begin: list[tuple[str, Side]] = [(name, "host") for name in ("embedding", "positions", *more)]
    return (*begin, *((name, split.output) for name in last_ops(model)))


def _end_side(split: SlotSplit, tensor: Tensor) -> Side:
    """Return where a tensor outside of blocks is without overrides."""
    sides = dict(_ends(split))
    return sides.get(tensor.name.partition(".")[0], sides[tensor.op])


def _moved(split: SlotSplit) -> Iterator[tuple[Tensor, tuple[int, int] | None, Side]]:
    """Tensors that overrides put elsewhere, with the blocks in which they do."""
    if not split.overrides:
        return
    for tensor in (*embedding_tensors(split.frame.model), *output_tensors(split.frame.model)):
        moved, base = side_of(split.overrides, tensor, None), _end_side(split, tensor)
        if moved is not None and moved != base:
            yield tensor, None, moved
    for tensor in block_tensors(split.frame.model, 0):
        for side in SIDES:
            elsewhere = (chosen == side != split.base(layer) for layer, chosen in enumerate(split.sides(tensor)))
            yield from ((tensor, layers, side) for layers in stretches(elsewhere))


def _offloaded(split: SlotSplit) -> Iterator[ComputeRule]:
    """Large products of weights in host memory, in the phases that have them."""
    roles, work = split.frame.roles, split.frame.workload
    if not split.op_offload or not roles.separate or split.device("host") != roles.host:
        return
    tokens: tuple[tuple[Literal["prefill", "decode"], int], ...]
    tokens = (("prefill", work.batch * work.new_tokens), ("decode", work.batch))
    products = [tensor for tensor in block_tensors(split.frame.model, 0) if _multiplies(tensor)]
    stays = [(tensor.op, tuple(stretches(side == "host" for side in split.sides(tensor)))) for tensor in products]
    for phase in (phase for phase, count in tokens if count >= OFFLOADED_TOKENS):
        for op, spans in stays:
            yield from (computed(split.frame.accelerator.name, op, span, phase) for span in spans)


def _multiplies(tensor: Tensor) -> bool:
    return tensor.op in LINEAR_OPS and tensor.name.endswith(".weight")
