"""Plans of quantised weights and caches, run: the same as on values that were expanded before, wherever they live."""

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from daily import one_in
from layer_machines import two_cpus
from on_torch import on_torch
from op_plans import as_plan
from plans import make_plan
from quantised import write_quantised
from shapes import small_model
from splits import make_frame, make_layout
from two_cpus import TWO_CPUS

from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.planner.checks.accept import accept
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.streaming.division import pieces
from helmsman.planner.strategies.streaming.place import place
from helmsman.schemas.blocks.positions import Rope
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan, Residence, Select
from helmsman.schemas.read import digest
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS

FORMATS: tuple[StoredFormat, ...] = ("q8_0", "q4_0", "q4_k", "q6_k", "q8", "q4")
OFTEN = dict(zip(FORMATS, cycle(("qwen3", "opt"))))
"""The family that runs in a format every day."""
PROMPT, OUTPUT = 24, 8
WORK = Workload(prompt_tokens=PROMPT, output_tokens=OUTPUT, context=48, batch=2)
CLOSE = 1e-3
"""Of the largest logit: kernels round activations to sixteen bits."""
ROUNDED = 5e-2
"""The same, of what rounding every key and value to eight bits may change."""
SAME = 1e-3


def shape(family: str) -> Model:
    """A model whose columns are whole blocks of every format."""
    changes: dict[str, Any] = {"hidden": 256, "head_dim": 64, "ffn": 512}
    model = small_model(family)
    if isinstance(model.dense.position, Rope):
        changes["position"] = Rope(theta=10_000.0, rotary_dim=64)
    return reshaped(model, **changes)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The checkpoint of a family; with a format, of the values that its matrices stand for when quantised."""
    found: dict[tuple[str, StoredFormat | None], Path] = {}

    def get(family: str, fmt: StoredFormat | None = None) -> Path:
        if (family, fmt) not in found:
            where = tmp_path_factory.mktemp("weights") / family
            if fmt is None:
                write_checkpoint(shape(family), where, seed=1, fmt="f32")
            else:
                write_quantised(shape(family), where, lambda name: "positions" not in name, fmt)
            found[family, fmt] = where
        return found[family, fmt]

    return get


def streamed(model: Model, fmt: StoredFormat) -> Plan:
    """Everything is computed on the accelerator, from what lives in host memory, rows of tokens too."""
    frame = replace(make_frame(model, WORK), weights=fmt)
    plan = as_plan(place(frame, make_layout(model, 0, len(pieces(model, {})), ends="accelerator")))
    tables = [Residence(select=Select(names=name), memory="dram", format=fmt) for name in ("embedding*", "positions*")]
    return plan.model_copy(update={"residence": (*tables, *plan.residence)})


def outcome(checkpoint: Path, plan: Plan, machine: Machine | None = None) -> Any:
    """Logits of a prompt and of the tokens behind it."""
    tokens = np.random.default_rng(7).integers(3, 500, (WORK.batch, PROMPT), dtype=np.int32)
    with Engine.load(accept(plan), checkpoint, machine or two_cpus()) as engine:
        assert np.array(engine.generate(tokens, OUTPUT, ignore_eos=True).tokens).shape == (WORK.batch, OUTPUT)
        return engine.logits(tokens, prompt=PROMPT - 4)


def off(found: Any, expected: Any) -> float:
    """How far logits are apart, as a part of the largest."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize(
    ("family", "fmt"),
    one_in(
        2,
        [
            pytest.param(family, fmt, marks=() if family == OFTEN[fmt] else pytest.mark.nightly)
            for fmt in FORMATS
            for family in ("qwen3", "opt")
        ],
    ),
)
def test_quantised_weights_compute_what_they_stand_for(written: Callable[..., Path], family: str, fmt: Any) -> None:
    """From a plain checkpoint, quantised while it is loaded; against f32 weights of the same values."""
    model = shape(family)
    expected = outcome(written(family, fmt), make_plan(model, workload=WORK))
    alone = outcome(written(family), make_plan(model, weights=fmt, workload=WORK))
    assert off(alone, expected) < CLOSE
    for plan in (make_plan(model, 3, weights=fmt, workload=WORK), streamed(model, fmt)):
        assert off(outcome(written(family), plan), alone) < SAME


@pytest.mark.parametrize("fmt", [pytest.param("q8_0", marks=pytest.mark.nightly), "q4_k", "q4"])
def test_pytorch_devices_compute_what_native_ones_do(written: Callable[..., Path], fmt: Any) -> None:
    """From matrices that live there and that come, and from rows of tokens; with room for what the plan says."""
    model = shape("qwen3")
    native = outcome(written("qwen3"), make_plan(model, weights=fmt, workload=WORK))
    machine = replace(two_cpus(), accelerators={"cuda": ("cpu",)})
    for plan in (make_plan(model, 0, weights=fmt, workload=WORK), streamed(model, fmt)):
        found = outcome(written("qwen3"), with_exact_memories(on_torch(plan)), machine)
        assert off(found, native) < SAME
        assert np.array_equal(found.argmax(-1), native.argmax(-1))


@pytest.mark.parametrize("fmt", ["q4_0", "q4"])
def test_the_memory_that_the_plan_says_is_enough(written: Callable[..., Path], fmt: Any) -> None:
    Engine.load(with_exact_memories(streamed(shape("qwen3"), fmt)), written("qwen3"), two_cpus()).close()


def with_exact_memories(plan: Plan) -> Plan:
    """The plan on memories that have no more than it says that it needs."""
    used = {use.memory: use.used for use in memory_use(plan)}
    memories = tuple(
        memory.model_copy(update={"available": used[memory.name] or 1, "capacity": used[memory.name] or 1})
        for memory in plan.hardware.memories
    )
    hardware = plan.hardware.model_copy(update={"memories": memories})
    return plan.model_copy(update={"hardware": hardware, "hardware_sha256": digest(hardware)})


@pytest.mark.parametrize("split", [None, 3])
def test_caches_of_eight_bits_compute_nearly_the_same(written: Callable[..., Path], split: int | None) -> None:
    model = shape("qwen3")
    expected = outcome(written("qwen3"), make_plan(model, workload=WORK))
    found = outcome(written("qwen3"), make_plan(model, split, kv="q8_0", workload=WORK))
    assert 0 < off(found, expected) < ROUNDED


def test_divided_attention_does_not_read_eight_bits(written: Callable[..., Path]) -> None:
    frame = replace(make_frame(shape("qwen3"), WORK), kv="q8_0")
    plan = as_plan(place(frame, make_layout(shape("qwen3"), 0, 4)))
    with pytest.raises(UsageError, match="read value by value"):
        Engine.load(plan, written("qwen3"), two_cpus())
