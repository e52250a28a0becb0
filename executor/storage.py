"""Memories that are files: weights written once when they are loaded, and read whenever a pass needs them."""

from collections.abc import Callable, Mapping
from pathlib import Path

from helmsman.executor._kernels import Arena, Buffer, DiskFile, packed_size
from helmsman.executor.devices.opening import STORAGE
from helmsman.lowering.rules import homes
from helmsman.lowering.tensors import tensors
from helmsman.schemas.errors import UsageError, unwritable
from helmsman.schemas.plan import Plan

BLOCK = 4096
"""What direct reads are made of; everything begins at one."""


class Storage:
    """A file per storage memory of a plan. `warnings`: what works, but not as planned."""

    def __init__(self, files: Mapping[str, DiskFile], paths: Mapping[str, Path]) -> None:
        self._files = files
        self._paths = paths
        self._ends = dict.fromkeys(files, 0)

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for every file that is read through the page cache."""
        buffered = [self._paths[name] for name, file in self._files.items() if not file.direct]
        return tuple(f"{path}: the file system has no direct reads, buffered ones are used" for path in buffered)

    def file(self, memory: str) -> DiskFile:
        """The file of `memory`."""
        return self._files[memory]

    def write(self, memory: str, size: int, fill: Callable[[Buffer], None]) -> int:
        """Append `size` bytes that `fill` makes; where they begin. Raises what `unwritable` says."""
        buffer = Arena(size).alloc(size, "a weight on its way to storage")
        fill(buffer)
        offset = self._ends[memory]
        self._ends[memory] = offset + blocks(size)
        try:
            self._files[memory].write(offset, buffer, size)
        except OSError as error:
            raise unwritable(error, str(self._paths[memory])) from None
        return offset

    def close(self) -> None:
        """Remove the files."""
        for path in self._paths.values():
            path.unlink(missing_ok=True)


def open_storage(plan: Plan, folder: Path | None) -> Storage:
    """Files with room for what lives on storage. Raises UsageError when there is no place for them."""
    sizes = _sizes(plan)
    if sizes and folder is None:
        raise UsageError(
            "weights of the plan live on storage, and there is no folder for them",
            field="--storage",
            value=", ".join(sizes),
            remedy="name a folder on that device with --storage",
        )
    paths = {name: (folder or Path()) / f"{plan.model.name}.{name}.weights" for name in sizes}
    return Storage({name: _create(paths[name], size) for name, size in sizes.items()}, paths)


def blocks(size: int) -> int:
    """`size` in whole blocks."""
    return -(-size // BLOCK) * BLOCK


def _create(path: Path, size: int) -> DiskFile:
    try:
        return DiskFile(str(path), size, direct=True, create=True)
    except OSError as error:
        raise unwritable(error, str(path)) from None


def _sizes(plan: Plan) -> dict[str, int]:
    """Bytes of every storage memory that something lives in."""
    kinds = {memory.name: memory.kind for memory in plan.hardware.memories}
    found: dict[str, int] = {}
    for tensor in tensors(plan.model):
        for piece in homes(plan, tensor):
            for memory in (piece.rule.memory, *piece.rule.replicas):
                if kinds[memory] == STORAGE and len(tensor.shape) > 1:
                    size = packed_size(piece.rule.format, piece.stop - piece.start, tensor.shape[1])
                    found[memory] = found.get(memory, 0) + blocks(size)
    return found
