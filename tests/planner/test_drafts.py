"""Plans with drafts: what a step takes and makes, the drafter's room, and what is refused."""

import json
from typing import Any

import pytest

from helmsman import plan as planned
from helmsman.cli.plan import main
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.graph import Task
from helmsman.lowering.layer_cache import state_of
from helmsman.lowering.lower import lower
from helmsman.lowering.pass_shape import pass_of
from helmsman.lowering.placement import known
from helmsman.planner.checks.accept import accept
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.decision import Decision
from helmsman.planner.memory.cache_bytes import states_by_device
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.prediction.drafts import DraftQuestion, drafter_bytes, drafter_of, expected_tokens, verifying_pass
from helmsman.planner.prediction.predict import mean_step, pass_seconds
from helmsman.scheduler.iteration import Iteration, prefill
from helmsman.schemas.errors import BadInputError, InfeasibleError, UsageError
from helmsman.schemas.plan import ComputeRule, Drafting, Plan, Select
from helmsman.simulator.drafts import simulate_drafts

EXPERTS, CHOSEN = 64, 4
MACHINE = {"gpu": "RTX 3060", "cpu": "AMD Ryzen 9 7950X", "ram": 64 * 10**9}
QUESTION: dict[str, object] = {
    "model": "GLM-4.7-Flash",
    "hardware": MACHINE,
    "format": "q4_0",
    "strategy": "layer-split",
}
MTP: dict[str, object] = {"draft": "mtp", "draft_tokens": 3, "acceptance": 0.8}


def decided(**changes: Any) -> Decision:
    """Return the decision on the question with drafts, and some changes."""
    return planned({**QUESTION, **MTP, **changes})


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Plan the question with drafts."""
    return decided().plan


def drafting_of(plan: Plan) -> Drafting:
    """Return the drafts of a plan that has some."""
    assert plan.drafting is not None
    return plan.drafting


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.8, 1.0])
def test_tokens_of_a_step_are_the_geometric_sum(acceptance: float) -> None:
    for drafts in (1, 2, 5):
        closed = (1 - acceptance ** (drafts + 1)) / (1 - acceptance) if acceptance < 1 else drafts + 1
        assert expected_tokens(acceptance, drafts) == pytest.approx(closed, rel=1e-12)


def test_the_closed_form_is_what_the_simulation_draws(plan: Plan) -> None:
    drafting, simulated = drafting_of(plan), simulate_drafts(plan, 40_000)
    assert simulated is not None
    step = drafting.tokens * drafting.draft + drafting.verify
    assert simulated.seconds / simulated.steps == pytest.approx(step, rel=1e-9)
    assert simulated.drafted == drafting.tokens * simulated.steps
    assert simulated.tokens / simulated.steps == pytest.approx(drafting.expected, rel=0.02)
    assert simulated.tokens_per_second == pytest.approx(drafting.tokens_per_second, rel=0.02)
    assert simulate_drafts(plan, 400) == simulate_drafts(plan, 400) != simulate_drafts(plan, 400, seed=1)


def test_verification_reads_the_union_of_experts_and_all_else_once(plan: Plan) -> None:
    def computed(iteration: Iteration, operation: str) -> list[Task]:
        tasks = lower(plan, iteration).tasks
        return [task for task in tasks if task.operation == operation and task.payload is None]

    passes = mean_step(plan.workload), verifying_pass(plan, 3)
    read = {
        operation: [sum(task.bytes for task in computed(one_pass, operation)) for one_pass in passes]
        for operation in ("experts_up", "gate", "o", "head")
    }
    union = EXPERTS * (1 - (1 - CHOSEN / EXPERTS) ** 4)
    single, verified = read.pop("experts_up")
    assert verified == pytest.approx(single * union / CHOSEN, rel=1e-6)
    assert all(single == verified > 0 for single, verified in read.values())
    heads = [sum(task.flops for task in computed(one_pass, "head")) for one_pass in passes]
    assert heads[1] == 4 * heads[0]
    step, verify = plan.predicted.decode.seconds.mid, drafting_of(plan).verify
    assert step < verify < 4 * step


def test_verification_is_placed_as_decode_steps_are(plan: Plan) -> None:
    """Whatever a plan brings to the accelerator for prompts."""
    prompts = ComputeRule(select=Select(), device="cuda", phase="prefill")
    streaming = plan.model_copy(update={"compute": (prompts, *plan.compute)})

    def placed(iteration: Iteration) -> list[tuple[str, str]]:
        return [(task.op, task.resource) for task in lower(streaming, iteration).tasks]

    step = placed(mean_step(plan.workload))
    assert placed(verifying_pass(plan, 3)) == step
    assert placed(prefill(plan.workload)) != step


def test_the_search_leaves_room_for_the_drafter(plan: Plan) -> None:
    """Blocks that would be on the accelerator give way to it; whoever reads the plan counts it."""
    drafting, without = drafting_of(plan), planned(QUESTION).plan
    before, after = (
        next(use for use in one.predicted.memory if use.memory == drafting.memory) for one in (without, plan)
    )
    assert before.available - before.used < drafting.size == after.drafter
    assert after.weights < before.weights
    assert after.used == after.weights + after.kv + after.buffers + after.pinned + after.drafter <= after.available
    assert after.available == before.available
    assert accept(Plan.model_validate_json(plan.to_json())) == plan
    larger = drafting.model_copy(update={"size": drafting.size + after.available - after.used + 1})
    with pytest.raises(InfeasibleError, match="the plan needs"):
        accept(plan.model_copy(update={"drafting": larger}))
    assert "drafting" not in json.loads(without.to_json())


def test_snapshots_of_states_are_planned_and_simulated() -> None:
    """Bytes of the states behind every draft; seconds in which they are written, and put back."""
    plan = decided(model="Qwen3.5-35B-A3B", hardware={**MACHINE, "gpu": "RTX 4090"}).plan
    drafting, states = drafting_of(plan), states_by_device(plan)
    assert sum(states.values()) == sum(state_of(plan.model, layer).size for layer in range(plan.model.layers))
    kept = sum(use.drafter for use in plan.predicted.memory) - drafting.size
    assert kept == 3 * sum(states.values()) > 0
    costs = cost_model(plan).without_table()
    passed = pass_seconds(pass_of(known(plan), verifying_pass(plan, 3)), costs)
    assert drafting.verify == pytest.approx(passed + 3 * drafting.back, rel=1e-9)
    reading = 2 * sum(states.values()) / max(device.read.value for device in plan.hardware.devices)
    assert drafting.back >= reading
    simulated = simulate_drafts(plan, 40_000)
    assert simulated is not None
    rejected = (1 - 0.8**3) * drafting.back
    step = 3 * drafting.draft + drafting.verify + rejected
    assert simulated.seconds / simulated.steps == pytest.approx(step, rel=0.01)
    assert simulated.tokens_per_second == pytest.approx(drafting.tokens_per_second, rel=0.02)
    assert accept(Plan.model_validate_json(plan.to_json())) == plan


def test_a_plan_with_room_to_spare_stays_as_it_is() -> None:
    roomy = {"gpu": "RTX 4090", "cpu": "AMD Ryzen 9 7950X", "ram": 64 * 10**9}
    made, without = decided(hardware=roomy).plan, planned({**QUESTION, "hardware": roomy}).plan
    assert (made.residence, made.label) == (without.residence, without.label)
    assert drafting_of(made).tokens_per_second > without.predicted.tokens_per_second.mid


def buffers_of_drafter(plan: Plan, question: DraftQuestion) -> int:
    """Return bytes of what a drafter works in, which take no small part of its memory."""
    (buffers,) = {use.buffers for use in memory_use(drafter_of(plan, question)) if use.weights}
    assert buffers > 4 * plan.workload.new_tokens * plan.model.hidden
    return buffers


def test_bytes_of_a_draft_head_are_those_of_its_block_and_what_joins() -> None:
    """DeepSeek-V3's: 11,610,067,968 parameters (block, eh_proj, three norms); embedding and head are shared."""
    huge = {"cpu": "AMD Ryzen 9 7950X", "ram": 3 * 10**12}
    plan = planned({"model": "DeepSeek-V3", "hardware": huge, "format": "f16", "strategy": "layer-split"}).plan
    cache = plan.workload.context * (512 + 64) * 2
    expected = 2 * 11_610_067_968 + cache + buffers_of_drafter(plan, DraftQuestion(1, 0.5))
    assert drafter_bytes(plan, DraftQuestion(1, 0.5)) == pytest.approx(expected, rel=1e-5)


