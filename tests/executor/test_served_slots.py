"""Experts in slots while requests are served together: each gets what it gets alone, and slots do what a cache does."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from expert_layouts import divided_plan
from expert_plans import written_checkpoint
from layer_machines import two_cpus
from plans import make_hardware, make_plan
from test_expert_slots import bytes_of_expert, divided
from test_latent_serving import LIMITS, OUTPUT, serve
from two_cpus import TWO_CPUS

from helmsman.executor._kernels import Queue
from helmsman.executor.engine import Engine
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.serving.request import RequestOptions
from helmsman.executor.serving.served_slots import ServedSlots
from helmsman.executor.system.machine import Machine
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, SlotRule
from helmsman.scheduler.decision import Chunk, SchedulingDecision
from helmsman.scheduler.expert_cache import ExpertCache
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
SHAPE = Workload(prompt_tokens=8, output_tokens=8, context=64)
FETCHED, HOST = SlotRule("least-recent", "fetched"), SlotRule("least-recent", "host")
DIVIDED, PINNED = SlotRule("least-recent", "divided", 0.5), SlotRule("popularity", "host")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    return written_checkpoint("qwen3_moe", tmp_path_factory.mktemp("served"))


def plan_of(model: Model, slots: int, rule: SlotRule = FETCHED, kind: str = "loopback") -> Plan:
    layout = ExpertLayout(0, model.layers, rule=rule, slots=slots)
    return divided_plan(model, layout, SHAPE, make_hardware(latency=5e-6, kind=kind))


def alone(directory: Path, model: Model, prompts: list[list[int]]) -> list[list[int]]:
    with Engine.load(make_plan(model, 0, workload=SHAPE), directory, Machine.this(), prompt_tokens=32) as engine:
        made = (engine.generate(np.array([ids], np.int32), OUTPUT, ignore_eos=True) for ids in prompts)
        return [list(generation.tokens[0]) for generation in made]


def chosen_by_pass(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[set[int]]]:
    """Return by layer what passes choose, which the next engine fills."""
    chosen, ends = dict[int, list[set[int]]](), ServedSlots.end

    def end(own: ServedSlots) -> object:
        for layer in own._begun:
            chosen.setdefault(layer, []).append(set(own.layers[layer]._chosen))
        return ends(own)

    monkeypatch.setattr(ServedSlots, "end", end)
    return chosen


def used(cache: ExpertCache, chosen: set[int], rule: SlotRule) -> tuple[int, int, int]:
    """Return hits, misses and evictions of a pass."""
    if rule.share is not None:
        hits, missed, _, left = divided(cache, frozenset(chosen), rule.share)
        return hits, missed, left
    result = cache.use(chosen)
    return len(result.hits), len(result.misses), len(result.leaving)


@pytest.mark.parametrize("slots", [2, 5, 8])
def test_requests_get_what_they_get_alone(
    stored: tuple[Path, Model], slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 8 experts so many have slots; hits, misses and evictions are those of a cache that sees what passes chose."""
    directory, model = stored
    chosen = chosen_by_pass(monkeypatch)
    with ServingEngine.load(plan_of(model, slots), directory, Machine.this(), LIMITS) as engine:
        prompts, made = serve(engine, 3)
        counted = engine.expert_cache
    assert [made[number][:OUTPUT] for number in range(len(prompts))] == alone(directory, model, prompts)
    assert [counts.layer for counts in counted] == list(range(model.layers))
    for counts in counted:
        cache, size = ExpertCache(slots), bytes_of_expert(model)
        for number, experts in enumerate(chosen[counts.layer]):
            result = cache.use(experts)
            assert (counts.hits[number], counts.misses[number]) == (len(result.hits), len(result.misses))
            assert counts.evictions[number] == len(result.leaving)
            assert counts.fetched[number] >= size * len(result.misses)
        assert len(counts.hits) == len(chosen[counts.layer]) > 10 and counts.hit_rate > 0


