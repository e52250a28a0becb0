"""GGUF files of models with states are planned with, and refused where they would run."""

from pathlib import Path

import pytest
from plans import make_plan
from small_configs import read_small

from helmsman.executor.weights.opening import open_weights
from helmsman.schemas.errors import BadInputError


@pytest.mark.parametrize("family", ["qwen3_next", "qwen3_5_text", "lfm2", "nemotron_h"])
def test_they_are_refused_before_anything_is_read(tmp_path: Path, family: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(BadInputError, match="keeps states"):
        open_weights(path, make_plan(read_small(family)).model)
