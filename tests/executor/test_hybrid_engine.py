"""Models with states run by the engine: on the host, on an accelerator, divided between the two by blocks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from expert_layouts import divided_plan
from hybrid_models import FAMILIES, written_hybrid
from plans import make_plan
from test_latent_models import logits_of
from two_cpus import TWO_CPUS

from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_model import load_model
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, SlotRule
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, Plan, Residence, Select
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
PROMPT, OUTPUT, LONG = 17, 12, 150
TOLERANCE = 1e-3
"""Of the largest logit."""
SHAPE = Workload(prompt_tokens=LONG, output_tokens=OUTPUT, context=256)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    directory = tmp_path_factory.mktemp(request.param)
    return directory, written_hybrid(request.param, directory)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    directory = tmp_path_factory.mktemp("mixed")
    written_hybrid("qwen3_5_moe_text", directory)
    return directory, load_model(str(directory / "config.json"))


def ids_of(count: int, seed: int = 3) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(0, 128, count).tolist()
    return ids


@pytest.mark.parametrize(
    "on_cpu", [2, pytest.param(None, marks=pytest.mark.nightly), pytest.param(0, marks=pytest.mark.nightly)]
)
def test_greedy_tokens_are_those_of_transformers(family: tuple[Path, Any], on_cpu: int | None) -> None:
    """A long prompt passes in chunks."""
    directory, oracle = family
    ids = ids_of(LONG)
    expected, greedy = logits_of(oracle, ids), ids[:PROMPT]
    for _ in range(OUTPUT):
        greedy.append(int(logits_of(oracle, greedy)[-1].argmax()))
    model = load_model(str(directory / "config.json"))
    with Engine.load(make_plan(model, on_cpu, workload=SHAPE), directory, Machine.this()) as engine:
        computed = engine.logits(np.array([ids], np.int32), prompt=LONG)[0]
        free = engine.generate(np.array([ids[:PROMPT]], np.int32), OUTPUT, ignore_eos=True).tokens[0]
    assert list(free) == greedy[PROMPT:]
    assert np.abs(computed[-1] - expected[-1]).max() <= TOLERANCE * np.abs(expected).max()


def test_several_sequences_are_each_alone(mixed: tuple[Path, Model]) -> None:
    directory, model = mixed
    ids = np.array([ids_of(24, seed) for seed in range(3)], np.int32)
    with Engine.load(make_plan(model, workload=SHAPE), directory, Machine.this()) as engine:
        alone = [engine.generate(row[None], 8, ignore_eos=True).tokens[0] for row in ids]
    together = make_plan(model, 2, workload=SHAPE.model_copy(update={"batch": 3}))
    with Engine.load(together, directory, Machine.this()) as engine:
        assert list(engine.generate(ids, 8, ignore_eos=True).tokens) == alone


@pytest.mark.parametrize("growing", [False, True])
def test_a_prompt_goes_on_where_the_last_one_ended_and_nowhere_else(mixed: tuple[Path, Model], growing: bool) -> None:
    directory, model = mixed
    ids = np.array([ids_of(40)], np.int32)
    shape = SHAPE.model_copy(update={"context": 512, "output_tokens": 300})
    with Engine.load(make_plan(model, workload=shape), directory, Machine.this(), growing=growing) as engine:
        whole = engine.generate(ids, 300, ignore_eos=True).tokens[0]
        assert not engine.rewinds
        first = engine.generate(ids[:, :25], 4, ignore_eos=True).tokens[0]
        assert engine.continues(28, 12) and not engine.continues(25, 12)
        with pytest.raises(UsageError, match="cannot continue here"):
            engine.generate(ids[:, 25:], 4, past=25, ignore_eos=True)
        rest = np.concatenate([np.array([first[-1:]], np.int32), ids[:, 25:]], 1)
        engine.generate(rest, 3, past=28, ignore_eos=True)
        assert engine.generate(ids, 300, ignore_eos=True).tokens[0] == whole


def beside(plan: Plan, names: tuple[str, ...]) -> Plan:
    """Return a plan with some operations and their weights on the host."""
    compute = [ComputeRule(select=Select(names=name), device="cpu") for name in names]
    residence = [Residence(select=Select(names=name), memory="dram", format="f32") for name in names]
    changes = {"compute": (*compute, *plan.compute), "residence": (*residence, *plan.residence)}
    return plan.model_copy(update=changes)


@pytest.mark.parametrize("there", [("norm2*", "router*", "experts*", "shared*"), ("experts*",)])
def test_networks_may_be_on_the_host(mixed: tuple[Path, Model], there: tuple[str, ...]) -> None:
    directory, model = mixed
    ids, plan = np.array([ids_of(20, 6)], np.int32), make_plan(model, 0, workload=SHAPE)
    with Engine.load(plan, directory, Machine.this()) as engine:
        expected = engine.generate(ids, OUTPUT, ignore_eos=True).tokens
    with Engine.load(beside(plan, there), directory, Machine.this()) as engine:
        assert engine.generate(ids, OUTPUT, ignore_eos=True).tokens == expected


def test_weights_may_come_over_the_link_and_experts_to_slots(tmp_path: Path) -> None:
    """Of Kimi, whose layers keep states or latent vectors."""
    written_hybrid("kimi_linear", tmp_path)
    model, ids = load_model(str(tmp_path / "config.json")), np.array([ids_of(20, 6)], np.int32)
    whole = make_plan(model, 0, workload=SHAPE)
    home = (Residence(select=Select(), memory="dram", format="f32"),)
    layout = ExpertLayout(0, model.layers, rule=SlotRule("least-recent", "host"), slots=3)
    plans = whole, whole.model_copy(update={"residence": home}), divided_plan(model, layout, SHAPE)
    made = list[tuple[int, ...]]()
    for plan in plans:
        with Engine.load(plan, tmp_path, Machine.this()) as engine:
            made.append(tuple(engine.generate(ids, OUTPUT, ignore_eos=True).tokens[0]))
    assert made == [made[0]] * 3


@pytest.mark.parametrize("name", ["delta_in", "delta_conv", "delta", "delta_norm", "attention", "q"])
def test_mixers_that_are_divided_are_refused(mixed: tuple[Path, Model], name: str) -> None:
    directory, model = mixed
    plan = make_plan(model, 0)
    divided = ComputeRule(select=Select(names=name), device="cpu")
    with pytest.raises(UsageError, match="devices share the mixer of block"):
        Engine.load(plan.model_copy(update={"compute": (divided, *plan.compute)}), directory, Machine.this())


def test_states_that_would_move_between_phases_are_refused(mixed: tuple[Path, Model]) -> None:
    directory, model = mixed
    plan = make_plan(model, 0)
    names = ("norm1", "delta*", "q", "k", "v", "append", "attention", "o")
    moved = tuple(ComputeRule(select=Select(names=name), device="cpu", phase="decode") for name in names)
    with pytest.raises(UsageError, match=r"states of block 0 would be in .* in one phase"):
        Engine.load(plan.model_copy(update={"compute": (*moved, *plan.compute)}), directory, Machine.this())


@pytest.mark.parametrize("tensor", ["A_log", "dt_bias", "conv1d.weight", "in_proj_qkv.weight"])
def test_values_that_are_not_finite_are_refused_by_name(tmp_path: Path, tensor: str) -> None:
    model = written_hybrid("qwen3_5_text", tmp_path)
    name = next(name for name, _ in model.named_parameters() if name.endswith(tensor))
    with torch.no_grad():
        model.get_parameter(name).view(-1)[3] = float("nan")
    model.save_pretrained(tmp_path)
    described = load_model(str(tmp_path / "config.json"))
    with pytest.raises(BadInputError, match="not finite") as raised:
        Engine.load(make_plan(described), tmp_path, Machine.this())
    assert str(raised.value.field).endswith(name.removeprefix("model."))
