"""Checkpoints of models of latent attention, written by Helm, run by its engine and by transformers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.oracle import load_oracle, oracle_greedy, oracle_logits
from latent_models import COMMON, FAMILIES
from plans import make_plan
from two_cpus import TWO_CPUS

from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.executor.weights.checkpoint import Checkpoint
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import KvFormat
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, Plan, Residence, Select
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
PROMPT, OUTPUT, LONG = 17, 64, 150
TOLERANCE = 1e-3
"""Of the largest logit."""

Written = Callable[..., tuple[Path, Model]]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Write a random checkpoint of a family, as helm-make-checkpoint does."""

    def write(family: str, **changes: Any) -> tuple[Path, Model]:
        from transformers import AutoConfig

        described = tmp_path / "config"
        sizes = {**COMMON, **FAMILIES[family], "max_position_embeddings": 256, "vocab_size": 512, **changes}
        AutoConfig.for_model(family, **sizes, eos_token_id=None).save_pretrained(described)
        model = load_model(str(described / "config.json"))
        write_checkpoint(model, tmp_path / "checkpoint", fmt="f32")
        return tmp_path / "checkpoint", load_model(str(tmp_path / "checkpoint" / "config.json"))

    return write


@pytest.mark.parametrize(("family", "on_cpu"), [("deepseek_v2", 2), ("deepseek_v3", None), ("glm4_moe_lite", 0)])
def test_greedy_tokens_are_those_of_transformers(written: Written, family: str, on_cpu: int | None) -> None:
    """On the host, on an accelerator, and divided between the two after a block; a long prompt passes in chunks."""
    directory, model = written(family)
    oracle = load_oracle(directory)
    ids = np.random.default_rng(3).integers(0, model.vocab, LONG).tolist()
    greedy = oracle_greedy(oracle, ids[:PROMPT], OUTPUT)
    expected = oracle_logits(oracle, ids)
    shape = Workload(prompt_tokens=LONG, output_tokens=OUTPUT, context=256)
    with Engine.load(make_plan(model, on_cpu, workload=shape), directory, Machine.this()) as engine:
        found = engine.logits(np.array([ids], np.int32), prompt=LONG)[0]
        free = engine.generate(np.array([ids[:PROMPT]], np.int32), OUTPUT, ignore_eos=True).tokens[0]
    assert list(free) == greedy.tokens
    assert np.abs(found[-1] - expected[-1]).max() <= TOLERANCE * np.abs(expected).max()


def test_a_text_model_beside_a_vision_tower_is_that_model(written: Written, tmp_path: Path) -> None:
    """Kimi-K2.5: its config has the text model within, and its files another beginning of names."""
    from safetensors.numpy import load_file, save_file

    directory, model = written("deepseek_v3", num_nextn_predict_layers=0)
    around = tmp_path / "around"
    around.mkdir()
    (file,) = directory.glob("*.safetensors")
    stored = {f"language_model.{name}": value for name, value in load_file(file).items()}
    seeing = dict.fromkeys(("vision_tower.encoder.weight", "mm_projector.proj.0.weight"), np.zeros(4, np.float32))
    save_file({**stored, **seeing}, around / file.name)
    text = {**json.loads((directory / "config.json").read_text()), "model_type": "kimi_k2"}
    outer = {"model_type": "kimi_k25", "tie_word_embeddings": False, "vision_config": {"hidden_size": 16}}
    (around / "config.json").write_text(json.dumps({**outer, "text_config": text}))
    ids, made = np.random.default_rng(3).integers(0, model.vocab, (1, 8), dtype=np.int32), []
    for folder in (directory, around):
        own = load_model(str(folder / "config.json"))
        with Engine.load(make_plan(own, 0), folder, Machine.this()) as engine:
            made.append(engine.logits(ids, prompt=8))
    assert own.family == "kimi_k25" and np.array_equal(*made)


@pytest.mark.parametrize(("kv", "tolerance"), [("f16", 3e-3), ("bf16", 2e-2), ("q8_0", 5e-2)])
def test_caches_of_fewer_bits_stay_near(written: Written, kv: KvFormat, tolerance: float) -> None:
    """At most positions: at others a choice of experts may be another."""
    directory, model = written("deepseek_v2", kv_lora_rank=48, qk_rope_head_dim=16)
    ids = np.random.default_rng(3).integers(0, model.vocab, 40).tolist()
    plan = make_plan(model, kv=kv, workload=Workload(prompt_tokens=32, output_tokens=16, context=64))
    expected = oracle_logits(load_oracle(directory), ids)[31:]
    with Engine.load(plan, directory, Machine.this()) as engine:
        found = engine.logits(np.array([ids], np.int32), prompt=32)[0]
    differences = np.abs(found - expected).max(axis=1) / np.abs(expected).max()
    assert 0 < np.median(differences) <= tolerance


