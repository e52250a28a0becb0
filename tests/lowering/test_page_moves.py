"""Caches with windows lowered: which pages come and go, after what, and that nothing is read twice or not at all."""

from random import Random

import pytest
from paged import make_paged_plan
from plans import make_hardware, make_plan
from shapes import small_model

from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.lowering.paging import most_tokens, passes_of
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

MODEL = small_model("qwen3")
PAGE = 32 * 2 * MODEL.dense.kv_width * 4
"""Bytes of a page of keys and values in f32."""


def plan(context: int = 200, on_cpu: int = 0, **shape: int) -> Plan:
    return make_paged_plan(
        MODEL, on_cpu, workload=Workload(prompt_tokens=context - 8, output_tokens=8, context=context, **shape)
    )


def tasks(plan: Plan, index: int) -> list[Task]:
    return list(lower(plan, passes_of(plan).at(index)).tasks)


def named(found: list[Task], part: str) -> list[str]:
    return [task.id.split("/")[1] for task in found if part in task.id]


def test_prompts_pass_in_as_many_tokens_as_the_window_has_room_for() -> None:
    passes = passes_of(plan(200))
    assert most_tokens(plan(200)) == 20 and most_tokens(make_plan(MODEL)) is None
    assert [it.tokens for it in passes.prompt] == [20] * 9 + [12]
    assert [it.past for it in passes.prompt] == list(range(0, 192, 20))
    assert [(it.index, it.phase, it.context) for it in passes.all[10:12]] == [(10, "decode", 193), (11, "decode", 194)]
    assert all(passes.at(it.index) == it for it in passes.all)
    assert len(passes_of(make_plan(MODEL)).prompt) == 1


def test_pages_come_one_ahead_across_blocks_and_leave_beside() -> None:
    found = tasks(plan(200), 4)  # 80 tokens cached, 100 afterwards: page 0 is at home, none leaves
    index = {task.id.split("/")[1]: number for number, task in enumerate(found)}
    assert named(found, "@h2d") == [f"{layer}.kv.page0@h2d" for layer in range(3)]
    assert found[index["0.kv.page0@h2d"]].deps == () == found[index["1.kv.page0@h2d"]].deps
    assert found[index["2.kv.page0@h2d"]].deps == (index["0.attention.page0"],)
    assert set(found[index["1.attention.page0"]].deps) == {index["1.append"], index["1.kv.page0@h2d"]}
    assert index["1.attention.page0"] in found[index["1.attention"]].deps
    leaving = tasks(plan(200), 5)  # 100 cached, 120 afterwards
    assert named(leaving, "@d2h") == [f"{layer}.kv.page1@d2h" for layer in range(3)]
    assert all(not task.deps for task in leaving if "@d2h" in task.id)


def test_more_buffers_let_more_pages_come_ahead() -> None:
    paged = make_paged_plan(MODEL, workload=Workload(prompt_tokens=192, output_tokens=8, context=200), staged=5)
    found = tasks(paged, 10)
    reads = [number for number, task in enumerate(found) if ".attention.page" in task.id]
    comes = [task for task in found if task.id.endswith("@h2d")]
    assert [task.deps for task in comes] == [()] * 5 + [(reads[number],) for number in range(len(comes) - 5)]


def test_while_all_fits_a_pass_is_that_of_a_cache_in_one_place() -> None:
    whole = make_plan(MODEL, 0, workload=plan().workload)
    it = passes_of(plan()).at(2)
    assert [t.id for t in lower(plan(), it).tasks] == [t.id for t in lower(whole, it).tasks]
    assert [t.bytes for t in lower(plan(), it).tasks] == [t.bytes for t in lower(whole, it).tasks]


def test_attention_reads_every_byte_once_whatever_is_where() -> None:
    for seed in range(20):
        random = Random(seed)
        work = Workload(prompt_tokens=random.randint(90, 400), output_tokens=9, context=420, batch=random.randint(1, 3))
        pages, mark = random.randint(2, 5), random.choice((0.5, 0.8, 0.9))
        paged = make_paged_plan(MODEL, 2, window=32 * pages, mark=mark, workload=work)
        whole = make_plan(MODEL, 2, workload=work)
        for it in passes_of(paged).all[-9::4]:
            for count in ("bytes", "flops"):
                sums = [
                    sum(getattr(task, count) for task in lower(each, it).tasks if task.op == "attention")
                    for each in (paged, whole)
                ]
                assert sums[0] == sums[1]


def test_every_page_that_is_read_has_been_taken_home_once() -> None:
    paged = plan(300, batch=2)
    home = set[str]()
    for it in passes_of(paged).all:
        found = lower(paged, it).tasks
        come = {task.id.split("/")[1].partition("@")[0] for task in found if task.id.endswith("@h2d")}
        gone = {task.id.split("/")[1].partition("@")[0] for task in found if ".page" in task.id and "@d2h" in task.id}
        assert come == home and not gone & home
        assert all(task.bytes == 2 * PAGE for task in found if ".kv.page" in task.id)
        home |= gone
    assert len(home) == 3 * 7


def test_the_host_s_blocks_have_no_pages() -> None:
    found = tasks(plan(200, on_cpu=2), 8)
    assert {name.split(".")[0] for name in named(found, ".page")} == {"1", "2"}
    assert named(found, "hidden@h2d")
    assert next(task for task in found if "hidden@h2d" in task.id).resource != "h2d", "pages do not hold activations up"


@pytest.mark.parametrize("latency", [0.0, 1e-3])
def test_a_step_takes_at_least_its_pages_over_the_link(latency: float) -> None:
    from helmsman.planner.cost.model import CostModel
    from helmsman.planner.prediction.predict import pass_seconds
    from helmsman.simulator.replay import replay

    rate = 1e6
    paged = make_paged_plan(
        MODEL,
        workload=Workload(prompt_tokens=192, output_tokens=8, context=200),
        hardware=make_hardware(bandwidth=rate, latency=latency),
    )
    graph, costs = lower(paged, passes_of(paged).step(1)), CostModel(paged.hardware)
    pages = [task for task in graph.tasks if task.resource == "h2d"]
    least = sum(latency + task.bytes / rate for task in pages)
    simulated = replay(graph, lambda task: costs.price(task).mid, paged.hardware).makespan
    assert len(pages) == 3 * 4 and pass_seconds(graph, costs) == pytest.approx(simulated)
    assert least <= simulated <= 1.05 * least, "E-HELM-20: the link is the bound, and it never waits"
