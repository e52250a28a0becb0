"""Operation splits whose data comes from everywhere: 4-bit groups, storage, page-locked copies, whole caches."""

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from daily import one_in
from disks import largest_file
from layer_machines import two_cpus
from op_plans import make_op_split_plan
from plans import make_hardware, make_plan
from quantised import write_quantised
from shapes import small_model
from splits import with_storage

from helmsman.executor._kernels import DiskFile
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.homes import storage
from helmsman.executor.measuring.measure import spans_of
from helmsman.executor.passes.plan_check import check_executed
from helmsman.lowering.lower import lower
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.streaming.division import pieces
from helmsman.schemas.errors import HardwareUnavailableError, InfeasibleError, UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Part, Plan, Residence, Schedule, Select
from helmsman.schemas.workload import Workload

MODEL = small_model("qwen3")
UNITS = len(pieces(MODEL, {}))
TOLERANCE = 1e-4
PROMPT, OUTPUT = 8, 12
WORK = Workload(prompt_tokens=PROMPT, output_tokens=OUTPUT, context=PROMPT + OUTPUT)
LONG = Workload(prompt_tokens=300, output_tokens=OUTPUT, context=340)


def prompt(sequences: int = 1, length: int = PROMPT) -> Any:
    return np.random.default_rng(7).integers(3, 500, (sequences, length), dtype=np.int32)


def outcome(checkpoint: Path, plan: Plan, *folders: Path, length: int = PROMPT) -> tuple[Any, Any]:
    tokens = prompt(plan.workload.batch * plan.workload.batches, length)
    with Engine.load(plan, checkpoint, two_cpus(), storage=folders, prompt_tokens=length) as engine:
        made = engine.generate(tokens, OUTPUT, ignore_eos=True)
        spans_of(plan, 0, made)
        return np.array(made.tokens), engine.logits(tokens, prompt=length - 3)


def check(found: tuple[Any, Any], expected: tuple[Any, Any]) -> None:
    assert np.abs(found[1] - expected[1]).max() < TOLERANCE * np.abs(expected[1]).max()
    assert np.array_equal(found[0], expected[0])


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("places") / "qwen3"
    write_checkpoint(MODEL, place, seed=1, fmt="f32")
    return place


Alone = Callable[[Path, int, int], tuple[Any, Any]]


@pytest.fixture(scope="module")
def alone() -> Alone:
    """What the host alone makes of a checkpoint and so many prompts of so many tokens, computed once."""

    @cache
    def get(place: Path, sequences: int, length: int) -> tuple[Any, Any]:
        changes = {"batch": sequences, "prompt_tokens": length, "context": length + 40}
        return outcome(place, make_plan(MODEL, workload=WORK.model_copy(update=changes)), length=length)

    return get


@pytest.fixture(scope="module")
def expected(checkpoint: Path, alone: Alone) -> tuple[Any, Any]:
    return alone(checkpoint, 1, PROMPT)