def test_a_smaller_model_drafts_with_all_of_its_weights_and_caches() -> None:
    smaller = {"draft": "Qwen3-0.6B", "draft_tokens": 4, "acceptance": 0.7}
    plan = planned({"model": "Qwen3-8B", "hardware": "rtx4060-laptop", "strategy": "layer-split", **smaller}).plan
    drafting, drafter = drafting_of(plan), load_model("Qwen3-0.6B")
    assert drafting.model == drafter
    cache = 2 * drafter.layers * 8 * 128 * plan.workload.context * 2
    buffers = buffers_of_drafter(plan, DraftQuestion(4, 0.7, drafter))
    assert drafting.size == pytest.approx(2 * 596_049_920 + cache + buffers, rel=1e-3)
    assert drafting.draft < plan.predicted.decode.seconds.mid


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"acceptance": None}, "stated in part"),
        ({"draft": None}, "stated in part"),
        ({"draft_tokens": 17}, "not a number of drafts"),
        ({"draft": "Qwen3-0.6B"}, "Qwen3-0.6B has 151936 tokens"),
        ({"model": "Qwen3-8B"}, "has no head that drafts tokens"),
        ({"model": "Qwen3.5-35B-A3B", "draft": "Qwen3.5-27B"}, "Qwen3.5-27B keeps states"),
        ({"batch": "max"}, "have one batch"),
    ],
)
def test_drafts_that_make_no_sense_are_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises((UsageError, BadInputError), match=reason):
        decided(**changes)


def test_a_drafter_without_room_is_named() -> None:
    with pytest.raises(InfeasibleError):
        decided(draft="mtp", hardware="rtx4060-laptop", ram_available=10**9)


def test_the_command_answers_with_drafts_beside_those_without(capsys: pytest.CaptureFixture[str]) -> None:
    machine = ["--gpu", "RTX 3060", "--cpu", "AMD Ryzen 9 7950X", "--ram", "64GB", "--strategy", "layer-split"]
    command = ["--model", "GLM-4.7-Flash", "--format", "q4_0", *machine, "--draft", "mtp", "--draft-tokens", "2"]
    assert main([*command, "--acceptance", "0.8"]) == 0
    printed = capsys.readouterr().out
    assert "drafts       " in printed
    assert "draft step" not in printed
    assert main([*command, "--acceptance", "0.8", "-v"]) == 0
    printed = capsys.readouterr().out
    assert "draft step   2 x " in printed
    assert ", drafter " in " ".join(printed.split())
    half = ["--acceptance", "0.5"]
    for more, flag in (
        ([], "--acceptance"),
        (["--acceptance", "2"], "--acceptance"),
        ([*half, "--max-context"], "--draft"),
        ([*half, "--pareto", "2"], "--draft"),
    ):
        assert main([*command, *more]) == 2
        error = capsys.readouterr().err.strip()
        assert flag in error
        assert "\n" not in error
