"""Arithmetic of several devices at once, as prices know it: what it slows, at which end, on which machine."""

import pytest
from plans import make_hardware, make_plan
from shapes import small_model

from helmsman.hwdb.percentiles import STRETCH
from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.lowering.paging import passes_of
from helmsman.planner.cost.model import CostModel
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import Hardware

MODEL = small_model("qwen3")


def machine(kept: Figure) -> Hardware:
    made = make_hardware(vram=8 << 30)
    dram, vram = made.memories
    both = dram.model_copy(update={"joint_compute": kept}), vram.model_copy(update={"shares": "dram"})
    return made.model_copy(update={"memories": both})


def products() -> tuple[Task, Task]:
    """A product of a single token, which memory bounds, and one of many."""
    one = next(task for task in lower(make_plan(MODEL), passes_of(make_plan(MODEL)).step(1)).tasks if task.op == "q")
    one = one._replace(resource="cpu")
    return one, one._replace(phase="prefill", tokens=512, flops=512 * one.flops)


def arithmetic(costs: CostModel, task: Task) -> float:
    """The part of its seconds that is arithmetic: nearly all of a product of many tokens."""
    price = costs.price(task)
    part = price.compute / price.mid
    assert 0.9 < part < 1.0
    return part


def test_only_what_arithmetic_bounds_is_slowed_by_arithmetic() -> None:
    costs = CostModel(machine(Figure(value=0.8, p10=0.8, p90=0.8, source="test")))
    few, many = products()
    assert costs.price(few).bound == "memory" and costs.price(many).bound == "compute"
    slowed = costs.slowed()
    assert slowed is not None
    others = {"cpu": "loopback:computing", "loopback": "cpu:computing"}
    for device, other in others.items():
        assert slowed(few._replace(resource=device)) == ()
        assert slowed(many._replace(resource=device)) == ((other, pytest.approx(0.25 * arithmetic(costs, many))),)
    assert slowed(many._replace(resource="cpu-all")) == ()


def test_what_memory_bounds_is_not_slowed_by_the_part_of_it_that_is_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a product of few tokens whose inputs are brought into another form first: nor does it slow others."""
    costs = CostModel(machine(Figure(value=0.8, p10=0.8, p90=0.8, source="test")))
    few, _ = products()
    price = costs.price(few)
    monkeypatch.setattr(CostModel, "price", lambda *_: price._replace(compute=0.5 * price.mid))
    slowed = costs.slowed()
    assert slowed is not None and slowed(few) == ()


def test_the_less_is_kept_the_longer_it_takes() -> None:
    costs = CostModel(machine(Figure(value=0.8, p10=0.6, p90=0.9, source="test")))
    _, many = products()
    low, mid, high = (slowed(many)[0][1] for end in ("low", "mid", "high") if (slowed := costs.slowed(end)))
    part = arithmetic(costs, many)
    assert mid == pytest.approx(part * (1 / 0.8 - 1))
    assert low == pytest.approx(part * (1 / (0.8 * (0.9 / 0.8) ** STRETCH) - 1))
    assert high == pytest.approx(part * (1 / (0.8 * (0.6 / 0.8) ** STRETCH) - 1))


def test_prices_of_one_machine_are_slowed_as_on_another() -> None:
    costs = CostModel(machine(Figure(value=0.8, p10=0.8, p90=0.8, source="test")))
    now = machine(Figure(value=0.5, p10=0.5, p90=0.5, source="test"))
    _, many = products()
    slowed = costs.slowed_on(now)
    assert slowed is not None and slowed(many) == (("loopback:computing", pytest.approx(arithmetic(costs, many))),)
    assert costs.slowed_on(make_hardware()) is None