@pytest.fixture(scope="module")
def long_expected(checkpoint: Path, alone: Alone) -> Callable[[int], tuple[Any, Any]]:
    """What so many prompts of 300 tokens give."""
    return lambda sequences: alone(checkpoint, sequences, LONG.prompt_tokens)


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose matrices hold what 4-bit groups stand for."""
    place = tmp_path_factory.mktemp("quantised") / "qwen3"
    return write_quantised(MODEL, place, lambda name: "layers" in name)


@pytest.mark.parametrize(
    ("cut", "chunks"), one_in(2, [((0, UNITS), {}), ((8, UNITS), {}), ((9, 14), {"up": 3, "down": 2})])
)
@pytest.mark.parametrize("batches", [1, 2])
def test_compressed_weights_are_what_they_stand_for(
    quantised: Path, alone: Alone, cut: tuple[int, int], chunks: dict[str, int], batches: int
) -> None:
    plan = make_op_split_plan(
        MODEL, *cut, chunks, workload=WORK.model_copy(update={"batches": batches}), weights_q4=True
    )
    check(outcome(quantised, plan), alone(quantised, batches, PROMPT))


def test_compression_loses_something(checkpoint: Path, expected: tuple[Any, Any]) -> None:
    found = outcome(checkpoint, make_op_split_plan(MODEL, 0, UNITS, workload=WORK, weights_q4=True))
    assert np.abs(found[1] - expected[1]).max() > TOLERANCE * np.abs(expected[1]).max()


def test_weights_may_stay_compressed_where_they_are_used(quantised: Path, alone: Alone) -> None:
    plan = make_op_split_plan(MODEL, 5, UNITS, workload=WORK)
    groups = Residence(
        select=Select(names="q.weight", layers=LayerRange(start=0, stop=3)), memory="dram", format="q4", expanded="f32"
    )
    plan = plan.model_copy(update={"residence": (groups, *plan.residence)})
    check(outcome(quantised, plan), alone(quantised, 1, PROMPT))


def on_storage(*names: str, direct: bool = True, **layout: Any) -> Plan:
    hardware = with_storage(make_hardware(), *names, direct=direct)
    path = "direct" if direct else "bounce"
    stored = ("up", "down")
    return make_op_split_plan(
        MODEL, 4, UNITS, workload=WORK, hardware=hardware, stored=stored, storage=names, path=path, **layout
    )


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(("names", "stripes"), [(("nvme0",), ()), (("nvme0", "nvme1"), (0.7, 0.3))])
def test_weights_come_from_storage(
    checkpoint: Path, expected: tuple[Any, Any], tmp_path: Path, direct: bool, names: tuple[str, ...], stripes: Any
) -> None:
    plan = on_storage(*names, direct=direct, stripes=stripes)
    check(outcome(checkpoint, plan, tmp_path), expected)
    assert not list(tmp_path.iterdir())


def test_a_stripe_lies_in_the_folders_of_its_devices(
    checkpoint: Path, expected: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file in the folder of its device, in the record's order, as large as what lives there."""
    made = {}

    def create(path: str, size: int, direct: bool, create: bool) -> DiskFile:
        made[Path(path).parent.name] = size
        return DiskFile(path, size, direct, create)

    folders = [tmp_path / "large", tmp_path / "small"]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(storage, "DiskFile", create)
    plan = on_storage("nvme0", "nvme1", stripes=(0.7, 0.3))
    check(outcome(checkpoint, plan, *folders), expected)
    assert list(made) == ["large", "small"] and not any(list(folder.iterdir()) for folder in folders)
    with pytest.raises(UsageError, match="3 folders"):
        Engine.load(plan, checkpoint, two_cpus(), storage=[*folders, tmp_path])


def test_a_failed_load_leaves_nothing_on_storage(checkpoint: Path, tmp_path: Path) -> None:
    """Nor does it touch what others keep there."""

    def interrupt(size: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / f"{MODEL.name}.nvme0.weights").write_bytes(b"somebody's")
    with pytest.raises(KeyboardInterrupt):
        Engine.load(on_storage("nvme0"), checkpoint, two_cpus(), storage=[tmp_path], on_bytes=interrupt)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"somebody's"]


def test_storage_without_room(checkpoint: Path, tmp_path: Path) -> None:
    with largest_file(1 << 14), pytest.raises(HardwareUnavailableError, match="no room on the disk"):
        Engine.load(on_storage("nvme0"), checkpoint, two_cpus(), storage=[tmp_path])
    assert not list(tmp_path.iterdir())


