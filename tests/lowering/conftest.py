"""Models for the tests of lowering: small ones of every structure, and transformers as the oracle."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import helmsman.hwdb.load_model as loader
from helmsman.hwdb.model_config import model_from_config
from helmsman.schemas.model import Model

_COMMON: dict[str, Any] = {
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "vocab_size": 131,
    "max_position_embeddings": 96,
}
_GQA = {**_COMMON, "num_key_value_heads": 2, "intermediate_size": 80}
SMALL: dict[str, dict[str, Any]] = {
    "llama": {**_GQA, "model_type": "llama"},
    "llama-biased-mha": {
        **_GQA,
        "model_type": "llama",
        "num_key_value_heads": 4,
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
    },
    "qwen2": {**_GQA, "model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {**_GQA, "model_type": "qwen3", "head_dim": 32},
    "phi3": {**_GQA, "model_type": "phi3", "pad_token_id": 0},
    "opt": {**_COMMON, "model_type": "opt", "ffn_dim": 80},
}


def catalogue_entry(name: str) -> dict[str, Any]:
    """The config.json content of a catalogue model."""
    text = (Path(loader.__file__).parent / "models" / f"{name}.json").read_text()
    content: dict[str, Any] = json.loads(text)
    return content


@pytest.fixture(params=sorted(SMALL))
def small(request: pytest.FixtureRequest) -> tuple[dict[str, Any], Model]:
    """(config, Model) of a small model, one of every structure."""
    config = SMALL[request.param]
    return config, model_from_config(config, request.param, "config.json")


@pytest.fixture(scope="session")
def on_meta() -> Callable[[dict[str, Any]], Any]:
    """config.json content -> the transformers model without storage."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def build(config: dict[str, Any]) -> Any:
        with torch.device("meta"):
            return transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))

    return build


@pytest.fixture
def entry() -> Callable[[str], dict[str, Any]]:
    """Catalogue name -> config.json content."""
    return catalogue_entry
