"""A small config.json of every model type that is read, with every quirk of its family that fits."""

from copy import deepcopy
from typing import Any

import pytest
from small_attention_configs import ATTENTION_CONFIGS
from small_latent_configs import LATENT_CONFIGS
from small_recurrent_configs import RECURRENT_CONFIGS

from helmsman.hwdb.model_config import model_from_config
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

SMALL_CONFIGS: dict[str, dict[str, Any]] = {**ATTENTION_CONFIGS, **LATENT_CONFIGS, **RECURRENT_CONFIGS}
"""By model type, and what distinguishes several of one."""

WRAPPED: dict[str, dict[str, Any]] = {
    "gemma3": SMALL_CONFIGS["gemma3_text"],
    "gemma4": SMALL_CONFIGS["gemma4_text-e"],
    "kimi_k25": {**SMALL_CONFIGS["deepseek_v3"], "model_type": "kimi_k2"},
    "llama4": SMALL_CONFIGS["llama4_text"],
    "qwen3_5": SMALL_CONFIGS["qwen3_5_text"],
    "qwen3_5_moe": SMALL_CONFIGS["qwen3_5_moe_text"],
}
"""By model type of a file, the text model under its `text_config`."""


def wrapped(family: str) -> dict[str, Any]:
    """Return a file around a text model, as released files with a vision tower are."""
    text = WRAPPED[family]
    outer = {"model_type": family, "tie_word_embeddings": text["tie_word_embeddings"], "image_token_id": 7}
    return {**outer, "text_config": text, "vision_config": {"hidden_size": 16, "depth": 2}}


def small_config(name: str, **changes: Any) -> dict[str, Any]:
    """Return a small config with some keys changed; `...` removes one."""
    content = {**deepcopy(SMALL_CONFIGS[name]), **changes}
    return {key: value for key, value in content.items() if value is not ...}


def read_small(name: str, **changes: Any) -> Model:
    """Return the model of a small config with some keys changed; `...` removes one."""
    return model_from_config(small_config(name, **changes), name, "config.json")


def check_refused(name: str, field: str, message: str, **changes: Any) -> None:
    """Check that a small config with some keys changed is refused in one line that names file, field and remedy."""
    with pytest.raises(BadInputError, match=message) as caught:
        read_small(name, **changes)
    error = caught.value
    assert (error.file, error.field) == ("config.json", field)
    assert error.remedy and "\n" not in str(error) and len(str(error)) < 500