def test_slots_begin_empty_after_a_fault(stored: tuple[Path, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failed pass left half looked up is forgotten, and the same request gets the same tokens."""
    directory, model = stored
    decision = SchedulingDecision("gpu-only", (Chunk(0, 4, 0, "gpu"),), (), (), (), (), (), ())
    with ServingEngine.load(plan_of(model, 3), directory, Machine.this(), LIMITS) as engine:
        slots = engine._seating.slots
        assert slots is not None

        def first() -> tuple[int, int]:
            engine.add(0, RequestOptions([5, 6, 7, 8], 4))
            stepped = engine.step(decision)
            engine.reset()
            return stepped.tokens[0], stepped.experts.hits

        expected = first()

        def broken(*_: object, **__: object) -> object:
            raise RuntimeError("no experts")

        with monkeypatch.context() as patch:
            patch.setattr(slots.layers[1], "rounds", broken)
            engine.add(0, RequestOptions([5, 6, 7, 8], 4))
            with pytest.raises(RuntimeError, match="no experts"):
                engine.step(decision)
            engine.reset()
        assert first() == expected == (expected[0], 0)


def test_a_fault_of_the_host_ends_the_pass_alone(stored: tuple[Path, Model]) -> None:
    """Experts that it has not computed make no token, and the same request gets the same token afterwards."""
    directory, model = stored
    decision = SchedulingDecision("gpu-only", (Chunk(0, 4, 0, "gpu"),), (), (), (), (), (), ())
    with ServingEngine.load(plan_of(model, 3, HOST), directory, Machine.this(), LIMITS) as engine:
        assert engine._seating.slots is not None and engine._seating.slots.away is not None
        host = engine._seating.slots.away.queue

        def first() -> int:
            engine.add(0, RequestOptions([5, 6, 7, 8], 4))
            try:
                return engine.step(decision).tokens[0]
            finally:
                engine.reset()

        def broken() -> None:
            raise ValueError("no memory")

        expected = first()
        assert isinstance(host, Queue)
        host.call(broken)
        with pytest.raises(RuntimeError, match="no memory"):
            first()
        assert first() == expected


@pytest.mark.parametrize(("slots", "rule"), [(3, HOST), (3, PINNED), (4, DIVIDED), (0, HOST)])
def test_the_host_computes_what_is_in_no_slot(
    stored: tuple[Path, Model], slots: int, rule: SlotRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests get what they get alone, and hits and misses are those of a cache that sees what passes chose; without
    slots the host computes all experts."""
    directory, model = stored
    chosen = chosen_by_pass(monkeypatch)
    with ServingEngine.load(plan_of(model, slots, rule), directory, Machine.this(), LIMITS) as engine:
        prompts, made = serve(engine, 3)
        counted = engine.expert_cache
    assert [made[number][:OUTPUT] for number in range(len(prompts))] == alone(directory, model, prompts)
    assert [counts.layer for counts in counted] == (list(range(model.layers)) if slots else [])
    for counts in counted:
        cache = ExpertCache.of_popular(range(slots)) if rule is PINNED else ExpertCache(slots)
        for number, experts in enumerate(chosen[counts.layer]):
            done = counts.hits[number], counts.misses[number], counts.evictions[number]
            assert done == used(cache, experts, rule)
        assert len(counts.hits) == len(chosen[counts.layer]) > 10 and counts.hit_rate > 0


@pytest.mark.parametrize(("slots", "rule"), [(3, FETCHED), (3, HOST), (4, DIVIDED), (0, HOST)])
def test_a_pytorch_device_serves_as_a_native_one(stored: tuple[Path, Model], slots: int, rule: SlotRule) -> None:
    """Requests get what they get alone; hits, misses, copied bytes and evictions are a native device's."""
    directory, model = stored
    there, counts = replace(two_cpus(), accelerators={"cuda": ("cpu",)}), []
    for kind, machine in (("cuda", there), ("loopback", Machine.this())):
        with ServingEngine.load(plan_of(model, slots, rule, kind), directory, machine, LIMITS) as engine:
            prompts, made = serve(engine, 3)
            counts.append(engine.expert_cache)
            assert [made[number][:OUTPUT] for number in range(len(prompts))] == alone(directory, model, prompts)
    assert counts[0] == counts[1]


def test_a_pytorch_device_goes_on_after_a_fault(stored: tuple[Path, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    """A device computes the same token after a look-up failed and the engine was reset as before it."""
    directory, model = stored
    decision = SchedulingDecision("gpu-only", (Chunk(0, 4, 0, "gpu"),), (), (), (), (), (), ())
    there = replace(two_cpus(), accelerators={"cuda": ("cpu",)})
    with ServingEngine.load(plan_of(model, 4, DIVIDED, "cuda"), directory, there, LIMITS) as engine:
        assert engine._seating.slots is not None

        def first() -> int:
            engine.add(0, RequestOptions([5, 6, 7, 8], 4))
            try:
                return engine.step(decision).tokens[0]
            finally:
                engine.reset()

        def broken(*_: object, **__: object) -> object:
            raise ValueError("no experts")

        expected = first()
        with monkeypatch.context() as patch:
            patch.setattr(engine._seating.slots.layers[1], "divided", broken)
            with pytest.raises(ValueError, match="no experts"):
                first()
        assert first() == expected
