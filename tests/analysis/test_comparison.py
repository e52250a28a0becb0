"""Strategies side by side: seconds of the whole workload, order, reasons, misused options, and the front."""

import pytest
from plans import make_hardware, make_plan
from questions import asked
from shapes import small_model

from helmsman.analysis.comparison import Answer, answer, misused, nearest, ranked
from helmsman.analysis.comparison_table import short_label, table, why_not
from helmsman.analysis.front import batches, front, points
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.decision import Decision
from helmsman.planner.prediction.speed import speed
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_search import decide as decide_split
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.schemas.comparison import Comparison, Planned, Speed
from helmsman.schemas.errors import BadInputError, InfeasibleError, UsageError
from helmsman.schemas.plan import Plan, Schedule
from helmsman.schemas.predicted import Interval, MemoryUse, Seconds
from helmsman.schemas.workload import Workload


def interval(mid: float) -> Interval:
    return Interval(low=mid / 2, mid=mid, high=mid * 2)


def plan_of(ttft: float, step: float, batch: int = 1, batches: int = 1, together: bool = False) -> Plan:
    """Of 3 output tokens."""
    work = Workload(prompt_tokens=8, output_tokens=3, batch=batch, batches=batches, context=16)
    plan = make_plan(small_model("llama"), workload=work)
    predicted = plan.predicted.model_copy(
        update={
            "ttft": Seconds(seconds=interval(ttft)),
            "prefill": plan.predicted.prefill.model_copy(update={"seconds": interval(ttft)}),
            "decode": plan.predicted.decode.model_copy(update={"seconds": interval(step)}),
        }
    )
    order = Schedule(order="layer-major" if together else "token-major")
    return plan.model_copy(update={"predicted": predicted, "schedule": order})


def does_not_fit(size: int) -> InfeasibleError:
    return InfeasibleError("too large", remedy="less", lacks={"vram": size})


def refused(field: str = "strategy") -> UsageError:
    return UsageError("not here", field=field, remedy="elsewhere")


def test_a_request_is_its_prompt_and_its_steps() -> None:
    found = speed(plan_of(10.0, 2.0, batch=4))
    assert (found.ttft.mid, found.step.mid, found.request.mid) == (10.0, 2.0, 14.0)
    assert (found.request.low, found.request.high) == (7.0, 28.0)
    assert found.decode_rate.mid == 2.0 and found.decode_rate.high == 4.0
    assert found.rate.mid == pytest.approx(4 * 3 / 14)


def test_batches_in_turns_compare_with_batches_together() -> None:
    """Two batches of which one takes 2 s a step are as fast as two together that take 4 s."""
    turns, together = speed(plan_of(10.0, 2.0, 4, 2)), speed(plan_of(20.0, 4.0, 4, 2, together=True))
    assert turns.step == together.step and turns.request == together.request
    assert turns.rate.mid == together.rate.mid == pytest.approx(8 * 3 / 28)
    assert turns.ttft == together.ttft and turns.ttft.mid == 20.0


@pytest.mark.nightly
def test_the_optimum_of_ttft_is_the_best_with_several_batches() -> None:
    """It makes the prompt passes of all batches least; a layer split whose batches take turns is ranked by as many."""
    question = asked("opt-125m", batch=2, batches=3)
    frame, aim = question.frame, Aim("prompt pass", {"prefill": 1.0})
    costs = CostModel(frame.roles.hardware, CostOptions())
    split = LayerSplit(frame.model, frame.roles, frame.workload, SplitQuestion(objective="ttft"), costs)
    plans = {"split": decide_split(split, {}).plan, "optimal": Optimal(question, aim).decide({}).plan}
    rows = ranked([Answer(name, plan) for name, plan in plans.items()], "ttft")
    assert [row.strategy for row in rows] == ["optimal", "split"]
    assert plans["optimal"].predicted.ttft.seconds.mid > plans["split"].predicted.ttft.seconds.mid
    assert rows[0].planned is not None
    assert rows[0].planned.speed.ttft.mid == pytest.approx(plans["optimal"].certificate.seconds)


