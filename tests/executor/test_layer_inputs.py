"""Models whose layers share caches and have inputs of their own for every token (Gemma 4 E2B and E4B): how prompts
pass, where parts of them may be, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.oracle import oracle_greedy, oracle_logits
from layer_machines import two_cpus
from on_torch import on_torch
from plans import make_plan
from safetensors.torch import load_file, save_file
from two_cpus import TWO_CPUS
from window_models import CONTEXT, written

from helmsman.cli.make_checkpoint import main as make_checkpoint
from helmsman.executor.checkpoint.config import hf_config
from helmsman.executor.checkpoint.window_config import TEXT_FAMILIES
from helmsman.executor.engine import Engine
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.layer_cache import owner
from helmsman.lowering.rings import ring_rows
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, Plan, Residence, Select
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
PROMPT, LONG, OUTPUT = 40, 160, 64
TOLERANCE = 1e-3
"""Of the largest logit."""
OWN = 4
"""Layers of the model with caches of their own; the last two of them are read by the layers after them."""
WORK = Workload(prompt_tokens=LONG, output_tokens=16, context=CONTEXT)
Case = tuple[Path, Model, Any]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("inputs")
    return (directory, *written("gemma4-inputs", directory))


def ids(model: Model, count: int) -> list[int]:
    return np.random.default_rng(3).integers(0, model.vocab, count).tolist()


def loaded(plan: Plan, directory: Path) -> Engine:
    return Engine.load(plan, directory, replace(two_cpus(), accelerators={"cuda": ("cpu",)}))


def close(computed: Any, expected: Any) -> None:
    assert np.abs(computed - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_many_greedy_tokens_are_those_of_transformers(case: Case) -> None:
    directory, model, oracle = case
    given = ids(model, PROMPT)
    with loaded(make_plan(model, 3, workload=WORK), directory) as engine:
        tokens = engine.generate(np.array([given], np.int32), OUTPUT, ignore_eos=True).tokens[0]
    assert list(tokens) == oracle_greedy(oracle, given, OUTPUT).tokens


@pytest.mark.parametrize("kind", ["native", "torch"])
def test_a_prompt_in_parts_is_the_whole(case: Case, kind: str) -> None:
    directory, model, oracle = case
    plan = make_plan(model, 2, workload=WORK)
    plan = plan.model_copy(update={"schedule": plan.schedule.model_copy(update={"pass_tokens": 48})})
    given = ids(model, LONG)
    with loaded(on_torch(plan) if kind == "torch" else plan, directory) as engine:
        computed = engine.logits(np.array([given], np.int32), prompt=LONG)[0, -1]
    close(computed, oracle_logits(oracle, given)[-1])


@pytest.mark.parametrize("kind", ["native", "torch"])
def test_a_batch_in_chunks_is_each_alone(case: Case, kind: str) -> None:
    """Sequences of more tokens than pass at a time have rows of inputs of their own."""
    directory, model, oracle = case
    work = Workload(prompt_tokens=100, output_tokens=4, context=128, batch=2)
    given = [ids(model, 100), ids(model, 101)[1:]]
    plan = make_plan(model, 2, workload=work)
    with loaded(on_torch(plan) if kind == "torch" else plan, directory) as engine:
        computed = engine.logits(np.array(given, np.int32), prompt=98)
    for own, prompt in zip(computed, given, strict=True):
        close(own, oracle_logits(oracle, prompt)[97:])


@pytest.mark.parametrize("kind", ["native", "torch"])
def test_rows_of_the_tables_come_from_the_host(case: Case, kind: str) -> None:
    """The accelerator computes all; tables stay in host memory, which looks up the rows of a pass's tokens."""
    directory, model, oracle = case
    plan = make_plan(model, 0, workload=WORK)
    here = Residence(select=Select(names="layer_table*"), memory="dram", format="f32", path="pinned")
    plan = plan.model_copy(update={"residence": (here, *plan.residence)})
    given = ids(model, LONG)
    with loaded(on_torch(plan) if kind == "torch" else plan, directory) as engine:
        computed = engine.logits(np.array([given], np.int32), prompt=LONG - 3)[0]
    close(computed, oracle_logits(oracle, given)[LONG - 4 :])


def test_a_cache_that_others_read_keeps_all_positions(case: Case) -> None:
    """A prompt may be through the layer that appends, chunk after chunk, before others read what it left."""
    _, model, _ = case
    plan = make_plan(model, workload=WORK)
    assert [ring_rows(plan, layer) is None for layer in range(OWN)] == [False, False, True, True]
    assert [owner(model, layer) for layer in range(OWN, model.layers)] == [2, 2, 3]


def test_a_cache_of_another_device_is_refused_by_its_layers(case: Case) -> None:
    directory, model, _ = case
    with pytest.raises(UsageError) as raised:
        loaded(make_plan(model, OWN + 1, workload=WORK), directory)
    assert "layer 4 on loopback reads the cache of layer 2 in dram" in str(raised.value)
    assert "let one device compute layers 2 to 6" in str(raised.value)


def test_an_embedding_apart_from_inputs_of_layers_is_refused(case: Case) -> None:
    directory, model, _ = case
    plan = make_plan(model, 0, workload=WORK)
    apart = (ComputeRule(select=Select(names="embedding"), device="cpu"), *plan.compute)
    with pytest.raises(UsageError, match="devices share the embedding and the inputs of layers"):
        loaded(plan.model_copy(update={"compute": apart}), directory)


def test_files_may_have_keys_and_values_for_layers_that_use_none(case: Case, tmp_path: Path) -> None:
    """As released ones do, which have what sees images, too; other tensors without a use are refused."""
    directory, model, _ = case
    for file in directory.glob("*.json"):
        (tmp_path / file.name).write_text(file.read_text())
    tensors = load_file(directory / "model.safetensors")
    unused, other = torch.zeros(2, 2), torch.ones(2, 2)
    tensors |= {"model.layers.4.self_attn.k_proj.weight": unused, "model.vision_tower.patch.weight": other}
    save_file(tensors, tmp_path / "model.safetensors")
    loaded(make_plan(model, workload=WORK), tmp_path).close()
    save_file(tensors | {"model.layers.4.self_attn.r_proj.weight": unused + 2}, tmp_path / "model.safetensors")
    with pytest.raises(BadInputError, match="r_proj"):
        loaded(make_plan(model, workload=WORK), tmp_path)


def test_fewer_layers_are_written_or_it_is_said_why_not(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Files of the family mean full attention in the last layer."""
    model = load_model("gemma-4-E2B-it").with_layers(20)
    text = model.model_copy(update={"family": TEXT_FAMILIES[model.family]})
    (tmp_path / "config.json").write_text(json.dumps(hf_config(text, "bf16")))
    again = load_model(str(tmp_path / "config.json"))
    assert again.pattern == model.pattern == "WWWWA" * 3 + "VVVVB" and again.layouts == model.layouts
    arguments = ["--model", "gemma-4-E2B-it", "--layers", "18", "-o", str(tmp_path / "made")]
    assert make_checkpoint(arguments) == UsageError("").exit_code
    assert "keep the first 15" in capsys.readouterr().err
