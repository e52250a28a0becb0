"""FlexGen's percentages, HeLM, All-CPU, Accelerate and ZeRO-Inference executed: the tokens of the plan that the CPU
runs alone, within the memory that the planner counts, task by task as simulated."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from daily import one_in
from layer_machines import two_cpus
from op_plans import as_plan
from plans import make_hardware, make_plan
from quantised import write_quantised
from quick_probes import quick_probes
from shapes import small_model
from splits import make_frame, with_storage

from helmsman.analysis.check import check as compare
from helmsman.executor.engine import Engine
from helmsman.executor.measuring.measure import Request, measure, spans_of, trace
from helmsman.lowering.lower import lower
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.accelerate import Accelerate
from helmsman.planner.strategies.engines.question import EngineQuestion
from helmsman.planner.strategies.engines.question import EngineRules as Software
from helmsman.planner.strategies.layerwise_map import PRINTED, LayerwiseMap
from helmsman.planner.strategies.offload.allocation import Percentages
from helmsman.planner.strategies.offload.place import Keeping
from helmsman.planner.strategies.offload.strategy import Allocator, Offloading
from helmsman.planner.strategies.percentages import FlexGenPercentages
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.weights_on_host import WeightsOnHost
from helmsman.planner.strategies.zero_inference import ZeroInference
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan, Residence, Select
from helmsman.schemas.workload import Workload

FAMILIES = ("opt", "qwen3", "llama")
TOLERANCE = 1e-4
PROMPT, OUTPUT = 8, 6
HOST = Percentages(0, 80, 20)
ALLOCATORS: dict[str, Allocator] = {
    "flexgen": FlexGenPercentages(HOST),
    "helm": LayerwiseMap(PRINTED["attention"], PRINTED["ffn"], HOST),
    "all-cpu": WeightsOnHost(),
    "resident": FlexGenPercentages(Percentages(0, 0, 100)),
}
STORED = FlexGenPercentages(Percentages(17, 53, 30))
ENGINES: dict[str, Software] = {"accelerate": Accelerate(), "zero-inference": ZeroInference()}


def workload(batch: int = 1, batches: int = 1, prompt: int = PROMPT) -> Workload:
    return Workload(
        prompt_tokens=prompt, output_tokens=OUTPUT, batch=batch, batches=batches, context=prompt + OUTPUT + 4
    )


def question(family: str, work: Workload, hardware: Hardware | None = None, **changes: Any) -> Frame:
    return replace(make_frame(small_model(family), work, hardware), **changes)


def planned(frame: Frame, allocator: Allocator, **keeping: Any) -> Plan:
    return as_plan(Offloading(frame, allocator, Keeping("dram", **keeping), CostOptions()).placement)


def engine_plan(frame: Frame, name: str) -> Plan:
    return as_plan(EngineQuestion(frame, ENGINES[name], CostOptions()).placement)


def from_storage(family: str, work: Workload, **keeping: Any) -> Plan:
    """Some matrices, and biases where there are, in a file; the tables in memory, as they are looked up."""
    hardware = with_storage(make_hardware(), "nvme0", direct=False)
    plan = planned(question(family, work, hardware), STORED, storage="nvme0", **keeping)
    tables = (
        Residence(select=Select(names=name), memory="dram", format="f32") for name in ("embedding*", "positions*")
    )
    norms = Residence(select=Select(names="norm1*"), memory="nvme0", format="f32", path="bounce")
    return plan.model_copy(update={"residence": (*tables, norms, *plan.residence)})


def prompts(sequences: int, length: int = PROMPT) -> Any:
    return np.random.default_rng(7).integers(3, 500, (sequences, length), dtype=np.int32)


def outcome(checkpoint: Path, plan: Plan, *folders: Path) -> tuple[Any, Any]:
    """Tokens and logits; every task of every pass has a span."""
    work = plan.workload
    tokens = prompts(work.batch * work.batches, work.prompt_tokens)
    with Engine.load(plan, checkpoint, two_cpus(), storage=folders) as engine:
        made = engine.generate(tokens, OUTPUT, ignore_eos=True)
        spans_of(plan, 0, made)
        return np.array(made.tokens), engine.logits(tokens, prompt=work.prompt_tokens - 2)


def check(found: tuple[Any, Any], expected: tuple[Any, Any]) -> None:
    assert np.abs(found[1] - expected[1]).max() < TOLERANCE * np.abs(expected[1]).max()
    assert np.array_equal(found[0], expected[0])


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The checkpoint of a family whose matrices hold what 4-bit groups stand for."""
    written: dict[str, Path] = {}

    def get(family: str) -> Path:
        if family not in written:
            place = tmp_path_factory.mktemp("quantised") / family
            written[family] = write_quantised(small_model(family), place, lambda name: "positions" not in name)
        return written[family]

    return get