def test_rows_that_are_no_whole_blocks_are_refused(written: Written) -> None:
    directory, model = written("deepseek_v2")
    with pytest.raises(UsageError, match="rows of 40 values"):
        Engine.load(make_plan(model, kv="q8_0"), directory, Machine.this())


def test_caches_grow_and_go_back(written: Written) -> None:
    """A conversation goes on from a part of what is cached, in caches that begin small."""
    directory, model = written("deepseek_v2")
    ids = np.random.default_rng(5).integers(0, model.vocab, 30).astype(np.int32)
    shape = Workload(prompt_tokens=30, output_tokens=200, context=240)
    with Engine.load(make_plan(model, workload=shape), directory, Machine.this()) as engine:
        whole = engine.generate(ids[None], 150, ignore_eos=True).tokens[0]
    with Engine.load(make_plan(model, workload=shape), directory, Machine.this(), growing=True) as engine:
        assert engine.rewinds
        engine.generate(ids[None, :12], 3, ignore_eos=True)
        assert engine.generate(ids[None, 12:], 150, past=12, ignore_eos=True).tokens[0] == whole


def test_several_sequences_are_each_alone(written: Written) -> None:
    directory, model = written("glm4_moe_lite")
    ids = np.random.default_rng(4).integers(0, model.vocab, (3, 24)).astype(np.int32)
    shape = Workload(prompt_tokens=24, output_tokens=8, context=32)
    with Engine.load(make_plan(model, workload=shape), directory, Machine.this()) as engine:
        alone = [engine.generate(row[None], 8, ignore_eos=True).tokens[0] for row in ids]
    together = make_plan(model, 2, workload=shape.model_copy(update={"batch": 3}))
    with Engine.load(together, directory, Machine.this()) as engine:
        assert list(engine.generate(ids, 8, ignore_eos=True).tokens) == alone


def beside(plan: Plan, names: tuple[str, ...]) -> Plan:
    """Return a plan with some operations and their weights on the host."""
    compute = [ComputeRule(select=Select(names=name), device="cpu") for name in names]
    residence = [Residence(select=Select(names=name), memory="dram", format="f32") for name in names]
    changes = {"compute": (*compute, *plan.compute), "residence": (*residence, *plan.residence)}
    return plan.model_copy(update=changes)


def test_blocks_that_are_divided_are_refused(written: Written) -> None:
    directory, model = written("deepseek_v2")
    plan = make_plan(model, 0)
    for name in ("attention", "k_b", "append"):
        divided = ComputeRule(select=Select(names=name), device="cpu")
        with pytest.raises(UsageError, match="let one device compute the attention of a block"):
            Engine.load(plan.model_copy(update={"compute": (divided, *plan.compute)}), directory, Machine.this())


NETWORK = ("norm2*", "router*", "experts*", "shared*", "gate*", "up*", "down*")
"""All that is computed of a block after attention."""


@pytest.mark.parametrize("there", [NETWORK, ("norm2*", "router*", "experts*"), ("shared*",), ("experts*",)])
def test_networks_may_be_on_the_host(written: Written, there: tuple[str, ...]) -> None:
    directory, model = written("deepseek_v3")
    ids = np.random.default_rng(6).integers(0, model.vocab, 20).astype(np.int32)
    plan = make_plan(model, 0, workload=Workload(prompt_tokens=20, output_tokens=12, context=40))
    with Engine.load(plan, directory, Machine.this()) as engine:
        expected = engine.generate(ids[None], 12, ignore_eos=True).tokens
    with Engine.load(beside(plan, there), directory, Machine.this()) as engine:
        assert engine.generate(ids[None], 12, ignore_eos=True).tokens == expected


@pytest.mark.parametrize("there", [("router*", "experts*"), ("router*", "experts*", "shared*")])
def test_sums_that_begin_without_hidden_states_are_refused(written: Written, there: tuple[str, ...]) -> None:
    directory, model = written("deepseek_v3")
    with pytest.raises(UsageError, match="share the router of block 1 and its norm"):
        Engine.load(beside(make_plan(model, 0), there), directory, Machine.this())


def test_blocks_that_draft_tokens_may_be_in_the_files(written: Written) -> None:
    """Released files have them behind the model's own; a block that nobody counts is another model's."""
    from safetensors.torch import load_file, save_file

    directory, model = written("glm4_moe_lite")
    place = directory / "model.safetensors"
    content = load_file(place)
    save_file({**content, f"model.layers.{model.layers}.enorm.weight": torch.zeros(64)}, place, {"format": "pt"})
    config = directory / "config.json"
    config.write_text(config.read_text().replace('"num_nextn_predict_layers": 0', '"num_nextn_predict_layers": 1'))
    with_draft = load_model(str(config))
    assert with_draft.drafts
    Checkpoint.open(directory, with_draft)
