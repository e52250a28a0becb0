"""Costs and limits of replicas of models with experts, windows, latent vectors and states."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from daily import one_in
from expert_layouts import divided_plan
from plans import make_hardware, make_plan
from small_configs import read_small

from helmsman.hwdb.load_model import load_model
from helmsman.lowering.buffers import ragged_workspace_bytes
from helmsman.lowering.layer_cache import cache_of, state_of
from helmsman.lowering.lower import lower
from helmsman.lowering.routing import distinct_experts, experts_of
from helmsman.lowering.tensors import block_tensors
from helmsman.planner.cost.model import CostModel
from helmsman.planner.prediction.predict import pass_seconds
from helmsman.planner.serving.iteration_cost import ReplicaCost, replica_cost
from helmsman.planner.serving.kv_budget import limits_of
from helmsman.planner.serving.layer_facts import state_bytes, token_bytes, widest_body
from helmsman.planner.serving.native_room import host_bytes
from helmsman.planner.serving.replica import ReplicaOptions, replica_of
from helmsman.planner.serving.served_rules import served_placement
from helmsman.planner.serving.stages import rows, stages_of
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, SlotRule
from helmsman.scheduler.iteration import Iteration
from helmsman.scheduler.limits import Limits
from helmsman.schemas.blocks.feed_forward import Experts
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

FAMILIES = ("qwen3_moe", "mixtral", "gpt_oss", "deepseek_v3", "qwen3_next", "lfm2_moe", "nemotron_h", "gemma4_text-moe")
ASKED = ReplicaOptions(batch_tokens=64, sequences=8, utilisation=1.0, snapshots=0)


def plan_of(family: str) -> Plan:
    model = read_small(family)
    return make_plan(model, 0, workload=Workload(prompt_tokens=8, output_tokens=8, context=64))


@cache
def priced_replica(family: str) -> ReplicaCost:
    """Price a family's replica once for all tests."""
    return replica_cost(plan_of(family), ASKED)


def limits(plan: Plan, options: ReplicaOptions) -> Limits:
    """Return what a replica holds, whatever its passes cost."""
    return limits_of(replica_of(plan, options), options)


@pytest.mark.parametrize("family", one_in(2, [*FAMILIES, "gemma4_text-e"]))
def test_a_pass_costs_what_its_prediction_says(family: str) -> None:
    """As near as lines between knots are to a union of experts."""
    plan = plan_of(family)
    cost, model = priced_replica(family).cost, plan.model
    for tokens in (1, 8):
        linear, ends = (np.interp(tokens, line.x, line.y) for line in (cost.linear, cost.ends))
        made = model.layers * (linear + tokens * cost.gpu_request) + ends
        assert made == pytest.approx(pass_seconds(lower(plan, rows(tokens)), CostModel(plan.hardware)), rel=1e-2)


@pytest.mark.parametrize("family", one_in(2, FAMILIES))
def test_a_prompt_costs_what_its_prediction_says(family: str) -> None:
    """Its states are read and written once, and not for each token."""
    plan, tokens = plan_of(family), 48
    cost = priced_replica(family).cost
    pairs, read = tokens * (tokens + 1) // 2, np.interp(tokens, cost.prefill_read.x, cost.prefill_read.y)
    attention = max(np.interp(pairs, cost.prefill_compute.x, cost.prefill_compute.y), read)
    made = plan.model.layers * (np.interp(tokens, cost.linear.x, cost.linear.y) + attention)
    made += np.interp(1, cost.ends.x, cost.ends.y)
    prompt = lower(plan, Iteration(0, "prefill", 1, tokens, tokens))
    assert made == pytest.approx(pass_seconds(prompt, CostModel(plan.hardware)), rel=3e-2)


FETCHED = SlotRule("least-recent", "fetched")


def slotted_plan(slots: int, rule: SlotRule = FETCHED) -> Plan:
    model = read_small("qwen3_moe")
    shape, machine = Workload(prompt_tokens=8, output_tokens=8, context=64), make_hardware(vram=40_000_000)
    return divided_plan(model, ExpertLayout(0, model.layers, rule=rule, slots=slots), shape, machine)


