"""The same model from the catalogue and from the config.json that transformers itself writes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daily import one_in

import helmsman.hwdb.load_model as loader
from helmsman.hwdb.load_model import catalogue_names, load_model

transformers = pytest.importorskip("transformers")

WITHOUT_CLASS = ("kimi_k2",)
"""Model types that transformers reads with another type's class."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Keep transformers' warnings about released values out of the test's output."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(level)


def entry(name: str) -> dict[str, Any]:
    text = (Path(loader.__file__).parent / "models" / f"{name}.json").read_text()
    content: dict[str, Any] = json.loads(text)
    return content


@pytest.mark.parametrize("name", one_in(3, catalogue_names()))
def test_transformers_own_config_reads_as_the_same_model(name: str, tmp_path: Path) -> None:
    content = {key: value for key, value in entry(name).items() if key != "_unknown"}
    if content["model_type"] in WITHOUT_CLASS:
        content["model_type"] = "deepseek_v3"
    transformers.AutoConfig.for_model(**content).save_pretrained(tmp_path)
    # Of facts that no source states, it writes its classes' defaults, which are our stand-ins.
    again, expected = load_model(str(tmp_path)), load_model(name)
    ours = {"name": name, "source": expected.source, "unknown": expected.unknown, "family": expected.family}
    assert again.model_copy(update=ours) == expected
