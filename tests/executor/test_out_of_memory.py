"""Memory that runs out at any allocation: a typed error, everything released, and the process goes on."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
from layer_machines import two_cpus
from op_plans import make_op_split_plan
from plans import make_plan
from shapes import small_model
from splits import make_frame

from helmsman.executor import _kernels as kernels
from helmsman.executor.devices import memory
from helmsman.executor.engine import Engine
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.strategies.flexgen import FlexGen
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

pytestmark = pytest.mark.usefixtures("settled")
WORK = Workload(prompt_tokens=8, output_tokens=6, context=16)
TASKS = Path("/proc/self/task")


@dataclass
class Failing:
    """Arenas of which allocation number `at`, counted over all of them, fails as a full one does."""

    at: int = -1
    count: int = 0
    alive: WeakSet[Any] = field(default_factory=WeakSet)

    def arena(self, capacity: int) -> Any:
        """What stands for an Arena."""
        found = _Arena(self, kernels.Arena(capacity))
        self.alive.add(found)
        return found


class _Arena:
    def __init__(self, failing: Failing, arena: kernels.Arena) -> None:
        self._failing, self._arena = failing, arena

    def __getattr__(self, name: str) -> Any:
        return getattr(self._arena, name)

    def alloc(self, size: int, what: str) -> kernels.Buffer:
        self._failing.count += 1
        if self._failing.count - 1 == self._failing.at:
            raise MemoryError(what)
        return self._arena.alloc(size, what)


@contextmanager
def failing_at(point: int) -> Iterator[Failing]:
    found = Failing(point)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "Arena", found.arena)
        yield found


def plan_of(kind: str) -> Plan:
    """All on the host, split between devices, streamed operations, and two batches with caches that pass by."""
    if kind == "host":
        return make_plan(small_model("opt"), workload=WORK)
    if kind == "split":
        return make_plan(small_model("qwen3"), 2, workload=WORK)
    if kind == "streamed":
        return make_op_split_plan(small_model("llama"), 3, 9, {"q": 2, "wv": 2}, workload=WORK)
    work = WORK.model_copy(update={"batch": 2, "batches": 2})
    return FlexGen(make_frame(small_model("opt"), work), True, False, CostOptions()).decide({}).plan


FAMILY = {"host": "opt", "split": "qwen3", "streamed": "llama", "batches": "opt"}


def tokens_of(checkpoint: Path, plan: Plan) -> Any:
    sequences = plan.workload.batch * plan.workload.batches
    prompt = np.random.default_rng(7).integers(3, 500, (sequences, 8), dtype=np.int32)
    with Engine.load(plan, checkpoint, two_cpus()) as engine:
        return np.array(engine.generate(prompt, 6, ignore_eos=True).tokens)


def threads() -> int:
    """Threads of this process, native ones too where the system tells."""
    return len(list(TASKS.iterdir())) if TASKS.exists() else threading.active_count()


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=() if place % 2 == 0 else pytest.mark.nightly) for place, kind in enumerate(FAMILY)],
)
def test_an_allocation_may_fail(checkpoints: Callable[[str], Path], kind: str) -> None:
    """Every sixtieth of a plan's allocations, the first and the last of all among them."""
    check_points(checkpoints(FAMILY[kind]), plan_of(kind), 60)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", list(FAMILY))
def test_every_allocation_may_fail(checkpoints: Callable[[str], Path], kind: str) -> None:
    """Each in turn: more than 200 over all plans."""
    assert check_points(checkpoints(FAMILY[kind]), plan_of(kind), 1) >= 50


def check_points(checkpoint: Path, plan: Plan, step: int) -> int:
    """Let allocations fail, every `step`-th and the last; how many."""
    with failing_at(-1) as counted:
        expected = tokens_of(checkpoint, plan)
    gc.collect()
    before, points = threads(), [*range(0, counted.count - 1, step), counted.count - 1]
    for point in points:
        with failing_at(point) as failing:
            with pytest.raises(InfeasibleError, match="out of memory"):
                tokens_of(checkpoint, plan)
            gc.collect()
            assert not failing.alive, f"allocation {point} left memory behind"
    assert threads() <= before
    assert np.array_equal(tokens_of(checkpoint, plan), expected)
    return len(points)