def test_the_best_is_first_then_what_lacks_least_then_what_does_not_apply() -> None:
    given = {
        "none": refused(),
        "much": does_not_fit(9),
        "slow": plan_of(1.0, 3.0),
        "little": does_not_fit(2),
        "fast": plan_of(9.0, 2.0),
    }
    answers = [Answer(name, each) for name, each in given.items()]
    rows = ranked(answers, "latency")
    assert [row.strategy for row in rows] == ["fast", "slow", "little", "much", "none"]
    assert [row.verdict for row in rows] == ["fits", "fits", "does-not-fit", "does-not-fit", "does-not-apply"]
    assert [row.relative for row in rows] == [1.0, 1.5, None, None, None]
    assert rows[2].lacks == {"vram": 2} and nearest(rows) is rows[2] and nearest(rows[:2]) is None
    assert [row.strategy for row in ranked(answers, "ttft")][:2] == ["slow", "fast"]
    assert [row.strategy for row in ranked(answers, "throughput")][:2] == ["slow", "fast"]


def test_equals_stay_in_the_order_of_the_strategies() -> None:
    rows = ranked([Answer(name, plan_of(1.0, 1.0)) for name in ("b", "a", "c")], "latency")
    assert [row.strategy for row in rows] == ["b", "a", "c"] and {row.relative for row in rows} == {1.0}


def test_only_what_a_strategy_cannot_do_is_an_answer() -> None:
    def fails() -> Decision:
        raise BadInputError("broken")

    def cannot() -> Decision:
        raise does_not_fit(1)

    assert isinstance(answer("x", cannot).given, InfeasibleError)
    with pytest.raises(BadInputError):
        answer("x", fails)


def test_an_option_that_all_refuse_who_have_it_is_a_mistake() -> None:
    wrong, other = refused("home"), refused("compress")
    without = Answer("layers", plan_of(1.0, 1.0), ("home",))
    elsewhere = Answer("gpu", refused())
    assert misused([without, Answer("a", wrong), elsewhere], ["home"]) is wrong
    assert misused([without, Answer("a", wrong), Answer("b", plan_of(1.0, 1.0))], ["home"]) is None
    assert misused([without, Answer("a", wrong), Answer("b", other)], ["home"]) is None
    assert misused([without, elsewhere], ["home"]) is None


def compared(*answers: Answer) -> Comparison:
    digest = "0" * 64
    return Comparison(
        model="m", model_sha256=digest, hardware=make_hardware().name, hardware_sha256=digest, workload=Workload(),
        weights="f16", kv="f16", objective="latency", same_software=True, rows=ranked(answers, "latency"),
    )  # fmt: skip


def test_the_table_says_what_is_missing_and_what_is_ignored() -> None:
    text = table(
        compared(
            Answer("fast", plan_of(1.0, 0.25), ("home",)),
            Answer("large", does_not_fit(3_000_000_000)),
            Answer("odd", refused("home")),
        )
    )
    lines = text.splitlines()
    assert any(line.startswith("fast ") and "250 ms" in line and line.endswith("1.00x") for line in lines)
    assert "vram lacks 3.00 GB" in text and "`home`: not here" in text
    assert lines[-1] == "--home is no option of fast"


def test_many_memories_have_a_table_of_their_own_and_labels_are_for_those_who_ask() -> None:
    names = ("dram", "vram", "vram1")
    plan = plan_of(1.0, 0.25)
    memory = tuple(MemoryUse(memory=name, available=10**10, weights=10**9, kv=0, buffers=0) for name in names)
    several = plan.model_copy(update={"predicted": plan.predicted.model_copy(update={"memory": memory})})
    called = {"dram": "RAM", "vram": "GPU vram", "vram1": "GPU vram1"}
    found = compared(Answer("fast", several)).model_copy(update={"memory_names": called})
    lines = table(found, exact=True).splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("strategy") and "RAM" in line)
    assert lines[head].split() == ["strategy", "RAM", "GPU", "vram", "GPU", "vram1"]
    assert lines[head + 1].split() == ["fast", *["1.00", "GB"] * 3]
    assert all(len(line) <= 101 for line in lines)
    assert several.label in lines[-1] and several.label not in table(found)


