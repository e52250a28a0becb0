"""Any value in any field of any config gives a model, or one clear error."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_configs import SMALL_CONFIGS, small_config

import helmsman.hwdb.load_model as loader
from helmsman.hwdb.model_config import model_from_config
from helmsman.schemas.errors import BadInputError

CATALOGUED = ("Phi-4-mini-instruct", "Llama-3.2-1B", "opt-125m", "Qwen3.6-35B-A3B-NVFP4", "gemma-4-31B-it-NVFP4")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=6,
)
BASES = st.sampled_from([*CATALOGUED, *SMALL_CONFIGS])
EXTRA = ("head_dim", "rope_parameters", "dtype", "eos_token_id", "quantization_config", "layer_types", "text_config")


@settings(max_examples=150, deadline=None)
@given(BASES, st.data())
def test_any_value_in_any_field_gives_a_model_or_one_clear_error(base: str, data: st.DataObject) -> None:
    check_any_value(base, data)


@pytest.mark.nightly
@settings(max_examples=20000, deadline=None)
@given(BASES, st.data())
def test_many_values_in_any_field_give_a_model_or_one_clear_error(base: str, data: st.DataObject) -> None:
    check_any_value(base, data)


def check_any_value(base: str, data: st.DataObject) -> None:
    """Draw a value for a field of a configuration: it is read, or the error names file, field and remedy."""
    config = small_config(base) if base in SMALL_CONFIGS else catalogued(base)
    place = config
    while True:
        key = data.draw(st.sampled_from([*place, *EXTRA]))
        if not isinstance(place.get(key), dict) or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(JSON)
    try:
        model_from_config(config, "fuzzed", "config.json")
    except BadInputError as error:
        assert error.file == "config.json" and error.field and error.remedy and "\n" not in str(error)


def catalogued(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((Path(loader.__file__).parent / "models" / f"{name}.json").read_text())
    return content
