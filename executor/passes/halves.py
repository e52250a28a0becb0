"""Halves of blocks in passes over prompts that pass chunk by chunk: between them hidden states of all tokens stay."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from helmsman.executor.passes.phase_pass import DeviceUse, PhasePass
from helmsman.lowering.bodies.experts import LATENT_OUT
from helmsman.lowering.bodies.experts_apart import ROUTER
from helmsman.lowering.bodies.per_layer_input import LAYER_GATE
from helmsman.lowering.ops import block_index

_SUMS = ("post_norm1", "post_norm2", "post_norm3", "post_norm4", "delta_out", "scan_out", "conv_out")
"""Norms after bodies, and outputs of recurrent mixers, whose outcome joins hidden states."""

HIDDEN_READ = ("norm1", "o", "norm2", "down", LAYER_GATE, "experts_down", LATENT_OUT, "shared_down", "combine", *_SUMS)
"""Operations of a block that read hidden states."""

HIDDEN_MADE = ("embedding", "o", "down", "experts_down", LATENT_OUT, "shared_down", "combine", *_SUMS)
"""Operations after which hidden states stay for all tokens."""


HalfT = TypeVar("HalfT")
"""A half, or what stands for it."""


@dataclass(frozen=True)
class TokenChunk:
    """Tokens number x size, ... of every sequence: `size` of them, or what is left."""

    number: int
    size: int

    def of(self, tokens: int, past: int) -> tuple[int, int]:
        """The tokens of the chunk, and what is before them, in a pass of `tokens` on top of `past`."""
        start, stop = self.span(tokens)
        return stop - start, past + start

    def span(self, tokens: int) -> tuple[int, int]:
        """The first of its tokens in a pass of `tokens`, and the first after them."""
        start = self.number * self.size
        return start, min(tokens, start + self.size)


WHOLE = TokenChunk(0, sys.maxsize)
"""All tokens of a pass."""


@dataclass(frozen=True)
class Half:
    """Tasks of a batch between two moments at which hidden states are all there is, in order.

    `divided`: devices share them, so that every chunk goes through all of them, moves between the devices too;
    otherwise one device's stage passes its chunks through them in one piece."""

    tasks: tuple[int, ...]
    divided: bool


def halves_of(phase_pass: PhasePass) -> Sequence[Half]:
    """Return the halves of a pass, of every computing task one; moves between tasks of one half belong to it, too."""
    members: dict[object, list[int]] = {}
    for index, use in phase_pass.uses.items():
        key: object = index if use.layer is None else (use.layer, _half(phase_pass, use), phase_pass.tasks[index].batch)
        members.setdefault(key, []).append(index)
    computed = {task: key for key, tasks in members.items() for task in tasks}
    after, before = _after(phase_pass, computed), served(phase_pass, computed)
    for index, keys in after.items():
        for key in keys & before.get(index, set()):
            members[key].append(index)
    divided = {key for key, tasks in members.items() if _is_divided(phase_pass, tasks)}
    return [Half(tuple(sorted(tasks)), key in divided) for key, tasks in members.items()]


def _is_divided(phase_pass: PhasePass, tasks: Sequence[int]) -> bool:
    """Whether devices share a half, or what its router has chosen is looked up between its tasks."""
    looks_up = any(phase_pass.tasks[task].op == ROUTER and phase_pass.tasks[task].layer in phase_pass.slotted
                   for task in tasks)  # fmt: skip
    return looks_up or len({phase_pass.tasks[task].resource for task in tasks}) > 1


def _half(phase_pass: PhasePass, use: DeviceUse) -> int:
    """Return which half of its block an operation belongs to: mixers, or networks."""
    assert use.layer is not None, "an operation of a block"
    return block_index(phase_pass.plan.model, use.layer)[use.op].half


def _after(phase_pass: PhasePass, half_of: Mapping[int, HalfT]) -> dict[int, set[HalfT]]:
    """By move of values, the halves of which it carries something."""
    after: dict[int, set[HalfT]] = {}
    for index, task in enumerate(phase_pass.tasks):
        if index not in half_of and task.kind == "transfer" and task.payload != "weights":
            made = {half_of[dep] for dep in task.deps if dep in half_of}
            after[index] = made.union(*(after.get(dep, ()) for dep in task.deps))
    return after


def served(phase_pass: PhasePass, half_of: Mapping[int, HalfT]) -> dict[int, set[HalfT]]:
    """By move, the halves that wait for it."""
    before: dict[int, set[HalfT]] = {}
    for index in range(len(phase_pass.tasks) - 1, -1, -1):
        waiting = {half_of[index]} if index in half_of else before.get(index, set[HalfT]())
        for dep in phase_pass.tasks[index].deps:
            if dep not in half_of:
                before.setdefault(dep, set()).update(waiting)
    return before
