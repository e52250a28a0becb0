"""The same model from the catalogue and from the config.json that transformers itself writes."""

import json
from pathlib import Path
from typing import Any

import pytest

import helmsman.hwdb.load_model as loader
from helmsman.hwdb.load_model import catalogue_names, load_model

transformers = pytest.importorskip("transformers")


def entry(name: str) -> dict[str, Any]:
    text = (Path(loader.__file__).parent / "models" / f"{name}.json").read_text()
    content: dict[str, Any] = json.loads(text)
    return content


@pytest.mark.parametrize("name", catalogue_names())
def test_transformers_own_config_reads_as_the_same_model(name: str, tmp_path: Path) -> None:
    transformers.AutoConfig.for_model(**entry(name)).save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert "rope_parameters" in written or written["model_type"] == "opt"
    again = load_model(str(tmp_path))
    expected = load_model(name)
    assert again.model_copy(update={"name": name, "source": expected.source}) == expected