@pytest.fixture(scope="module")
def reference(
    checkpoints: Callable[[str], Path], quantised: Callable[[str], Path]
) -> Callable[[str, int, bool, int], tuple[Any, Any]]:
    """What the plan makes that runs everything on the CPU, for so many sequences at once."""
    found: dict[tuple[str, int, bool, int], tuple[Any, Any]] = {}

    def get(family: str, sequences: int, compress: bool = False, prompt: int = PROMPT) -> tuple[Any, Any]:
        key = family, sequences, compress, prompt
        if key not in found:
            plan = make_plan(small_model(family), workload=workload(sequences, prompt=prompt))
            found[key] = outcome((quantised if compress else checkpoints)(family), plan)
        return found[key]

    return get


SHAPES = ((1, 1), (3, 1), (2, 2))
CASES = [
    pytest.param(
        family,
        name,
        compress,
        SHAPES[(i + j + compress) % 3],
        marks=() if (i + j + compress) % 2 == 0 else pytest.mark.nightly,
    )
    for i, family in enumerate(FAMILIES)
    for j, name in enumerate(ALLOCATORS)
    for compress in (False, True)
]


@pytest.mark.parametrize(("family", "name", "compress", "shape"), CASES)
def test_offloading_makes_the_same_tokens(
    checkpoints: Callable[[str], Path],
    quantised: Callable[[str], Path],
    reference: Callable[..., tuple[Any, Any]],
    family: str,
    name: str,
    compress: bool,
    shape: tuple[int, int],
) -> None:
    plan = planned(question(family, workload(*shape)), ALLOCATORS[name], compress=compress)
    assert plan.schedule.stage == "half" and plan.schedule.barrier
    checkpoint = (quantised if compress else checkpoints)(family)
    check(outcome(checkpoint, plan), reference(family, prod(shape), compress))


@pytest.mark.parametrize(
    ("family", "batches", "compress"), [("opt", 1, False), ("opt", 2, True), ("qwen3", 2, False), ("llama", 1, True)]
)
def test_offloading_to_storage_makes_the_same_tokens(
    checkpoints: Callable[[str], Path],
    quantised: Callable[[str], Path],
    reference: Callable[..., tuple[Any, Any]],
    tmp_path: Path,
    family: str,
    batches: int,
    compress: bool,
) -> None:
    plan = from_storage(family, workload(1, batches), compress=compress)
    stored = [rule.select.names for rule in plan.residence if rule.memory == "nvme0"]
    assert "norm1*" in stored and len(stored) > 2
    checkpoint = (quantised if compress else checkpoints)(family)
    check(outcome(checkpoint, plan, tmp_path), reference(family, batches, compress))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("family", "batch"), [("opt", 1), ("qwen3", 3), ("llama", 2)])
@pytest.mark.parametrize("name", ENGINES)
def test_engines_make_the_same_tokens(
    checkpoints: Callable[[str], Path], reference: Callable[..., tuple[Any, Any]], family: str, name: str, batch: int
) -> None:
    """Whatever the accelerator has room for stays there, the rest comes when it is used, or before."""
    small = make_hardware(vram=2 << 20)
    placement = ENGINES[name].placement(question(family, workload(batch), small))
    plan = as_plan(replace(placement, hardware=make_hardware()))
    assert {rule.memory for rule in plan.residence} == {"dram", "vram"}
    check(outcome(checkpoints(family), plan), reference(family, batch))


@pytest.mark.parametrize(
    ("family", "batch", "batches", "compress"), [("opt", 1, 1, True), ("opt", 2, 2, False), ("qwen3", 2, 2, True)]
)
def test_long_prompts_pass_in_chunks(
    checkpoints: Callable[[str], Path],
    quantised: Callable[[str], Path],
    reference: Callable[..., tuple[Any, Any]],
    family: str,
    batch: int,
    batches: int,
    compress: bool,
) -> None:
    plan = planned(question(family, workload(batch, batches, 200)), ALLOCATORS["all-cpu"], compress=compress)
    checkpoint = (quantised if compress else checkpoints)(family)
    check(outcome(checkpoint, plan), reference(family, batch * batches, compress, 200))


