"""gpt-oss and Gemma 2, 3 and 4 by the engine, on processors and a PyTorch device, against transformers."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.oracle import mean_kl, oracle_greedy, oracle_logits
from layer_machines import two_cpus
from on_torch import on_torch
from plans import make_plan
from two_cpus import TWO_CPUS
from window_models import CONTEXT, MODELS, WINDOW, written, written_in_micro_blocks

from helmsman.executor.engine import Engine
from helmsman.executor.measuring.measure import spans_of
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.serving.request import RequestOptions
from helmsman.lowering.lower import lower
from helmsman.planner.memory.cache_bytes import caches_by_memory, kv_block_bytes, whole_cache_bytes
from helmsman.scheduler.decision import Chunk, SchedulingDecision
from helmsman.scheduler.limits import Limits
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import Block
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan, Select
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
PROMPT, OUTPUT, LONG = 40, 32, 160
TOLERANCE = 1e-3
"""Of the largest logit."""

SHOWN = 1e-2
"""Mean KL, in nats, from which a fault shows."""

WORK = Workload(prompt_tokens=LONG, output_tokens=OUTPUT, context=CONTEXT)
LIMITS = Limits(gpu_tokens=512, cpu_tokens=0, batch_tokens=96, sequences=4)
Case = tuple[Path, Model, Any]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """Checkpoints and transformers' models by name."""
    made: dict[str, Case] = {}

    def get(name: str) -> Case:
        torch.set_num_threads(1)
        if name not in made:
            directory = tmp_path_factory.mktemp(name)
            made[name] = (directory, *written(name, directory))
        return made[name]

    return get


def ids(vocab: int, count: int) -> list[int]:
    return np.random.default_rng(3).integers(0, vocab, count).tolist()


def loaded(plan: Plan, directory: Path) -> Engine:
    return Engine.load(plan, directory, replace(two_cpus(), accelerators={"cuda": ("cpu",)}))


def close(computed: Any, expected: Any) -> None:
    assert np.abs(computed - expected).max() <= TOLERANCE * np.abs(expected).max()


PLACES: dict[str, tuple[int | None, str]] = {
    "host": (None, "cpu"),
    "accelerator": (0, "loopback"),
    "both": (2, "loopback"),
    "torch": (2, "torch"),
}
"""By name, how many units are the host's, and the kind of the accelerator."""
OFTEN = {("gpt_oss", "host"), ("gpt_oss", "torch"), ("gemma2", "accelerator"), ("gemma3", "both"), ("gemma4", "torch"),
         ("gemma4-experts", "both"), ("gemma4-inputs", "both"), ("gemma4-inputs", "torch")}  # fmt: skip
"""What is tried whenever tests run: every model, and every place."""


@pytest.mark.parametrize(
    ("name", "place"),
    [
        pytest.param(name, place, marks=() if (name, place) in OFTEN else pytest.mark.nightly)
        for name in MODELS
        for place in PLACES
    ],
)
def test_greedy_tokens_and_logits_are_those_of_transformers(
    models: Callable[[str], Case], name: str, place: str
) -> None:
    """On the host, on an accelerator, and divided between the two; prompts pass in chunks, far beyond the window."""
    directory, model, oracle = models(name)
    on_cpu, kind = PLACES[place]
    given = ids(model.vocab, LONG)
    greedy, expected = oracle_greedy(oracle, given[:PROMPT], OUTPUT), oracle_logits(oracle, given)
    plan = make_plan(model, on_cpu, workload=WORK)
    with loaded(on_torch(plan) if kind == "torch" else plan, directory) as engine:
        computed = engine.logits(np.array([given], np.int32), prompt=LONG)[0]
        free = engine.generate(np.array([given[:PROMPT]], np.int32), OUTPUT, ignore_eos=True).tokens[0]
    close(computed[-1], expected[-1])
    assert list(free) == greedy.tokens


