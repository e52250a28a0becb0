"""`ktransformers` and `freetoken`: their placements, what users of them choose, and what the search makes of it."""

from dataclasses import replace

import pytest
from expert_question import MIB, machine_with, question, routing_of, skewed

from helmsman.hwdb.load_model import load_model
from helmsman.library import emit
from helmsman.lowering.lower import lower
from helmsman.planner.decide import decide
from helmsman.planner.decision import Decision
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.read_request import request_from
from helmsman.planner.strategies.freetoken import link_share
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.routing import LayerRouting, Routing

LAYERS = 3
MODEL = load_model("Qwen3-30B-A3B").with_layers(LAYERS)


def decided(
    strategy: str, vram: int = 900, routing: Routing | None = None, prompt: int = 64, **options: object
) -> Decision:
    request = request_from(
        {
            "model": MODEL,
            "hardware": machine_with(vram * MIB),
            "format": "q4_0",
            "strategy": strategy,
            "prompt_tokens": prompt,
            "output_tokens": 64,
            "options": {"same_software": True, **options} if strategy != "expert-split" else options,
        }
    )
    return decide(replace(request, workload=request.workload.model_copy(update={"routing": routing})))


def skew() -> Routing:
    chances = [skewed(128, 8, power) for power in (0.4, 0.8, 1.2)]
    return routing_of(MODEL, *(LayerRouting(layer=layer, popularity=chance) for layer, chance in enumerate(chances)))


def test_experts_by_number_are_on_the_accelerator() -> None:
    plan = decided("ktransformers", gpu_experts=24).plan
    assert plan.label == "ktransformers 24 experts by number"
    downs = [
        task
        for task in lower(plan, mean_step(plan.workload)).tasks
        if task.kind == "experts" and task.op == "experts_down"
    ]
    assert {(task.resource, task.rows) for task in downs} == {("cuda", (0, 24)), ("cpu", (24, 128))}
    assert not plan.expert_slots


def test_popular_experts_are_written_with_the_file_that_names_them() -> None:
    plan = decided("ktransformers", gpu_experts=24, expert_order="popularity", routing=skew()).plan
    written = emit(plan, "ktransformers")
    assert "--kt-expert-placement-strategy frequency --init-expert-location " in written.text
    assert any(lost.instead.endswith("the server has to record first") for lost in written.differences)


def test_popular_experts_are_pinned_and_gain_by_the_routing() -> None:
    by_number = decided("ktransformers", gpu_experts=24, routing=skew())
    popular = decided("ktransformers", gpu_experts=24, expert_order="popularity", routing=skew())
    assert [(rule.slots, rule.eviction, rule.misses) for rule in popular.plan.expert_slots] == [
        (24, "popularity", "host")
    ]
    routing = popular.plan.predicted.routing
    assert routing is not None and routing.assumed == "popularity"
    uniform = next(case for case in routing.cases if case.name == "uniform")
    assert uniform.decode > popular.plan.predicted.decode.seconds.mid
    assert popular.seconds <= by_number.seconds * 1.000001


def test_prompts_above_a_threshold_are_streamed() -> None:
    few, many = (decided("ktransformers", 1200, gpu_experts=24, stream_above=above).plan for above in (64, 63))
    assert "streamed" not in few.label and "streamed" in many.label
    assert few.predicted.decode.seconds.mid == pytest.approx(many.predicted.decode.seconds.mid)


@pytest.mark.parametrize(("mode", "misses"), [("offload", "fetched"), ("cpu", "host"), ("hybrid", "divided")])
def test_caches_hold_the_experts_used_last(mode: str, misses: str) -> None:
    plan = decided("freetoken", miss_mode=mode).plan
    (rule,) = plan.expert_slots
    assert (rule.eviction, rule.misses) == ("least-recent", misses) and 0 < rule.slots < 128
    routing = plan.predicted.routing
    assert routing is not None and [case.name for case in routing.cases] == ["cold"]
    assert decided("freetoken", miss_mode=mode, expert_slots=rule.slots).plan.label == plan.label
    with pytest.raises(InfeasibleError, match="expert_slots"):
        decided("freetoken", miss_mode=mode, expert_slots=rule.slots + 8)


def test_a_prompt_of_one_token_has_a_cold_cache_too() -> None:
    predicted = decided("freetoken", prompt=1, miss_mode="offload").plan.predicted
    assert predicted.routing is not None
    (cold,) = predicted.routing.cases
    assert cold.name == "cold" and cold.prefill >= predicted.prefill.seconds.mid
    assert cold.decode > predicted.decode.seconds.mid


def test_the_search_is_never_slower_than_their_fixed_rules() -> None:
    routing = skew()
    rivals = [decided("ktransformers", routing=routing, expert_order=order) for order in ("number", "popularity")]
    rivals += [decided("freetoken", miss_mode=mode, routing=routing) for mode in ("offload", "cpu", "hybrid")]
    best = decided("expert-split", routing=routing)
    assert best.seconds <= min(rival.seconds for rival in rivals) * 1.01


def test_what_they_are_not_for_is_refused() -> None:
    request = request_from({"model": "Qwen3-0.6B", "hardware": "rtx3060-5600x", "strategy": "freetoken"})
    with pytest.raises(UsageError, match="no routed experts"):
        decide(request)
    with pytest.raises(UsageError, match="not a number"):
        decided("ktransformers", gpu_experts=-1)
    with pytest.raises(UsageError, match="not a number"):
        decided("freetoken", expert_slots=-1)


def test_the_link_has_its_share_of_both_rates() -> None:
    frame = question(MODEL, LAYERS, 900 * MIB).frame
    assert 0.1 < link_share(frame) < 0.5
