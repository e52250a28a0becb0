"""Caches with a window on the accelerator: the tokens of a cache in one place, whatever the window; pages move as
lowering says."""

import gc
from collections.abc import Callable
from math import ceil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from daily import one_in
from layer_machines import two_cpus
from paged import make_paged_plan
from plans import make_plan
from quick_probes import quick_probes
from shapes import small_model

from helmsman.analysis.check import check
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.devices.memory import BoundedMemory
from helmsman.executor.engine import Engine
from helmsman.executor.measuring.measure import Request, measure, spans_of, trace
from helmsman.executor.passes.generation import Generation
from helmsman.lowering.lower import lower
from helmsman.lowering.paging import passes_of
from helmsman.planner.checks.accept import accept
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.memory.usage import memory_use
from helmsman.schemas.blocks.positions import Rope
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan, Residence, Select
from helmsman.schemas.workload import Workload

TOLERANCE = 1e-5
"""Of the largest logit, in f32."""

EIGHT_BITS = 1e-3
"""The same of caches in eight bits, where a difference in the last place may round a value to another code."""

Checkpoints = Callable[[str], Path]


def model(family: str = "qwen3", **changes: Any) -> Model:
    return reshaped(small_model(family), **changes)


def prompts(work: Workload) -> Any:
    return np.random.default_rng(7).integers(3, 500, (work.batch, work.prompt_tokens), dtype=np.int32)


def check_tasks(plan: Plan, made: Generation) -> dict[str, int]:
    """Every pass executed what it lowers to, and moved as many bytes of pages; by link, all of those."""
    moved = {span.task: span for span in spans_of(plan, 0, made)}
    total: dict[str, int] = {}
    for number, iteration in enumerate(made.iterations):
        tasks = lower(plan, iteration).tasks
        (recorded,) = [each for each in made.recorded if number in each.passes]
        assert set(recorded.tasks) == {task.name for task in tasks}
        for task in tasks:
            assert moved[task.id].end_s > moved[task.id].start_s
            if task.payload == "cache page":
                assert moved[task.id].bytes == task.bytes
                total[task.resource] = total.get(task.resource, 0) + task.bytes
    return total


def outcome(plan: Plan, checkpoint: Path) -> tuple[Any, Any, dict[str, int]]:
    """Tokens, logits of the last positions taught token by token, and what pages moved."""
    work = accept(plan).workload
    tokens = prompts(work)
    with Engine.load(plan, checkpoint, two_cpus()) as engine:
        used = {name: memory.used for name, memory in engine.devices.memories.items()}
        assert all(used[use.memory] <= use.used for use in memory_use(plan))
        made = engine.generate(tokens, work.output_tokens, ignore_eos=True)
        assert len(made.chosen) == work.output_tokens
        return np.array(made.tokens), engine.logits(tokens, prompt=work.prompt_tokens - 5), check_tasks(plan, made)


def compare(found: tuple[Any, Any, Any], expected: tuple[Any, Any, Any]) -> None:
    assert np.abs(found[1] - expected[1]).max() <= TOLERANCE * np.abs(expected[1]).max()
    assert np.array_equal(found[0], expected[0])


@pytest.mark.parametrize(("family", "on_cpu", "batch"), one_in(3, [("qwen3", 2, 2), ("qwen3", 0, 1), ("opt", 2, 1)]))
def test_a_window_changes_no_token(family: str, on_cpu: int, batch: int, checkpoints: Checkpoints) -> None:
    work = Workload(prompt_tokens=210, output_tokens=20, context=240, batch=batch)
    plan = make_paged_plan(model(family), on_cpu, workload=work)
    found = outcome(plan, checkpoints(family))
    compare(found, outcome(make_plan(model(family), workload=work), checkpoints(family)))
    page = 32 * 2 * plan.model.dense.kv_width * 4 * batch
    assert found[2]["d2h"] == plan.model.layers * 5 * page - max(on_cpu - 1, 0) * 5 * page, "five pages left, once"
    assert found[2]["h2d"] > 5 * found[2]["d2h"]


def test_a_context_six_times_the_window(tmp_path: Path) -> None:
    work = Workload(prompt_tokens=1480, output_tokens=20, context=1500)
    longer = model(max_context=1536, layers=2)
    write_checkpoint(longer, tmp_path / "longer", seed=1, fmt="f32")
    plan = make_paged_plan(longer, window=256, workload=work)
    found = outcome(plan, tmp_path / "longer")
    compare(found, outcome(make_plan(longer, workload=work), tmp_path / "longer"))
    assert found[2]["d2h"] == 2 * 41 * 32 * 2 * longer.dense.kv_width * 4