@pytest.mark.parametrize("kind", ["loopback", "torch"])
def test_of_caches_away_from_where_they_are_read_the_window_comes(models: Callable[[str], Case], kind: str) -> None:
    """All positions are kept in host memory; as many bytes come every pass as the plan prices."""
    directory, model, oracle = models("gemma3")
    given = ids(model.vocab, PROMPT)
    plan = make_plan(model, 0, workload=WORK)
    plan = plan.model_copy(update={"kv": tuple(rule.model_copy(update={"memory": "dram"}) for rule in plan.kv)})
    with loaded(on_torch(plan) if kind == "torch" else plan, directory) as engine:
        free = engine.generate(np.array([given], np.int32), OUTPUT, ignore_eos=True)
    assert list(free.tokens[0]) == oracle_greedy(oracle, given, OUTPUT).tokens
    if kind == "loopback":
        kept = sum(whole_cache_bytes(model, WORK, "f32", layer) for layer in range(model.layers))
        assert (
            kept
            == caches_by_memory(plan)["dram"]
            > sum(kv_block_bytes(model, WORK, "f32", layer) for layer in range(model.layers))
        )
        moved, priced = Counter[int](), Counter[int]()
        for span in spans_of(plan, 0, free):
            moved[span.iteration] += span.bytes if span.op == "kv" else 0
        for iteration in free.iterations:
            transfers = [task for task in lower(plan, iteration).tasks if task.kind == "transfer"]
            priced[iteration.index] = sum(task.bytes for task in transfers if task.op == "kv")
        assert moved == priced and max(moved.values()) > 0


@pytest.mark.parametrize(
    ("fmt", "kind"),
    [("mxfp4", "cpu"), ("mxfp4", "torch"), pytest.param("f32", "cpu", marks=pytest.mark.nightly)],
)
def test_experts_in_micro_blocks_are_those_of_transformers(tmp_path: Path, fmt: StoredFormat, kind: str) -> None:
    """Multiplied as they are stored, and dequantised: many tokens and one."""
    torch.set_num_threads(1)
    model, oracle = written_in_micro_blocks(tmp_path)
    given = ids(model.vocab, 60)
    expected = oracle_logits(oracle, given)
    plan = make_plan(model, None if kind == "cpu" else 0, workload=WORK)
    rule = plan.residence[-1].model_copy(update={"select": Select(names="experts_*"), "format": fmt})
    plan = plan.model_copy(update={"residence": (rule, *plan.residence)})
    with loaded(on_torch(plan) if kind == "torch" else plan, tmp_path) as engine:
        computed = engine.logits(np.array([given], np.int32), prompt=50)[0]
    close(computed, expected[49:])


@pytest.mark.parametrize(
    "name", ["gpt_oss", *(pytest.param(name, marks=pytest.mark.nightly) for name in MODELS if name != "gpt_oss")]
)
def test_a_prompt_is_its_tokens_one_by_one(models: Callable[[str], Case], name: str) -> None:
    directory, model, oracle = models(name)
    given = ids(model.vocab, 100)
    with loaded(make_plan(model, workload=WORK), directory) as engine:
        computed = engine.logits(np.array([given], np.int32))[0]
    close(computed, oracle_logits(oracle, given))


def faulty(model: Model, change: Callable[[Attention], Attention]) -> Model:
    """Return the model with another attention."""

    def changed(layout: Block) -> Block:
        attends, *rest = layout.residuals
        (body,) = attends.bodies
        assert isinstance(body.op, Attention)
        other = body.model_copy(update={"op": change(body.op)})
        return layout.model_copy(update={"residuals": (attends.model_copy(update={"bodies": (other,)}), *rest)})

    return model.model_copy(update={"layouts": tuple(map(changed, model.layouts))})


def wider(op: Attention) -> Attention:
    return op if op.window is None else op.model_copy(update={"window": op.window + 1})


def narrower(op: Attention) -> Attention:
    return op if op.window is None else op.model_copy(update={"window": op.window - 1})


def without_sinks(op: Attention) -> Attention:
    return op.model_copy(update={"sinks": False})


def uncapped(op: Attention) -> Attention:
    return op.model_copy(update={"softcap": None})