@pytest.mark.parametrize("fmt", ["f16", "bf16"])
def test_half_precision_weights_make_the_same_tokens(checkpoints: Callable[[str], Path], fmt: Any) -> None:
    """Rows of tables travel as they are stored."""
    frame = question("opt", workload(2), weights=fmt, kv="f16")
    whole = make_plan(small_model("opt"), weights=fmt, kv="f16", workload=workload(2))
    plan = planned(frame, ALLOCATORS["all-cpu"])
    check(outcome(checkpoints("opt"), plan), outcome(checkpoints("opt"), whole))


@pytest.mark.parametrize(("overlap", "prefetch"), [("none", 0), ("next-layer", 2)])
@pytest.mark.parametrize("stage", ["block", "half"])
def test_schedules_make_the_same_tokens(
    quantised: Callable[[str], Path],
    reference: Callable[..., tuple[Any, Any]],
    overlap: Any,
    prefetch: int,
    stage: Any,
) -> None:
    plan = planned(question("opt", workload(2, 2)), ALLOCATORS["flexgen"], compress=True)
    schedule = plan.schedule.model_copy(update={"overlap": overlap, "prefetch": prefetch, "stage": stage})
    check(outcome(quantised("opt"), plan.model_copy(update={"schedule": schedule})), reference("opt", 4, True))


def test_tables_may_live_away_from_a_host_that_looks_up(
    checkpoints: Callable[[str], Path], reference: Callable[..., tuple[Any, Any]]
) -> None:
    plan = make_plan(small_model("opt"), 2, workload=workload(2))
    tables = [
        Residence(select=Select(names=name), memory="vram", format="f32") for name in ("embedding*", "positions*")
    ]
    check(
        outcome(checkpoints("opt"), plan.model_copy(update={"residence": (*tables, *plan.residence)})),
        reference("opt", 2),
    )


def test_groups_on_the_accelerator_expand_beside_groups_that_come(
    quantised: Callable[[str], Path], reference: Callable[..., tuple[Any, Any]]
) -> None:
    """Rows of one matrix in 4-bit groups in both memories; barriers make expansions wait for all that comes."""
    plan = planned(question("opt", workload()), ALLOCATORS["flexgen"], compress=True)
    part = {"axis": "rows", "start": 0, "stop": 48}
    select = Select.model_validate({"names": "up.weight", "layers": {"start": 0, "stop": 3}, "part": part})
    for memory, path in (("vram", "pinned"), ("dram", "pageable"), ("dram", "pin-on-transfer")):
        rule = Residence(select=select, memory=memory, format="q4", path=path, expanded="f32")
        mixed = plan.model_copy(update={"residence": (rule, *plan.residence)})
        check(outcome(quantised("opt"), mixed), reference("opt", 1, True))


LARGE = Workload(prompt_tokens=300, output_tokens=60, context=360, batch=2)


ROOM = [
    (name, fmt, ("opt", "qwen3")[(i + j) % 2], (1, 3)[j % 2])
    for i, name in enumerate([*ALLOCATORS, *ENGINES])
    for j, fmt in enumerate(("f32", "f16", "q4"))
    if fmt != "q4" or name in ALLOCATORS
]


@pytest.mark.parametrize(("name", "fmt", "family", "batches"), ROOM)
def test_what_the_planner_says_fits_is_enough(
    checkpoints: Callable[[str], Path], name: str, fmt: Any, family: str, batches: int
) -> None:
    """Sets of half-size buffers, resident groups with room to be expanded, rows of tables, vectors in f32 at home."""
    work = LARGE.model_copy(update={"batches": batches})
    plain = "f32" if fmt == "q4" else fmt

    def plan(hardware: Hardware) -> Plan:
        frame = question(family, work, hardware, weights=plain, kv=plain)
        if name in ENGINES:
            return engine_plan(frame, name)
        return planned(frame, ALLOCATORS[name], compress=fmt == "q4")

    used = {use.memory: use.used for use in memory_use(plan(make_hardware()))}
    exact = make_hardware(vram=used["vram"], ram=max(used["dram"], 1))
    Engine.load(plan(exact), checkpoints(family), two_cpus()).close()


def test_half_stages_need_half_the_room(checkpoints: Callable[[str], Path]) -> None:
    """Two halves, a whole block and one set of whole blocks: what comes to the accelerator is what is allocated."""
    plan = planned(question("llama", workload()), ALLOCATORS["all-cpu"])
    arrived = {}
    for stage, overlap, prefetch in (("half", "next-layer", 1), ("block", "next-layer", 1), ("block", "none", 0)):
        changes = {"stage": stage, "overlap": overlap, "prefetch": prefetch}
        schedule = plan.schedule.model_copy(update=changes)
        with Engine.load(plan.model_copy(update={"schedule": schedule}), checkpoints("llama"), two_cpus()) as engine:
            arrived[stage, overlap] = engine.devices.memories["vram"].used
    halves, blocks, one = arrived.values()
    assert one < halves < blocks


