"""A kind of device of which the executor knows nothing but the protocols: it gives what native devices give."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from on_torch import on_kind
from op_plans import make_op_split_plan
from plans import make_hardware, make_plan
from relayed import RelayedBuffer, open_relayed
from shapes import small_model
from test_serving_engine import LIMITS, Alone, check_every_kind, plan_of
from two_cpus import TWO_CPUS

from helmsman.executor._kernels import CopyEngine
from helmsman.executor.devices.accelerators import OPENERS
from helmsman.executor.devices.memory import view
from helmsman.executor.devices.opening import open_devices
from helmsman.executor.engine import Engine
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.system.machine import Machine
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS

KIND = "metal"
"""A kind that records may have, and nothing here opens."""
WORK = Workload(prompt_tokens=8, output_tokens=24, batch=2, context=32)

Checkpoints = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPENERS, KIND, open_relayed)


def check(checkpoint: Path, plan: Plan) -> None:
    """`plan` on such a device and on a loopback accelerator."""
    given = np.random.default_rng(7).integers(3, 500, (WORK.batch, WORK.prompt_tokens), dtype=np.int32)
    tokens = []
    for each in (plan, on_kind(plan, KIND)):
        with Engine.load(each, checkpoint, Machine.this()) as engine:
            tokens.append(engine.generate(given, WORK.output_tokens, ignore_eos=True).tokens)
    assert np.array_equal(*tokens)


def test_a_layer_split_makes_the_same_tokens(checkpoints: Checkpoints) -> None:
    check(checkpoints("qwen3"), make_plan(small_model("qwen3"), on_cpu=2, workload=WORK))


def test_streamed_operations_make_the_same_tokens(checkpoints: Checkpoints) -> None:
    check(checkpoints("llama"), make_op_split_plan(small_model("llama"), 3, 9, workload=WORK))


def test_served_requests_get_what_they_get_alone(checkpoints: Checkpoints) -> None:
    plan, checkpoint = on_kind(plan_of("qwen3"), KIND), checkpoints("qwen3")
    with ServingEngine.load(plan, checkpoint, Machine.this(), LIMITS) as engine:
        check_every_kind(engine, Alone("qwen3", checkpoint))


def test_a_part_of_another_device_is_refused() -> None:
    devices = open_devices(make_hardware(kind=KIND), ["loopback", "cpu", "h2d"], Machine.this())
    here, there = (devices.memories[name].alloc(64, "a row") for name in ("vram", "dram"))
    assert isinstance(here, RelayedBuffer)
    done = devices.lanes["h2d"].engine.submit(here, 0, there, 0, 64)
    assert done is None
    with pytest.raises(TypeError, match="a RelayedBuffer of another device, where a Buffer of this one belongs"):
        view(here, np.uint8)
    with pytest.raises(TypeError):
        CopyEngine(1e9, 0.0, -1).submit(there, 0, here, 0, 64)