def expert_bytes(model: Model) -> list[int]:
    """Return the bytes of an expert, in f32, of every layer that has some."""
    layers = ([t for t in block_tensors(model, layer) if t.stacked] for layer in range(model.layers))
    return [sum(4 * tensor.elements // tensor.shape[0] for tensor in stacked) for stacked in layers if stacked]


def test_experts_that_are_fetched_are_the_union_of_a_batch_that_slots_lack() -> None:
    """Prompts and tokens alike; the more slots, the less comes, down to nothing where every expert has one."""
    replicas = {slots: replica_of(slotted_plan(slots), ASKED) for slots in (1, 2, 4)}
    model, hardware = replicas[1].model, replicas[1].hardware
    link, costs = hardware.link("dram", "vram"), CostModel(hardware)
    experts = next(op for layer in range(model.layers) if (op := experts_of(model, layer)) is not None)
    assert experts.experts == 4 and link is not None
    for tokens in (1, 8, 48):
        seconds = []
        for slots, replica in replicas.items():
            stages = stages_of(replica.plan, costs)
            seconds.append(model.layers * stages.linear(tokens))
            missed = distinct_experts(experts, tokens) * (1 - slots / experts.experts)
            assert seconds[-1] >= 0.97 * missed * sum(expert_bytes(model)) / link.bandwidth.value
            expected = pass_seconds(lower(served_placement(slotted_plan(slots)), rows(tokens)), costs)
            assert seconds[-1] + stages.ends(tokens) == pytest.approx(expected, rel=2e-2)
        assert seconds[0] > seconds[1] > seconds[2]


@pytest.mark.parametrize("rule", [SlotRule("least-recent", "host"), SlotRule("least-recent", "divided", 0.5)])
def test_experts_that_the_host_computes_are_priced_as_they_are_lowered(rule: SlotRule) -> None:
    """Prompts and tokens alike, and the host has room for their activations, as the engine allocates them."""
    plan = slotted_plan(2, rule)
    replica, costs = replica_of(plan, ASKED), CostModel(plan.hardware)
    stages = stages_of(replica.plan, costs)
    for tokens in (1, 8, 48):
        expected = pass_seconds(lower(served_placement(plan), rows(tokens)), costs)
        made = replica.model.layers * stages.linear(tokens) + stages.ends(tokens)
        assert made == pytest.approx(expected, rel=2e-2)
    held = limits(plan, replace(ASKED, cpu_tokens=64))
    more = host_bytes(replica.plan, held) - host_bytes(replica_of(slotted_plan(2), ASKED).plan, held)
    assert more == ragged_workspace_bytes(plan.model, held.batch_tokens + held.sequences, 1)


def test_slots_leave_caches_less_room() -> None:
    asked = replace(ASKED, gpu_tokens=10**9, cpu_tokens=0)
    few, many = (limits_of(replica_of(slotted_plan(slots), asked), asked) for slots in (1, 4))
    model = slotted_plan(1).model
    taken = 3 * sum(expert_bytes(model)) / token_bytes(model, "f32")
    assert few.gpu_tokens - many.gpu_tokens == pytest.approx(taken, abs=2 * few.block)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_requests_keep_is_room_that_caches_have_not(family: str) -> None:
    """Half as many requests leave room for as many tokens more as their states and rows take."""
    model, memory = read_small(family), 40_000_000
    hardware = make_hardware(vram=memory)
    plan = make_plan(model, 0, workload=Workload(prompt_tokens=8, output_tokens=8, context=64), hardware=hardware)
    few, many = (limits(plan, replace(ASKED, sequences=count, gpu_tokens=10**9, cpu_tokens=0)) for count in (4, 8))
    size = token_bytes(model, "f32")
    freed = state_bytes(model, 4) + 4 * 4 * model.vocab
    assert few.gpu_tokens - many.gpu_tokens == pytest.approx(freed / size, abs=2 * few.block)
    kept = [state_of(model, layer) for layer in range(model.layers)]
    assert state_bytes(model, 3) == 12 * sum(state.numbers + state.inputs for state in kept)


@pytest.mark.parametrize("family", ["qwen3_next", "lfm2_moe", "nemotron_h"])
def test_snapshots_and_states_at_the_host_have_room(family: str) -> None:
    """Bounded, on the accelerator in place of keys and values; the host keeps states of as many as may run."""
    model = read_small(family)
    size, state = token_bytes(model, "f32"), state_bytes(model, 1)
    hardware = make_hardware(vram=40_000_000)
    plan = make_plan(model, 0, workload=Workload(prompt_tokens=8, output_tokens=8, context=64), hardware=hardware)
    asked = replace(ASKED, gpu_tokens=10**9, cpu_tokens=10**9, stores=True)
    none, some = (limits(plan, replace(asked, snapshots=count)) for count in (0, 6))
    assert (none.states, none.snapshots, some.snapshots) == (True, 0, 6)
    assert none.gpu_tokens - some.gpu_tokens == pytest.approx(6 * state / size, abs=2 * some.block)
    assert limits(plan, replace(asked, snapshots=None)).snapshots == 2, "a quarter of eight"
    tight = limits(plan, replace(asked, sequences=400, snapshots=None))
    assert tight.snapshots * state <= (tight.gpu_tokens + tight.block) * size / 7
    host = next(memory for memory in hardware.memories if memory.name == "dram")
    assert some.cpu_tokens == pytest.approx((host.available - 8 * state) / size, abs=2 * some.block)
    assert limits(plan, replace(asked, stores=False)).cpu_tokens == 0


def test_states_are_moved_over_the_link_and_copied_in_memory() -> None:
    plan = plan_of("lfm2_moe")
    state, cost, hardware = state_bytes(plan.model, 1), replica_cost(plan, ASKED).cost, plan.hardware
    link = next(link for link in hardware.links if link.source_memory == "vram")
    assert cost.state_out == pytest.approx(state / link.bandwidth.value + link.latency.value, rel=1e-6)
    assert cost.state_copy == pytest.approx(2 * state / hardware.device("loopback").read.value, rel=1e-6)


def test_models_without_states_have_neither() -> None:
    plan = plan_of("mixtral")
    found, cost = limits(plan, replace(ASKED, snapshots=None)), replica_cost(plan, ASKED).cost
    assert (found.states, found.snapshots) == (False, 0)
    assert (cost.state_copy, cost.state_out, cost.state_in) == (0.0, 0.0, 0.0)


def test_a_host_attends_only_where_all_layers_attend_plainly() -> None:
    attending = {family: priced_replica(family).limits.cpu_tokens > 0 for family in FAMILIES}
    assert attending == {family: family in ("qwen3_moe", "mixtral") for family in FAMILIES}


@pytest.mark.parametrize("name", ["gemma-4-31B-it-NVFP4", "gemma-4-E2B-it"])
def test_layers_may_cache_different_heads_and_those_that_share_caches_none(name: str) -> None:
    model = load_model(name)
    caches = [cache_of(model, layer) for layer in range(model.layers)]
    assert token_bytes(model, "bf16") == sum(2 * cache.values for cache in caches if cache is not None)
    plan = make_plan(model, 0, hardware=make_hardware(vram=2**40))
    found = limits(plan, replace(ASKED, gpu_tokens=4096, cpu_tokens=0))
    assert (found.gpu_tokens, found.cpu_tokens) == (4096, 0)


def test_entries_beside_keys_and_values_are_refused() -> None:
    with pytest.raises(UsageError, match="caches that are not served"):
        replica_cost(make_plan(load_model("DeepSeek-V4-Flash"), 0, hardware=make_hardware(vram=2**42)), ASKED)


def test_experts_that_are_chosen_count_as_the_width_of_a_body() -> None:
    model = read_small("mixtral")
    experts = model.layouts[0].bodies[1].op
    assert isinstance(experts, Experts)
    assert widest_body(model) >= experts.chosen * 3 * experts.width