def swapped(model: Model) -> Model:
    """Return the model whose layers with and without windows have each other's rotation."""
    ropes = {layout.attention.window is None: layout.attention.rope for layout in model.layouts if layout.attention}
    return faulty(model, lambda op: op.model_copy(update={"rope": ropes[op.window is not None]}))


def first_cache(op: Attention) -> Attention:
    """Return attention that reads the first layer's cache where it should read a later one's of the same heads."""
    return op if op.cache_of is None or op.window is None else op.model_copy(update={"cache_of": 0})


def without_inputs(model: Model) -> Model:
    """Return the model whose layers have no inputs of their own."""
    layouts = tuple(layout.model_copy(update={"residuals": layout.residuals[:2]}) for layout in model.layouts)
    return model.model_copy(update={"layouts": layouts, "per_layer_table": None})


FAULTS = {
    "a window one wider": ("gpt_oss", lambda model: faulty(model, wider)),
    "a window one narrower": ("gpt_oss", lambda model: faulty(model, narrower)),
    "no sinks": ("gpt_oss", lambda model: faulty(model, without_sinks)),
    "no cap": ("gemma2", lambda model: faulty(model, uncapped)),
    "each other's rotation": ("gemma3", swapped),
    "no inputs of layers": ("gemma4-inputs", without_inputs),
    "the cache of a wrong layer": ("gemma4-inputs", lambda model: faulty(model, first_cache)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_show(models: Callable[[str], Case], fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helmsman.executor.weights.checkpoint.check_agreement", lambda *given: None)
    monkeypatch.setattr("helmsman.executor.weights.checkpoint._check_explained", lambda *given: None)
    name, plant = FAULTS[fault]
    directory, model, oracle = models(name)
    given = ids(model.vocab, 2 * WINDOW)
    with loaded(make_plan(plant(model), workload=WORK), directory) as engine:
        computed = engine.logits(np.array([given], np.int32))[0]
    assert mean_kl(oracle_logits(oracle, given), computed) > SHOWN


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("gpt_oss", "loopback"), ("gemma3", "loopback"), ("gpt_oss", "torch"), ("gemma4", "loopback")),
        *(("gemma4-inputs", "loopback"), ("gemma4-inputs", "torch")),
        pytest.param("gemma4-experts", "loopback", marks=pytest.mark.nightly),
    ],
)
def test_requests_that_are_served_together_get_what_each_gets_alone(
    models: Callable[[str], Case], name: str, kind: str
) -> None:
    """Prompts in pieces beside decode steps, of contexts below the window and beyond it."""
    directory, model, _ = models(name)
    machine = replace(two_cpus(), accelerators={"cuda": ("cpu",)})
    plan = make_plan(model, 0, workload=WORK)
    plan = on_torch(plan) if kind == "torch" else plan
    prompts = [ids(model.vocab, 70), ids(model.vocab, 50)[20:], ids(model.vocab, 5)]
    made: list[list[int]] = [[], [], []]
    with ServingEngine.load(plan, directory, machine, LIMITS) as engine:
        for number, prompt in enumerate(prompts):
            engine.add(number, RequestOptions(prompt, OUTPUT))
        first = (Chunk(0, 40, 0, "gpu"), Chunk(2, 5, 0, "gpu"))
        steps = [SchedulingDecision("gpu-only", first, (), (), (), (), (), ())]
        rest = (Chunk(0, 30, 40, "gpu"), Chunk(1, 30, 0, "gpu"))
        steps.append(SchedulingDecision("gpu-only", rest, (2,), (), (), (), (), ()))
        steps += [SchedulingDecision("gpu-only", (), (0, 1, 2), (), (), (), (), ())] * 12
        for step in steps:
            for number, token in engine.step(step).tokens.items():
                made[number].append(token)
    with loaded(make_plan(model, workload=WORK), directory) as engine:
        for prompt, tokens in zip(prompts, made, strict=True):
            alone = engine.generate(np.array([prompt], np.int32), len(tokens), ignore_eos=True).tokens[0]
            assert list(alone) == tokens