def test_long_prompts_without_overlap_make_the_same_tokens(
    checkpoints: Callable[[str], Path], reference: Callable[[str, int, bool, int], tuple[Any, Any]]
) -> None:
    """They pass in chunks, and every chunk finds all the weights of a block."""
    placement = Accelerate().placement(question("opt", workload(prompt=200), make_hardware(vram=1 << 20)))
    plan = as_plan(replace(placement, hardware=make_hardware()))
    assert plan.schedule.overlap == "none"
    check(outcome(checkpoints("opt"), plan), reference("opt", 1, False, 200))


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("compress", [False, True])
def test_tasks_follow_those_they_depend_on(quantised: Callable[[str], Path], batches: int, compress: bool) -> None:
    plan = planned(question("opt", workload(1, batches)), ALLOCATORS["helm"], compress=compress)
    with Engine.load(plan, quantised("opt"), two_cpus()) as engine:
        made = engine.generate(prompts(batches), 4, ignore_eos=True)
    spans = {span.task: span for span in spans_of(plan, 0, made)}
    lanes = defaultdict(list)
    for span in spans.values():
        lanes[span.resource].append((span.start_s, span.end_s))
    for times in lanes.values():
        assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(sorted(times)))
    for iteration in made.iterations:
        tasks = lower(plan, iteration).tasks
        for task in tasks:
            assert all(spans[tasks[dep].id].end_s <= spans[task.id].start_s + 1e-9 for dep in task.deps)


@pytest.mark.parametrize("name", one_in(2, ["flexgen", "all-cpu", "stored", "zero-inference"]))
def test_measured_traces_join_the_simulation(
    checkpoints: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    quick_probes(monkeypatch.setattr)
    work = workload(1, 1 if name == "zero-inference" else 2)
    if name == "stored":
        plan = from_storage("opt", work)
    elif name in ENGINES:
        plan = engine_plan(question("opt", work), name)
    else:
        plan = planned(question("opt", work), ALLOCATORS[name])
    folders = [tmp_path] if name == "stored" else []
    with Engine.load(plan, checkpoints("opt"), two_cpus(), storage=folders) as engine:
        measured = measure(engine, Request(prompts(work.batches), 4, ignore_eos=True), 1, two_cpus())
    found = compare(plan, cost_model(plan), trace(plan, measured), None, 0.1)
    assert found.step.measured > 0 and found.step.simulated > 0 and found.ttft is not None
    assert {row.resource for row in found.terms} >= {"loopback", "h2d"}


@pytest.mark.parametrize("batches", [1, 2])
def test_rows_of_tables_are_what_moves(checkpoints: Callable[[str], Path], batches: int) -> None:
    """One for every token; positions once, as all sequences are as far."""
    plan = planned(question("opt", workload(1, batches)), ALLOCATORS["all-cpu"])
    with Engine.load(plan, checkpoints("opt"), two_cpus()) as engine:
        made = engine.generate(prompts(batches), 4, ignore_eos=True)
    row = 4 * plan.model.hidden
    moved = {span.iteration: span.bytes for span in spans_of(plan, 0, made) if span.op == "embedding.weights"}
    assert moved == {0: (batches + 1) * PROMPT * row, **dict.fromkeys((1, 2, 3), (batches + 1) * row)}


def refused() -> list[tuple[Plan, str]]:
    """Tables from which no row is looked up."""
    plan = planned(question("opt", workload()), ALLOCATORS["all-cpu"])
    hardware = with_storage(make_hardware(), "nvme0", direct=False)
    stored = planned(question("opt", workload(), hardware), ALLOCATORS["all-cpu"])
    tables = [
        (stored, Residence(select=Select(names="embedding*"), memory="nvme0", format="f32", path="bounce")),
        (plan, Residence(select=Select(names="positions*"), memory="dram", format="f32", path="pin-on-transfer")),
    ]
    changed = [each.model_copy(update={"residence": (rule, *each.residence)}) for each, rule in tables]
    return [(each, "looked up in one memory") for each in changed]


@pytest.mark.parametrize("number", range(2))
def test_tables_that_are_not_looked_up_are_refused(
    checkpoints: Callable[[str], Path], tmp_path: Path, number: int
) -> None:
    plan, says = refused()[number]
    folders = [tmp_path] if any(rule.memory == "nvme0" for rule in plan.residence) else []
    with pytest.raises(UsageError, match=says) as caught:
        outcome(checkpoints("opt"), plan, *folders)
    assert caught.value.remedy
