"""GGUF files of models with states: those that llama.cpp's scripts convert are read, and Helm's own are like them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from converted_files import converted, write_converted
from hybrid_models import COMMON, FAMILIES, written_hybrid
from plans import make_plan
from safetensors.numpy import load_file
from small_configs import read_small
from test_latent_models import logits_of
from two_cpus import TWO_CPUS

from helmsman.executor.checkpoint.gguf_write import write_gguf
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.executor.weights.agreement import check_agreement
from helmsman.executor.weights.opening import open_weights
from helmsman.hwdb.gguf_files import gguf_places
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.workload import Workload

_DELTA = {"linear_num_value_heads": 6}
"""Three value heads for each of two key heads: an order that is not its own inverse."""
WRITTEN: dict[str, dict[str, Any]] = {"qwen3_5_moe_text": _DELTA}
"""Families whose files are written and read, and what their configs say beside the usual."""
PROMPT, OUTPUT = 150, 8
TOLERANCE = 1e-3
"""Of the largest logit."""


@pytest.mark.parametrize("family", ["kimi_linear"])
def test_others_are_refused_by_name(tmp_path: Path, family: str) -> None:
    from gguf_bytes import gguf, string

    path = tmp_path / "model.gguf"
    path.write_bytes(gguf({"general.architecture": string("kimi-linear")}))
    with pytest.raises(BadInputError, match="keeps states"):
        open_weights(path, make_plan(read_small(family)).model)


@TWO_CPUS
@pytest.mark.parametrize("on_cpu", [None, 2])
@pytest.mark.parametrize("family", WRITTEN)
def test_logits_of_a_converted_file_are_those_of_transformers(family: str, on_cpu: int | None, tmp_path: Path) -> None:
    """A long prompt passes in chunks, and its last token alone."""
    oracle = written_hybrid(family, tmp_path, **WRITTEN[family])
    state = {name: values.numpy() for name, values in oracle.state_dict().items()}
    write_converted(state, oracle.config.to_dict(), tmp_path / "model.gguf")
    model = load_model(str(tmp_path / "model.gguf"))
    check_agreement(model, load_model(str(tmp_path / "config.json")), "f")
    ids = np.random.default_rng(3).integers(0, 128, PROMPT).tolist()
    expected = logits_of(oracle, ids)
    plan = make_plan(model, on_cpu, workload=Workload(prompt_tokens=PROMPT, output_tokens=OUTPUT, context=256))
    with Engine.load(plan, tmp_path / "model.gguf", Machine.this()) as engine:
        computed = engine.logits(np.array([ids], np.int32), prompt=PROMPT - 1)[0]
    assert np.abs(computed - expected[-2:]).max() <= TOLERANCE * np.abs(expected).max()


def described(family: str, folder: Path, **changes: Any) -> Any:
    """Return the model of a family's config, which llama.cpp could compute too."""
    from transformers import AutoConfig

    sizes = {**COMMON, **FAMILIES[family], **WRITTEN[family], "vocab_size": 512}
    equal = {"linear_value_head_dim": 16} if "linear_value_head_dim" in sizes else {}
    config = AutoConfig.for_model(family, **{**sizes, **equal, **changes})
    config.save_pretrained(folder / "config")
    return load_model(str(folder / "config" / "config.json"))


@pytest.mark.parametrize("family", WRITTEN)
def test_a_written_file_is_the_converted_checkpoint(family: str, tmp_path: Path) -> None:
    """But for experts that a checkpoint of the family draws all together."""
    import json

    model, place = described(family, tmp_path), tmp_path / "model.gguf"
    write_gguf(model, place, 1, "f32")
    check_agreement(load_model(str(place)), model, "f")
    write_checkpoint(model, tmp_path / "hf", 1, "f32")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    expected = converted(load_file(tmp_path / "hf" / "model.safetensors"), config)
    places, data = gguf_places(place), place.read_bytes()
    assert set(places) == set(expected)
    for name, values in expected.items():
        entry = places[name]
        found = np.frombuffer(data[entry.start : entry.end], np.float32).reshape(entry.shape)
        assert entry.shape == values.shape, name
        if "_exps" not in name:
            np.testing.assert_allclose(found, values, rtol=1e-6, err_msg=name)


def test_rates_that_do_not_decay_are_refused_by_name(tmp_path: Path) -> None:
    model, place = described("qwen3_5_moe_text", tmp_path), tmp_path / "model.gguf"
    write_gguf(model, place, 1, "f32")
    start = gguf_places(place)["blk.1.ssm_a"].start
    content = bytearray(place.read_bytes())
    content[start : start + 4] = np.float32(0.25).tobytes()
    place.write_bytes(content)
    with pytest.raises(BadInputError, match="a rate of decay that is not below 0") as raised:
        Engine.load(make_plan(load_model(str(place))), place, Machine.this())
    assert raised.value.field == "blk.1.ssm_a"


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"linear_value_head_dim": 32}, "values of another length than keys")],
)
def test_what_files_cannot_state_is_not_written(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=message):
        write_gguf(described("qwen3_5_moe_text", tmp_path, **changes), tmp_path / "model.gguf")
