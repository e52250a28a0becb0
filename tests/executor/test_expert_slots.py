"""Experts in slots of an accelerator's memory, executed hit by hit: tokens, counts and Traces."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from daily import one_in
from expert_layouts import divided_plan
from expert_plans import written_checkpoint
from layer_machines import two_cpus
from on_torch import on_torch
from plans import make_plan
from two_cpus import TWO_CPUS

from helmsman.executor.engine import Engine
from helmsman.executor.measuring.measure import Measured, trace
from helmsman.executor.passes.generation import Generation
from helmsman.executor.system.machine import Machine
from helmsman.lowering.expert_parts import fetched_experts
from helmsman.lowering.tensors import block_tensors
from helmsman.planner.strategies.expert_split.layout import ExpertLayout
from helmsman.scheduler.expert_cache import ExpertCache
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ExpertSlots, Plan, Select
from helmsman.schemas.routing_trace import RoutingTrace, read_routing_trace, write_routing_trace
from helmsman.schemas.trace import read_trace, write_trace
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
PROMPT, OUTPUT, LONG = 17, 64, 150
SHAPE = Workload(prompt_tokens=LONG, output_tokens=OUTPUT, context=256)


class Case:
    """A checkpoint, and the tokens that one device makes of a short prompt and of a long one."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.model = written_checkpoint("qwen3_moe", directory)
        self.ids = np.random.default_rng(3).integers(0, self.model.vocab, (1, LONG), dtype=np.int32)
        plan = make_plan(self.model, workload=SHAPE)
        self.alone = {length: self.run(plan, length)[0].tokens for length in (PROMPT, LONG)}

    def run(self, plan: Plan, length: int) -> tuple[Generation, RoutingTrace]:
        """Return the second of two generations, as slots are empty when a run begins, and its recorded routing."""
        with Engine.load(plan, self.directory, Machine.this(), record_routing=True) as engine:
            for _ in range(2):
                made = engine.generate(self.ids[:, :length], OUTPUT, ignore_eos=True)
            assert engine.routing is not None
            return made, engine.routing.trace()


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    yield Case(tmp_path_factory.mktemp("slots"))


def slotted(model: Model, slots: ExpertSlots, streamed: bool = False) -> Plan:
    """Return a plan whose misses are computed on the host, or fetched to the accelerator; `streamed`: prompts are
    computed there in any case."""
    plan = divided_plan(model, ExpertLayout(0, 2, streamed=streamed), SHAPE)
    compute = plan.compute
    if slots.misses == "fetched":
        compute = tuple(rule for rule in compute if rule.select.names != "experts_*" or rule.phase is not None)
    return plan.model_copy(update={"expert_slots": (slots,), "compute": compute})


def rule(count: int, misses: str, eviction: str = "least-recent") -> ExpertSlots:
    """Return slots for all layers."""
    facts = {"memory": "vram", "slots": count, "misses": misses, "eviction": eviction}
    facts |= {"fetched": 0.5} if misses == "divided" else {}
    return ExpertSlots.model_validate({"select": {"names": "experts_*"}, **facts})


