"""Matrices divided between three devices that are linked with each other: the tokens of the CPU alone, wherever what
one makes is still on its way to another when it makes the next."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from daily import one_in
from layer_machines import two_cpus
from plans import figure, make_hardware, make_plan
from shapes import small_model

from helmsman.executor.engine import Engine
from helmsman.lowering.operation import PANEL
from helmsman.lowering.ops import LINEAR_OPS
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware, Link
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Part, Plan, Residence, Schedule, Select
from helmsman.schemas.workload import Workload

FAMILIES = ("opt", "qwen3", "llama")
DEVICES = {"cpu": "dram", "loopback": "vram", "second": "vram2"}
OUTPUT = 5


def machine(source: Random, direct: bool = True) -> Hardware:
    """Two accelerators, whose links are fast, or as slow as a few operations; `direct`: also between the two."""
    hardware = make_hardware()
    dram, vram = hardware.memories
    memories = (dram, vram, vram.model_copy(update={"name": "vram2"}))
    device = next(device for device in hardware.devices if device.name == "loopback")
    second = device.model_copy(update={"name": "second", "memory": "vram2"})
    links = tuple(
        Link(name=f"{one}-{other}", source_memory=one, target_memory=other, kind="throttled",
             bandwidth=figure(source.choice((2e7, 2e8, 4e9))), latency=figure(source.choice((1e-6, 2e-5, 2e-4))))
        for one in DEVICES.values() for other in DEVICES.values() if one != other and (direct or "dram" in (one, other))
    )  # fmt: skip
    return hardware.model_copy(update={"memories": memories, "devices": (*hardware.devices, second), "links": links})


def divided(source: Random, model: Model, layer: int, op: str) -> Iterator[ComputeRule]:
    """Rows of a matrix, by the devices that do them, in any order."""
    rows = {
        "o": model.hidden,
        "down": model.hidden,
        "gate": model.dense.ffn,
        "up": model.dense.ffn,
        "q": model.dense.q_width,
    }
    extent, devices = rows.get(op, model.dense.kv_width), source.sample(list(DEVICES), source.randint(1, 3))
    cuts = sorted(source.sample(range(PANEL, extent, PANEL), len(devices) - 1))
    layers = LayerRange(start=layer, stop=layer + 1)
    for device, start, stop in zip(devices, (0, *cuts), (*cuts, extent), strict=True):
        part = Part(axis="rows", start=start, stop=stop)
        yield ComputeRule(select=Select(names=op, part=part, layers=layers), device=device)


def drawn(seed: int, prompt: int, barrier: bool, direct: bool = True) -> Plan:
    """Every matrix of every block divided by chance, all else on any device."""
    source, model = Random(seed), small_model(FAMILIES[seed % 3])
    linear = [op for op in LINEAR_OPS if op != "gate" or model.dense.gated]
    rules = [rule for layer in range(model.layers) for op in linear for rule in divided(source, model, layer, op)]
    others = ("norm1", "norm2", "append", "attention", "embedding", "final_norm", "head")
    rules += [ComputeRule(select=Select(names=op), device=source.choice(list(DEVICES))) for op in others]
    work = Workload(prompt_tokens=prompt, output_tokens=OUTPUT, batch=source.choice((1, 3)), context=prompt + 8)
    schedule = Schedule(barrier=True, stage="block") if barrier else Schedule(overlap="next-layer", prefetch=1)
    everywhere = Residence(select=Select(), memory="dram", format="f32", replicas=("vram", "vram2"))
    return make_plan(model, workload=work, hardware=machine(source, direct)).model_copy(
        update={
            "compute": tuple(rules),
            "residence": (everywhere,),
            "kv": (KvRule(select=Select(), memory="dram", format="f32"),),
            "schedule": schedule,
        }
    )


def outcome(checkpoint: Path, plan: Plan) -> tuple[Any, Any]:
    """The greedy tokens (batch, OUTPUT) of a plan, and the logits of the last two positions of the prompt."""
    shape = plan.workload.batch, plan.workload.prompt_tokens
    tokens = np.random.default_rng(7).integers(3, 500, shape, dtype=np.int32)
    with Engine.load(plan, checkpoint, two_cpus(3)) as engine:
        made = engine.generate(tokens, OUTPUT, ignore_eos=True)
        return np.array(made.tokens), engine.logits(tokens, prompt=shape[1] - 2)


@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize(
    ("prompt", "seeds"),
    one_in(
        2,
        [
            (8, range(3)),
            (150, range(1)),
            pytest.param(8, range(3, 4), marks=pytest.mark.nightly),
            pytest.param(150, range(1, 2), marks=pytest.mark.nightly),
        ],
    ),
)
def test_three_devices_make_the_tokens_of_one(
    checkpoints: Callable[[str], Path], prompt: int, seeds: range, barrier: bool
) -> None:
    for seed in seeds:
        plan = drawn(seed, prompt, barrier)
        checkpoint = checkpoints(plan.model.family)
        tokens, logits = outcome(checkpoint, plan)
        expected_tokens, expected = outcome(checkpoint, make_plan(plan.model, workload=plan.workload))
        assert np.abs(logits - expected).max() < 1e-4 * np.abs(expected).max(), seed
        assert np.array_equal(tokens, expected_tokens), seed


def test_values_that_would_pass_through_the_host_are_refused(checkpoints: Callable[[str], Path]) -> None:
    plan = drawn(1, 8, barrier=False, direct=False)
    with pytest.raises(UsageError, match="from vram2? to vram2? through dram"):
        outcome(checkpoints(plan.model.family), plan)
