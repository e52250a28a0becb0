"""Matrices that hold what 4-bit groups stand for: what compressed plans must compute exactly."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from helmsman.executor._kernels import Arena, pack, packed_size, unpack
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.schemas.model import Model


def write_quantised(model: Model, place: Path, compressed: Callable[[str], bool]) -> Path:
    """A random checkpoint whose matrices with `compressed` names went through 4-bit groups."""
    write_checkpoint(model, place, seed=1, fmt="f32")
    file = place / "model.safetensors"
    values = load_file(file)
    save_file({name: _through_q4(each) if compressed(name) else each for name, each in values.items()}, file)
    return place


def _through_q4(values: Any) -> Any:
    if values.ndim < 2:
        return values
    rows, columns = values.shape
    size = packed_size("q4", rows, columns)
    buffer = Arena(size).alloc(size, "groups")
    pack(np.ascontiguousarray(values), "f32", buffer, "q4", rows, columns)
    found = np.empty((rows, columns), np.float32)
    unpack(buffer, "q4", found, rows, columns)
    return found