def bytes_of_expert(model: Model) -> int:
    """Return bytes of an expert's matrices in f32."""
    return sum(4 * tensor.elements // tensor.shape[0] for tensor in block_tensors(model, 0) if tensor.stacked)


def divided(cache: ExpertCache, chosen: frozenset[int], share: float) -> tuple[int, int, int, int]:
    """Return hits, misses, fetched experts and evictions of a pass that fetches a share of what it misses."""
    missing = sorted(chosen - set(cache.experts))
    most = min(fetched_experts(len(missing), share), cache.slots - len(chosen) + len(missing)) if missing else 0
    result = cache.use(chosen - set(missing[max(0, most) :]))
    return len(result.hits), len(missing), len(result.entering), len(result.leaving)


def expected(routing: RoutingTrace, layer: int, slots: ExpertSlots, size: int) -> list[tuple[int, int, int, int]]:
    """Return hits, misses, bytes and evictions, pass by pass, of a cache that sees what was recorded."""
    pinned = slots.eviction == "popularity"
    cache = ExpertCache.of_popular(range(slots.slots)) if pinned else ExpertCache(slots.slots)
    counts = []
    for chosen in routing.passes(layer):
        if slots.fetched is not None:
            hits, missed, fetched, left = divided(cache, chosen, slots.fetched)
            counts.append((hits, missed, size * fetched, left))
            continue
        result = cache.use(chosen)
        came = result.entering if slots.misses == "host" else result.misses
        counts.append((len(result.hits), len(result.misses), size * len(came), len(result.leaving)))
    return counts


CASES = [rule(3, "host"), rule(3, "fetched"), rule(2, "fetched"), rule(5, "host"), rule(8, "fetched"),
         rule(3, "host", "popularity"), rule(4, "divided")]  # fmt: skip


@pytest.mark.parametrize("slots", CASES, ids=[f"{case.slots} {case.misses} {case.eviction}" for case in CASES])
def test_slots_do_what_a_simulated_cache_does(case: Case, slots: ExpertSlots) -> None:
    """Tokens are those of one device; hits, misses, bytes and evictions those of a cache fed with recorded routing."""
    made, routing = case.run(slotted(case.model, slots), PROMPT)
    assert made.tokens == case.alone[PROMPT]
    for counts in made.expert_cache:
        recorded_counts = list(zip(counts.hits, counts.misses, counts.fetched, counts.evictions, strict=True))
        simulated = expected(routing, counts.layer, slots, bytes_of_expert(case.model))
        assert [row for row in recorded_counts if sum(row[:2]) <= slots.slots] == [
            row for row in simulated if sum(row[:2]) <= slots.slots
        ]
        for (*own, fetched, _), (*others, least, _) in zip(recorded_counts, simulated, strict=True):
            assert own == others
            assert fetched >= least, "an expert may leave and come again where slots are too few for a pass"
    assert {counts.layer for counts in made.expert_cache} == {0, 1}


@pytest.mark.parametrize("slots", one_in(2, [CASES[1], CASES[0], CASES[-1], CASES[-2]]))
def test_a_pytorch_device_has_slots(case: Case, slots: ExpertSlots) -> None:
    """Its stages read between their operations what the host has looked up: tokens and counts are a native device's."""
    plan, machine = slotted(case.model, slots), replace(two_cpus(), accelerators={"cuda": ("cpu",)})
    counts = []
    for kind, where in ((plan, Machine.this()), (on_torch(plan), machine)):
        with Engine.load(kind, case.directory, where) as engine:
            made = engine.generate(case.ids[:, :PROMPT], OUTPUT, ignore_eos=True)
        assert made.tokens == case.alone[PROMPT]
        counts.append(made.expert_cache)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("slots", [CASES[0], CASES[1], CASES[-2]], ids=["host", "fetched", "pinned"])
def test_prompts_bring_their_experts_to_slots(case: Case, slots: ExpertSlots) -> None:
    """Prompts on the accelerator find some experts in slots; the others come when they are chosen, which is said."""
    plan = slotted(case.model, slots, streamed=True)
    with Engine.load(plan, case.directory, Machine.this()) as engine:
        assert any("not ahead as planned" in warning for warning in engine.warnings)
        for length in (PROMPT, LONG):
            made = engine.generate(case.ids[:, :length], OUTPUT, ignore_eos=True)
            assert made.tokens == case.alone[length]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_what_is_fetched_changes_no_bit(case: Case, count: int) -> None:
    """Experts are added up in ascending order whether they live on the accelerator or come in rounds, early or late."""
    logits = []
    for plan in (make_plan(case.model, 0, workload=SHAPE), slotted(case.model, rule(count, "fetched"))):
        with Engine.load(plan, case.directory, Machine.this()) as engine:
            logits.append(engine.logits(case.ids[:, : PROMPT + 9], prompt=PROMPT))
    assert np.array_equal(logits[0], logits[1])


@pytest.mark.parametrize("misses", ["host", "fetched", "divided"])
def test_a_prompt_in_chunks_is_one_pass_of_a_cache(case: Case, misses: str) -> None:
    """Its tokens are those of one device; where misses are divided, a later chunk finds what an earlier one fetched."""
    slots = rule(3, misses)
    made, routing = case.run(slotted(case.model, slots), LONG)
    assert made.tokens == case.alone[LONG]
    for counts in made.expert_cache:
        recorded_counts = list(zip(counts.hits, counts.misses, counts.evictions, strict=True))
        one = [(hits, missed, left) for hits, missed, _, left in expected(routing, counts.layer, slots, 1)]
        assert recorded_counts == one or misses == "divided"


@pytest.mark.parametrize("misses", ["host", "fetched", "divided"])
def test_traces_show_what_slots_did(case: Case, tmp_path: Path, misses: str) -> None:
    """Every part of experts has seconds of its own, transfers the bytes that came, and the Trace the counts."""
    plan = slotted(case.model, rule(3, misses))
    made, _ = case.run(plan, PROMPT)
    measured = trace(plan, Measured((replace(made),), (), {"prompt_tokens": PROMPT}))
    with (tmp_path / "run.parquet").open("wb") as stream:
        write_trace(measured, stream)
    read = read_trace(tmp_path / "run.parquet")
    assert read.info.expert_cache == made.expert_cache
    moved = sum(span.bytes for span in read.spans if span.op.startswith("experts_") and span.resource == "h2d"
                and not span.task.endswith("experts_down:1@h2d"))  # fmt: skip
    fetched = sum(sum(counts.fetched) for counts in made.expert_cache)
    assert moved == fetched if misses != "host" else abs(moved - fetched) <= 2 * 3 * bytes_of_expert(case.model)
    products = [span for span in read.spans if span.task.partition("/")[2].startswith("1.experts_up")]
    assert {span.resource for span in products} >= {"loopback"}
    assert sum(span.end_s - span.start_s for span in products if span.resource == "loopback") > 0


def test_recorded_routing_is_written_and_read(case: Case, tmp_path: Path) -> None:
    """Every token of every pass, in all layers, with as many experts as it chooses."""
    _, routing = case.run(make_plan(case.model, workload=SHAPE), PROMPT)
    with (tmp_path / "routing.parquet").open("wb") as stream:
        write_routing_trace(routing, stream)
    read = read_routing_trace(tmp_path / "routing.parquet")
    assert tuple(read.choices) == tuple(routing.choices)
    assert len(read.choices) == 2 * (PROMPT + OUTPUT - 1)
    assert {len(choice.experts) for choice in read.choices} == {3}
    assert [choice.position for choice in read.choices if choice.iteration == 2 and choice.layer == 1] == [PROMPT + 1]
    assert Select(names="experts_*") == rule(3, "host").select