def test_devices_that_strategies_cannot_use_are_named_once() -> None:
    """With the strategies that leave them out, and why: a comparison on two GPUs is of one and of both."""
    hardware = load_hardware("rtx3090x2-5950x", None)
    plan = plan_of(1.0, 1.0).model_copy(update={"hardware": hardware})
    one, both = (Decision(plan, 1.0, (), (), unused=unused) for unused in (("cuda1",), ()))
    found = compared(answer("a", lambda: one), answer("b", lambda: both), answer("c", lambda: one))
    left = {"cuda1": "the plan uses fewer accelerators"}
    assert [row.unused for row in found.rows] == [left, {}, left]
    assert "not used     cuda1 by a, c: the plan uses fewer accelerators" in table(found).splitlines()


def test_labels_do_not_repeat_their_strategy() -> None:
    assert short_label("hetegen", "hetegen cpu[64 %]") == "cpu[64 %]"
    assert short_label("all-cpu", "all-cpu") == "all-cpu" and short_label("layer-split", "cpu(4)") == "cpu(4)"


def test_a_reason_without_bytes_is_its_words() -> None:
    (row,) = ranked([Answer("x", refused())], "latency")
    assert why_not(row, {}) == "not here" and row.remedy == "elsewhere"


def test_batches_double_until_nothing_fits() -> None:
    asked: list[int] = []

    def ask(batch: int) -> Plan:
        asked.append(batch)
        if batch > 6:
            raise does_not_fit(1)
        return plan_of(1.0, 1.0, batch)

    assert [batch for _, batch, _ in batches("x", ask, 1, 100)] == [1, 2, 4]
    assert asked == [1, 2, 4, 8]
    assert [batch for _, batch, _ in batches("x", ask, 3, 5)] == [3]


def place(seconds: float, rate: float) -> Planned:
    times = Speed(
        ttft=interval(1), step=interval(1), request=interval(seconds), decode_rate=interval(1), rate=interval(rate)
    )
    return Planned(label="x", speed=times, memory=())


def test_the_front_has_no_point_that_another_beats() -> None:
    where = [(3, 3), (1, 1), (2, 1), (2, 2), (3, 3), (4, 2.5), (9, 10)]
    found = points(("s", number + 1, place(*each)) for number, each in enumerate(where))
    assert [point.batch for point in found if point.front] == [1, 2, 4, 7]
    assert [point.batch for point in front(found)] == [2, 4, 1, 7]
    for point, (seconds, rate) in zip(found, where, strict=True):
        beaten = any(s <= seconds and r >= rate and (s, r) != (seconds, rate) for s, r in where)
        assert point.front != beaten or where.index((seconds, rate)) + 1 != point.batch


def test_the_front_is_of_plans_that_keep_the_limits() -> None:
    """Steps and TTFT of all of them take 1 s: under a limit below that nothing is best."""
    where = [("s", 1, place(1, 1)), ("s", 2, place(2, 2))]
    assert [point.front for point in points(where, {"ttft": 1.0})] == [True, True]
    late = points(where, {"tpot": 0.5, "ttft": 2.0})
    assert [(point.front, point.misses) for point in late] == [(False, ("tpot",))] * 2


def test_plans_that_keep_the_limits_are_first() -> None:
    """The fastest step takes its time for prompts: it is listed with what it misses, and is not the best."""
    given = {"slow": plan_of(1.0, 3.0), "late": plan_of(9.0, 2.0), "none": refused(), "slower": plan_of(1.0, 5.0)}
    rows = ranked([Answer(name, each) for name, each in given.items()], "latency", {"ttft": 2.0, "tpot": 4.0})
    assert [row.strategy for row in rows] == ["slow", "late", "slower", "none"]
    assert [row.misses for row in rows] == [(), ("ttft",), ("tpot",), ()]
    assert [row.relative for row in rows[:3]] == [1.0, 2 / 3, 5 / 3]
    rows = ranked([Answer(name, each) for name, each in given.items()], "latency", {"ttft": 0.5})
    assert [row.strategy for row in rows[:2]] == ["late", "slow"] and rows[0].relative == 1.0