def test_storage_needs_a_folder(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder for them"):
        Engine.load(on_storage("nvme0"), checkpoint, two_cpus())
    with pytest.raises(UsageError, match="cannot be written"):
        Engine.load(on_storage("nvme0"), checkpoint, two_cpus(), storage=[tmp_path / "nowhere"])


@pytest.mark.parametrize("cut", [(0, UNITS), (4, 9)])
def test_page_locked_on_transfer(checkpoint: Path, expected: tuple[Any, Any], cut: tuple[int, int]) -> None:
    plan = make_op_split_plan(MODEL, *cut, workload=WORK, pinning="pin-on-transfer")
    check(outcome(checkpoint, plan), expected)


def test_a_barrier_changes_nothing(checkpoint: Path, expected: tuple[Any, Any]) -> None:
    plan = make_op_split_plan(MODEL, 3, 10, workload=WORK)
    barrier = plan.schedule.model_copy(update={"barrier": True})
    check(outcome(checkpoint, plan.model_copy(update={"schedule": barrier})), expected)


@pytest.mark.parametrize("attention", ["whole", "divided"])
def test_whole_attention_away_from_its_cache(checkpoint: Path, expected: tuple[Any, Any], attention: str) -> None:
    """Everything on the accelerator, the cache at home: offloading as FlexGen does it."""
    plan = make_plan(MODEL, 0, workload=WORK)
    changed = {
        "kv": (KvRule(select=Select(), memory="dram", format="f32"),),
        "residence": (
            *(Residence(select=Select(names=name), memory="vram", format="f32") for name in ("embedding*", "head*")),
            Residence(select=Select(), memory="dram", format="f32"),
        ),
        "schedule": Schedule(overlap="next-layer", prefetch=1, attention=attention),
    }
    check(outcome(checkpoint, plan.model_copy(update=changed)), expected)


@pytest.mark.parametrize(
    ("cut", "batch", "pinning"),
    [
        pytest.param(cut, batch, pinning, marks=() if (place + batch // 2 + late) % 2 == 0 else pytest.mark.nightly)
        for place, cut in enumerate(((0, UNITS), (4, UNITS), (2, 7)))
        for batch in (1, 3)
        for late, pinning in enumerate(("pinned", "on transfer"))
    ],
)
def test_long_prompts_pass_in_chunks(
    checkpoint: Path, long_expected: Callable[[int], tuple[Any, Any]], cut: tuple[int, int], batch: int, pinning: str
) -> None:
    work = LONG.model_copy(update={"batch": batch})
    changes: dict[str, Any] = {"pinning": "pin-on-transfer"} if pinning == "on transfer" else {}
    plan = make_op_split_plan(MODEL, *cut, workload=work, **changes)
    check(outcome(checkpoint, plan, length=300), long_expected(batch))


@pytest.mark.parametrize("pinning", ["pinned", "pin-on-transfer"])
@pytest.mark.parametrize(("batch", "batches"), [(3, 1), (2, 2)])
def test_long_prompts_wait_at_barriers(
    checkpoint: Path, long_expected: Callable[[int], tuple[Any, Any]], batch: int, batches: int, pinning: Any
) -> None:
    """New keys and values leave when all chunks of a batch have passed the layer (PARK-71)."""
    work = LONG.model_copy(update={"batch": batch, "batches": batches})
    plan = make_op_split_plan(MODEL, 0, UNITS, workload=work, pinning=pinning)
    plan = plan.model_copy(update={"schedule": plan.schedule.model_copy(update={"barrier": True})})
    check(outcome(checkpoint, plan, length=300), long_expected(batch * batches))


def spans(checkpoint: Path, plan: Plan, *folders: Path) -> list[Any]:
    with Engine.load(plan, checkpoint, two_cpus(), storage=folders) as engine:
        made = engine.generate(prompt(plan.workload.batch * plan.workload.batches), 6, ignore_eos=True)
    found = spans_of(plan, 0, made)
    tasks = {task.id: task for iteration in made.iterations for task in lower(plan, iteration).tasks}
    assert [span.task for span in found] == list(tasks)
    return found


@pytest.mark.parametrize("batches", [1, 2])
def test_every_task_has_a_span_after_those_it_depends_on(checkpoint: Path, tmp_path: Path, batches: int) -> None:
    work = WORK.model_copy(update={"batches": batches})
    plan = make_op_split_plan(MODEL, 4, 13, {"up": 2, "wv": 2}, workload=work, weights_q4=True)
    found = spans(checkpoint, plan)
    by_id = {span.task: span for span in found}
    lanes = defaultdict(list)
    for span in found:
        assert 0 <= span.start_s <= span.end_s
        lanes[span.resource].append((span.start_s, span.end_s))
    for times in lanes.values():
        times.sort()
        assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(times))
    for index in range(6):
        iteration = lower(plan, _iteration(plan, index)).tasks
        for task in iteration:
            for dep in task.deps:
                assert by_id[iteration[dep].id].end_s <= by_id[task.id].end_s


def _iteration(plan: Plan, index: int) -> Any:
    from helmsman.lowering.placement import batches_together
    from helmsman.scheduler.iteration import decode, prefill

    together = batches_together(plan)
    return prefill(plan.workload, together) if index == 0 else decode(plan.workload, index, together)


def test_the_first_token_is_looked_up_where_steps_are(checkpoint: Path, expected: tuple[Any, Any]) -> None:
    """The prompt passes on the accelerator, which has a copy of the table; steps are the host's."""
    plan = make_plan(MODEL, workload=WORK)
    changed = {
        "residence": (Residence(select=Select(), memory="dram", format="f32", replicas=("vram",)),),
        "kv": (KvRule(select=Select(), memory="dram", format="f32"),),
        "compute": (
            ComputeRule(select=Select(), device="loopback", phase="prefill"),
            ComputeRule(select=Select(), device="cpu"),
        ),
    }
    check(outcome(checkpoint, plan.model_copy(update=changed)), expected)


@pytest.mark.parametrize("batch", [1, 3])
def test_what_is_added_to_moves_by_column(checkpoint: Path, batch: int) -> None:
    """The loopback does the first half of `down`, and adds to the columns of `o` that are its own while those that the
    host adds to are on their way there."""
    work, half = WORK.model_copy(update={"batch": batch}), 4 * MODEL.hidden // 2
    plan = make_op_split_plan(MODEL, 0, UNITS, {"down": 2}, workload=work)
    for barrier in (False, True):
        schedule = plan.schedule.model_copy(update={"barrier": barrier})
        executed = spans(checkpoint, plan.model_copy(update={"schedule": schedule}))
        assert {span.bytes for span in executed if "o@d2h" in span.task} == {batch * half}


def test_copies_and_computation_overlap(checkpoint: Path) -> None:
    """While the next layer's weights come over a slow link, the host works on its share of this one."""
    hardware = make_hardware(bandwidth=2e7, latency=5e-6)
    found = spans(checkpoint, make_op_split_plan(MODEL, 8, UNITS, workload=WORK, hardware=hardware))
    decoding = [span for span in found if span.phase == "decode" and span.layer >= 0]
    copies = [span for span in decoding if span.resource == "h2d"]
    work = [span for span in decoding if span.resource == "cpu"]
    busy = sum(span.end_s - span.start_s for span in work)
    shared = sum(max(0.0, min(c.end_s, w.end_s) - max(c.start_s, w.start_s)) for c in copies for w in work)
    assert shared > 0.3 * busy > 0
    first = {layer: min(c.start_s for c in copies if (c.iteration, c.layer) == (2, layer)) for layer in range(3)}
    done = max(w.end_s for w in decoding if (w.iteration, w.layer, w.resource) == (2, 0, "loopback"))
    assert first[0] < first[1]
    assert done < first[2]  # its buffers are layer 0's


CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"weights_q4": True},
    {"cache_q4": True},
    {"reshape": True, "cache_q4": True},
    {"pinning": "pin-on-transfer"},
    {"prefetch": 0},
)


