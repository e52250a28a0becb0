"""The flags of llama.cpp as a user gives them: which go together, and what they say for a machine and a model."""

from math import isfinite
from typing import Protocol

from helmsman.planner.machine import Roles
from helmsman.planner.settings.llama_grammar import MARGIN_MIB
from helmsman.planner.strategies.engines.overrides import Override, experts_override
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model

CPU_MOE = "--cpu-moe"
"""The flag that keeps the experts of all layers with the CPU."""

_MIB = 2**20
_MOST_MIB = 2**20
"""MiB of --fit-target at most: a TiB."""


class ExpertFlags(Protocol):
    """The options that place experts."""

    @property
    def n_cpu_moe(self) -> int | None:
        """Return of how many first layers experts stay with the CPU."""

    @property
    def cpu_moe(self) -> bool:
        """Whether those of all layers do."""


class PlacementFlags(ExpertFlags, Protocol):
    """The options that say where anything is."""

    @property
    def ngl(self) -> int | None:
        """Return how many slots are on accelerators."""

    @property
    def override_tensor(self) -> str | None:
        """Return patterns of tensors that live elsewhere."""

    @property
    def tensor_split(self) -> str | None:
        """Return the shares of slots by accelerator."""

    @property
    def split_mode(self) -> str | None:
        """Return how accelerators share the work."""

    @property
    def fit(self) -> bool:
        """Whether llama.cpp places layers and experts itself."""

    @property
    def fit_target(self) -> int | None:
        """Return MiB that it leaves free of each memory."""


def expert_rules(flags: ExpertFlags, model: Model) -> tuple[Override, ...]:
    """Return the rules of experts that stay with the CPU. Raises UsageError for a model without experts, for more
    layers than there are, and for both flags together."""
    if flags.cpu_moe and flags.n_cpu_moe is not None:
        remedy = "leave one of them out"
        raise UsageError("says the same for all layers", field="cpu_moe", remedy=remedy)
    if flags.cpu_moe:
        return (experts_override(model.layers, model, "cpu_moe"),)
    return () if flags.n_cpu_moe is None else (experts_override(flags.n_cpu_moe, model, "n_cpu_moe"),)


def experts_flag(flags: ExpertFlags) -> str:
    """Return the flag that places experts as llama.cpp takes it; nothing where there is none."""
    if flags.cpu_moe:
        return CPU_MOE
    return "" if flags.n_cpu_moe is None else f"--n-cpu-moe {flags.n_cpu_moe}"


def margin_of(flags: PlacementFlags, machine: Roles) -> int | None:
    """Return bytes that stay free of each accelerator's memory where llama.cpp places layers and experts itself; None
    where it does not. Raises UsageError beside flags that place anything, and without an accelerator."""
    if not flags.fit:
        if flags.fit_target is not None:
            raise UsageError("is of `fit`", field="fit_target", remedy="add `fit`, or leave it out")
        return None
    for name in ("ngl", "override_tensor", "n_cpu_moe", "tensor_split", "split_mode"):
        if getattr(flags, name) is not None:
            raise _excluded(name)
    if flags.cpu_moe:
        raise _excluded("cpu_moe")
    if machine.accelerator is None:
        raise UsageError("this machine has no accelerator", field="fit", remedy="leave it out")
    target = MARGIN_MIB if flags.fit_target is None else flags.fit_target
    if not 0 <= target <= _MOST_MIB:
        raise UsageError("not a size", field="fit_target", value=target, remedy=f"use 0 to {_MOST_MIB} MiB")
    return target * _MIB


def _excluded(name: str) -> UsageError:
    return UsageError("does not go with `fit`, which places layers and experts", field=name, remedy="leave one out")


def slot_shares(text: str | None, mode: str | None, machine: Roles) -> tuple[float, ...]:
    """Return the shares of slots by accelerator, of free memory where none are given; empty for the first alone.

    Raises UsageError for what is no share, for more than there are accelerators, and for shares of one alone."""
    accelerators = machine.accelerators
    if text is None:
        memories = (machine.hardware.memory(device.memory) for device in accelerators)
        free = tuple(float(memory.available if memory.free is None else memory.free) for memory in memories)
        return free if mode == "layer" else ()
    if mode == "none":
        remedy = "use `split_mode` layer, or leave it out"
        raise UsageError("divides layers among accelerators", field="tensor_split", value=text, remedy=remedy)
    shares = [_share(part, text) for part in text.split(",")]
    if len(shares) > len(accelerators):
        problem, remedy = f"this machine has {len(accelerators)} that work together", "give a share for each"
        raise UsageError(problem, field="tensor_split", value=text, remedy=remedy)
    if not sum(shares):
        raise UsageError("gives nobody anything", field="tensor_split", value=text, remedy="write shares such as 3,1")
    return (*shares, *(0.0 for _ in accelerators[len(shares) :]))


def _share(part: str, text: str) -> float:
    try:
        share = float(part)
    except ValueError:
        share = -1.0
    if not (isfinite(share) and share >= 0):
        raise UsageError("not a share", field="tensor_split", value=text, remedy="write shares such as 3,1")
    return share