@pytest.mark.nightly
def test_a_context_of_32k_tokens_where_2k_fit(tmp_path: Path) -> None:
    """200 tokens more, in pages of 512."""
    work = Workload(prompt_tokens=32_568, output_tokens=200, context=32_768)
    longer = model(max_context=32_768, layers=2)
    write_checkpoint(longer, tmp_path / "longer", seed=1, fmt="f32")
    plan = make_paged_plan(longer, page=512, window=2048, workload=work)
    found = outcome(plan, tmp_path / "longer")
    compare(found, outcome(make_plan(longer, workload=work), tmp_path / "longer"))
    pages = ceil((32_767 - 0.8 * 2048) / 512)
    assert found[2]["d2h"] == 2 * pages * 512 * 2 * longer.dense.kv_width * 4


def test_a_window_of_eight_bits(tmp_path: Path) -> None:
    """Pages of codes and scales, of two sequences: the tokens of the same cache in one place."""
    work = Workload(prompt_tokens=150, output_tokens=20, context=170, batch=2)
    wide = model(head_dim=32, position=Rope(theta=1e4, rotary_dim=32), layers=2)
    write_checkpoint(wide, tmp_path / "wide", seed=1, fmt="f32")
    plan = make_paged_plan(wide, kv="q8_0", workload=work)
    found, expected = (outcome(each, tmp_path / "wide") for each in (plan, make_plan(wide, kv="q8_0", workload=work)))
    assert np.abs(found[1] - expected[1]).max() <= EIGHT_BITS * np.abs(expected[1]).max()
    assert np.array_equal(found[0], expected[0])
    assert found[2]["d2h"] == 2 * 3 * 32 * 2 * wide.dense.kv_heads * 34 * 2


def test_weights_may_come_beside_pages(checkpoints: Checkpoints) -> None:
    """Over one link, from plans by hand: strategies give windows to layer splits only."""
    work = Workload(prompt_tokens=150, output_tokens=20, context=170, batch=2)
    plan = make_paged_plan(model(), workload=work)
    streamed = [Residence(select=Select(names=name), memory="dram", format="f32") for name in ("up.*", "q.*")]
    plan = plan.model_copy(update={"residence": (*streamed, *plan.residence)})
    compare(outcome(plan, checkpoints("qwen3")), outcome(make_plan(model(), workload=work), checkpoints("qwen3")))


def random_plan(seed: int) -> tuple[Plan, Plan]:
    """A window of any size, and the same model with its cache in one place."""
    random = Random(seed)
    page, batch = 32 * random.choice((1, 1, 2)), random.choice((1, 1, 2, 3))
    window, prompt = page * random.randint(2, 5), random.randint(1, 300)
    output = random.randint(7, 30)
    work = Workload(prompt_tokens=prompt + 6, output_tokens=output, context=prompt + 6 + output, batch=batch)
    mark, staged = random.uniform(page / window + 1e-6, 0.99), random.randint(2, 5)
    shape = {"page": page, "window": window, "mark": mark, "staged": staged}
    on_cpu = random.randrange(model().layers + 1)
    return make_paged_plan(model(), on_cpu, workload=work, **shape), make_plan(model(), workload=work)


def play(seed: int, checkpoint: Path) -> int:
    paged, whole = random_plan(seed)
    found = outcome(paged, checkpoint)
    compare(found, outcome(whole, checkpoint))
    return found[2].get("h2d", 0)


def test_any_window_gives_the_same_tokens(checkpoints: Checkpoints) -> None:
    assert sum(play(seed, checkpoints("qwen3")) > 0 for seed in range(2)) > 0


@pytest.mark.nightly
def test_a_thousand_windows_give_the_same_tokens(checkpoints: Checkpoints) -> None:
    assert sum(play(seed, checkpoints("qwen3")) > 0 for seed in range(4, 1004)) > 500


