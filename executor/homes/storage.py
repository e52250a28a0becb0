"""Memories that are files: weights written once when they are loaded, and read whenever a pass needs them."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path

from helmsman.executor._kernels import Buffer, DiskFile, packed_size
from helmsman.executor.devices.memory import arena_beside
from helmsman.executor.devices.value_sizes import F32_BYTES
from helmsman.lowering.rules import Slice, homes
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.schemas.errors import UsageError, unwritable
from helmsman.schemas.plan import Plan, Residence
from helmsman.schemas.storage import STORAGE, in_blocks
from helmsman.schemas.write import temporary


class Storage:
    """A file per storage memory of a plan. `warnings`: what works, but not as planned.

    The files have lost their names by then: nothing is left of them however a run ends."""

    def __init__(self, files: Mapping[str, DiskFile], folders: Mapping[str, Path]) -> None:
        self._files = dict(files)
        self._folders = folders
        self._ends = dict.fromkeys(files, 0)

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for every folder whose file is read through the page cache."""
        buffered = dict.fromkeys(self._folders[name] for name, file in self._files.items() if not file.direct)
        return tuple(f"{folder}: the file system has no direct reads, buffered ones are used" for folder in buffered)

    def file(self, memory: str) -> DiskFile:
        """The file of `memory`."""
        return self._files[memory]

    def write(self, memory: str, size: int, fill: Callable[[Buffer], None]) -> int:
        """Append `size` bytes that `fill` makes; where they begin. Raises what `unwritable` says."""
        what = "a weight on its way to storage"  # the reserve is for that
        buffer = arena_beside(size, what, reserve=0).alloc(size, what)
        fill(buffer)
        offset = self._ends[memory]
        self._ends[memory] = offset + in_blocks(size)
        try:
            self._files[memory].write(offset, buffer, size)
        except OSError as error:
            raise unwritable(error, str(self._folders[memory])) from None
        return offset

    def close(self) -> None:
        """Let go of the files: their room is free once no pass reads them."""
        self._files.clear()


def open_storage(plan: Plan, folders: Sequence[Path]) -> Storage:
    """Files with room for what lives on storage: all in one folder, or a folder for each device in the record's order.

    Raises UsageError when there is no place for them or nothing to put there, HardwareUnavailableError when a disk is
    full."""
    sizes = _sizes(plan)
    if folders and not sizes:
        message, remedy = "nothing of the plan lives on storage", "leave it out, or plan with `nvme` direct or bounce"
        raise UsageError(message, field="storage", value=str(folders[0]), remedy=remedy)
    if sizes and len(folders) not in (1, len(sizes)):
        given = f"there are {len(folders)} folders for them" if folders else "there is no folder for them"
        raise UsageError(
            f"weights of the plan live on storage, and {given}",
            field="storage",
            value=", ".join(sizes),
            remedy="name a folder on that device with `storage`" + ("; once for each" if len(sizes) > 1 else ""),
        )
    places = dict(zip(sizes, folders if len(folders) > 1 else [*folders] * len(sizes), strict=True)) if sizes else {}
    return Storage({name: _create(places[name], size) for name, size in sizes.items()}, places)


def _create(folder: Path, size: int) -> DiskFile:
    """A file without a name: whoever opens it has it, and it ends with them. (NFS keeps one until then.)"""
    try:
        with temporary(folder / "weights") as place:
            return DiskFile(str(place), size, direct=True, create=True)
    except OSError as error:
        raise unwritable(error, str(folder)) from None


def _sizes(plan: Plan) -> dict[str, int]:
    """Bytes of every storage memory that something lives in, in the order of the record."""
    kinds = {memory.name: memory.kind for memory in plan.hardware.memories}
    sizes: dict[str, int] = {}
    for tensor in tensors(plan.model):
        for piece in homes(plan, tensor):
            for memory in (piece.rule.memory, *piece.rule.replicas):
                if kinds[memory] == STORAGE:
                    sizes[memory] = sizes.get(memory, 0) + in_blocks(_size(tensor, piece))
    return {name: sizes[name] for name in kinds if name in sizes}


def _size(tensor: Tensor, piece: Slice[Residence]) -> int:
    """Bytes of a part of a tensor in a file: packed, or f32 if it is a vector."""
    rows = piece.stop - piece.start
    if not tensor.packed:
        return F32_BYTES * rows * prod(tensor.shape[1:])
    return packed_size(piece.rule.format, rows * prod(tensor.shape[1:-1]), tensor.shape[-1])