@pytest.mark.parametrize(
    ("family", "batch", "cut", "changes"),
    one_in(
        2,
        [
            pytest.param(
                family, batch, cut, changes, marks=() if (row + 2 * column + i + j) % 4 == 0 else pytest.mark.nightly
            )
            for row, family in enumerate(("qwen3", "opt"))
            for column, batch in enumerate(((1, 1), (2, 3)))
            for i, cut in enumerate(((0, 0), (0, 12), (2, 9), (1, 2)))
            for j, changes in enumerate(CHANGES)
        ],
    ),
)
def test_what_the_planner_says_fits_is_enough(
    tmp_path_factory: pytest.TempPathFactory, family: str, batch: Any, cut: tuple[int, int], changes: Any
) -> None:
    model = small_model(family)
    place = tmp_path_factory.getbasetemp() / f"fits-{family}"
    if not place.exists():
        write_checkpoint(model, place, fmt="f32")
    work = Workload(prompt_tokens=500, output_tokens=100, batch=batch[0], batches=batch[1], context=600)

    def plan(hardware: Hardware) -> Plan:
        stop = min(cut[1], len(pieces(model, {})))
        return make_op_split_plan(model, cut[0], stop, workload=work, hardware=hardware, **changes)

    used = {use.memory: use.used for use in memory_use(plan(make_hardware()))}
    exact = make_hardware(vram=used["vram"], ram=used["dram"])
    Engine.load(plan(exact), place, two_cpus()).close()