def test_an_engine_begins_anew_and_fewer_pages_are_recorded_then(checkpoints: Checkpoints) -> None:
    work = Workload(prompt_tokens=150, output_tokens=10, context=160)
    plan = make_paged_plan(model(), workload=work)
    with Engine.load(plan, checkpoints("qwen3"), two_cpus()) as engine:
        first = engine.generate(prompts(work), 10, ignore_eos=True)
        short = engine.generate(prompts(work)[:, :40], 3, ignore_eos=True)
        again = engine.generate(prompts(work), 10, ignore_eos=True)
    assert np.array_equal(first.chosen, again.chosen)
    assert check_tasks(plan, short) == {} and check_tasks(plan, again) == check_tasks(plan, first)
    assert len(first.iterations) == len(passes_of(plan).all) and first.ttft_s < sum(np.diff(first.moments))


def test_a_trace_with_pages_is_checked_pass_by_pass(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    quick_probes(monkeypatch.setattr)
    work = Workload(prompt_tokens=120, output_tokens=8, context=128)
    plan = make_paged_plan(model(), 2, workload=work)
    with Engine.load(plan, checkpoints("qwen3"), two_cpus()) as engine:
        measured = measure(engine, Request(prompts(work), 8, ignore_eos=True), 1, two_cpus())
    found = trace(plan, measured)
    checked = check(plan, cost_model(plan), found, None, tolerance=1e9)
    assert not checked.beyond and checked.ttft is not None
    prompted = max(span.end_s for span in found.spans if span.phase == "prefill")
    assert checked.ttft.measured == pytest.approx(prompted) and prompted <= measured.runs[0].ttft_s


@pytest.mark.nightly
def test_a_run_at_a_depth_has_the_steps_of_one_with_the_prompt(checkpoints: Checkpoints) -> None:
    """Over caches of noise, after a conversation of another length."""
    work = Workload(prompt_tokens=120, output_tokens=8, context=128)
    plan = make_paged_plan(model(), 2, workload=work)
    with Engine.load(plan, checkpoints("qwen3"), two_cpus()) as engine:
        whole = trace(plan, measure(engine, Request(prompts(work), 8, ignore_eos=True), 1, two_cpus()))
        request = Request(prompts(work)[:, :1], 8, ignore_eos=True, past=119)
        deep = trace(plan, measure(engine, request, 2, two_cpus()))
    steps = [[(each.run, each.task) for each in found.spans if each.phase == "decode"] for found in (whole, deep)]
    assert [task for task in steps[1] if task[0] == 0] == steps[0] and len(deep.spans) == len(steps[1])
    checked = check(plan, cost_model(plan), deep, None, tolerance=1e9)
    assert not checked.beyond and checked.ttft is None and checked.runs == 2


@pytest.mark.usefixtures("settled")
def test_running_out_of_memory_at_a_page_releases_everything(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    out_of_memory(checkpoints("qwen3"), monkeypatch, ("pages that", "window of", "cache of block 2", "workspace"), 3)


@pytest.mark.nightly
@pytest.mark.usefixtures("settled")
def test_running_out_of_memory_anywhere_releases_everything(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    out_of_memory(checkpoints("qwen3"), monkeypatch, ("",), 1)


def out_of_memory(checkpoint: Path, monkeypatch: pytest.MonkeyPatch, where: tuple[str, ...], step: int) -> None:
    """Every `step`-th allocation that is called like one of `where` fails once: threads are gone, and the next engine
    works."""
    work = Workload(prompt_tokens=100, output_tokens=4, context=128)
    plan, whole = make_paged_plan(model(), 2, workload=work), BoundedMemory.alloc
    made, last = list[str](), -1

    def alloc(self: BoundedMemory, size: int, what: str) -> Any:
        made.append(what)
        if len(made) - 1 == last:
            raise InfeasibleError(f"out of memory: {what}", field=f"memory {self.name}")
        return whole(self, size, what)

    monkeypatch.setattr(BoundedMemory, "alloc", alloc)
    expected = tokens_of(plan, checkpoint)
    before, places = threads(), [n for n, what in enumerate(made) if any(what.startswith(word) for word in where)]
    assert len(places) > 6 and expected is not None
    for place in places[::step]:
        last = place
        made.clear()
        assert tokens_of(plan, checkpoint) is None and threads() == before, made[-1]
    last = -1
    assert tokens_of(plan, checkpoint) == expected


def tokens_of(plan: Plan, checkpoint: Path) -> Any:
    """What an engine makes; none where memory ran out."""
    try:
        with Engine.load(plan, checkpoint, two_cpus()) as engine:
            return engine.generate(prompts(plan.workload), plan.workload.output_tokens, ignore_eos=True).tokens
    except InfeasibleError:
        return None


def threads() -> int:
    gc.collect()
    return len(list(Path("/proc/self/task").iterdir()))
