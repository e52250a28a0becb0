"""Models of the catalogue with fewer blocks: questions about them are the same and take a share of the time."""

from pathlib import Path

from helmsman.hwdb.load_model import load_model


def fewer_blocks(folder: Path, name: str, layers: int) -> str:
    """A document of the model `name` with so many blocks, as `--model` takes it."""
    path = folder / f"{name}-{layers}.json"
    path.write_text(load_model(name).with_layers(layers).to_json())
    return str(path)