@pytest.mark.parametrize("ends", [("loopback", "cpu"), ("cpu", "loopback")])
@pytest.mark.parametrize(("prompt_tokens", "batch"), [(8, 1), (8, 3), (300, 2)])
def test_the_last_norm_apart_from_the_head(
    checkpoint: Path, alone: Alone, ends: tuple[str, str], prompt_tokens: int, batch: int
) -> None:
    work = Workload(prompt_tokens=prompt_tokens, output_tokens=OUTPUT, context=prompt_tokens + 40, batch=batch)
    plan = make_op_split_plan(MODEL, 0, UNITS, workload=work)
    places = zip(("final_norm", "head"), ends, strict=True)
    rules = tuple(ComputeRule(select=Select(names=name), device=device) for name, device in places)
    found = outcome(checkpoint, changed(plan, compute=(*rules, *plan.compute)), length=prompt_tokens)
    check(found, alone(checkpoint, batch, prompt_tokens))


def test_groups_of_an_operation_s_weights_are_told_apart(checkpoint: Path, expected: tuple[Any, Any]) -> None:
    """Rows that leave by another path, and rows in 4-bit groups beside plain ones, are tasks of their own."""
    plan = make_op_split_plan(MODEL, 0, UNITS, workload=WORK)
    first = Select(names="up.weight", layers=LayerRange(start=0, stop=3), part=Part(axis="rows", start=0, stop=48))
    pinned = Residence(select=first, memory="dram", format="f32", path="pin-on-transfer")
    groups = Residence(select=first, memory="dram", format="q4", expanded="f32")
    for rule in (pinned, groups):
        mixed = changed(plan, residence=(rule, *plan.residence))
        names = [task.id for task in lower(mixed, _iteration(mixed, 1)).tasks]
        assert len(names) == len(set(names))
        found = outcome(checkpoint, mixed)
        if rule is pinned:
            check(found, expected)


def test_parts_within_panels_are_refused_before_a_checkpoint_is_read() -> None:
    plan = make_op_split_plan(MODEL, 4, UNITS, workload=WORK)
    with pytest.raises(UsageError, match="begins at row 40, and rows are kept and computed by 16"):
        check_executed(changed(plan, compute=(away("q", 0, 40), *plan.compute)))
    check_executed(changed(plan, compute=(away("q", 0, 48), *plan.compute)))


def test_a_folder_for_nothing_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    plan = make_op_split_plan(MODEL, 4, UNITS, workload=WORK)
    with pytest.raises(UsageError, match="storage: nothing of the plan lives on storage"):
        Engine.load(plan, checkpoint, two_cpus(), storage=[tmp_path])


def test_an_accelerator_too_small_for_what_passes_by(checkpoint: Path) -> None:
    plan = make_op_split_plan(MODEL, 0, UNITS, workload=WORK, hardware=make_hardware(vram=1 << 18))
    with pytest.raises(InfeasibleError, match="memory vram: out of memory"):
        Engine.load(plan, checkpoint, two_cpus())


def changed(plan: Plan, **update: Any) -> Plan:
    return plan.model_copy(update=update)


def refused() -> list[tuple[Plan, str]]:
    plan = make_op_split_plan(MODEL, 4, UNITS, workload=WORK)
    return [
        (
            changed(plan, kv=(KvRule(select=Select(names="keys"), memory="vram", format="f16"), *plan.kv)),
            "share a format",
        ),
        (changed(plan, residence=(rows("o.weight", 16, 32, "vram"), *plan.residence)), "live where the others"),
        (changed(plan, residence=(rows("q.weight", 16, 32, "dram"), *plan.residence)), "one format"),
        (changed(plan, compute=(away("q", 8, 96), *plan.compute)), "q.weight of block 0 begins at row 8"),
        (changed(plan, residence=(rows("q.weight", 16, 40, "vram"), *plan.residence)), "begins at row 40"),
    ]


def away(op: str, start: int, stop: int) -> ComputeRule:
    part = Part(axis="rows", start=start, stop=stop)
    select = Select(names=op, layers=LayerRange(start=0, stop=MODEL.layers), part=part)
    return ComputeRule(select=select, device="loopback", phase="decode")


def rows(name: str, start: int, stop: int, memory: str) -> Residence:
    part = Part(axis="rows", start=start, stop=stop)
    fmt = "f16" if memory == "dram" else "f32"
    return Residence(
        select=Select(names=name, layers=LayerRange(start=0, stop=3), part=part), memory=memory, format=fmt
    )


@pytest.mark.parametrize("number", range(5))
def test_plans_that_are_not_executed_are_refused(checkpoint: Path, number: int) -> None:
    plan, says = refused()[number]
    with pytest.raises(UsageError, match=says) as caught:
        Engine.load(plan, checkpoint, two_cpus())
    assert caught.value.remedy
