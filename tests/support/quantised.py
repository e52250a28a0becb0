"""Matrices that hold what quantised ones stand for: what plans of those must compute."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.dequantised import dequantised
from safetensors.numpy import load_file, save_file

from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.model import Model


def write_quantised(model: Model, place: Path, compressed: Callable[[str], bool], fmt: StoredFormat = "q4") -> Path:
    """A random checkpoint whose matrices with `compressed` names went through `fmt`."""
    write_checkpoint(model, place, seed=1, fmt="f32")
    file = place / "model.safetensors"
    values = load_file(file)
    save_file({name: dequantised(fmt, each) if compressed(name) else each for name, each in values.items()}, file)
    return place
