"""What a replica's memories hold: budgets of published systems, and nothing twice."""

import pytest
from expert_question import question
from plans import make_hardware, make_plan
from served_plans import NEO_7B, NEO_8B, NEO_70B, layer_split

from helmsman.hwdb.load_model import load_model
from helmsman.lowering.placement import Placement
from helmsman.lowering.tensors import block_tensors
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.serving.kv_budget import activation_bytes, limits_of
from helmsman.planner.serving.replica import ReplicaOptions, replica_of
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, SlotRule, place
from helmsman.scheduler.limits import Limits
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.plan import LayerRange, Residence, Schedule, Select
from helmsman.schemas.workload import Workload

GIB = 2**30


def _limits(plan: Placement, **options: float) -> Limits:
    asked = ReplicaOptions(**options)
    return limits_of(replica_of(plan, asked), asked)


@pytest.mark.parametrize(("case", "tokens"), [(NEO_7B, 3800), (NEO_8B, 42_000), (NEO_70B, 9000)])
def test_one_rule_gives_the_kv_budgets_of_neo(case: tuple[str, str, int], tokens: int) -> None:
    model, machine, accelerators = case
    limits = _limits(layer_split(model, machine), tensor_parallel=accelerators)
    assert limits.gpu_tokens == pytest.approx(tokens, rel=0.1)
    assert limits.batch_tokens > 2048 and limits.cpu_tokens > 10 * limits.gpu_tokens
    assert limits.context == load_model(model).max_context


def test_a_window_of_attention_does_not_limit_requests() -> None:
    model = load_model("Mistral-7B-v0.1")
    assert model.dense.sliding_window is not None and model.dense.sliding_window < model.max_context
    assert _limits(layer_split(model.name, NEO_8B[1])).context == model.max_context


@pytest.mark.parametrize("utilisation", [0.75, 0.9, 1.0])
def test_weights_caches_and_activations_fit_together(utilisation: float) -> None:
    plan = layer_split(*NEO_8B[:2])
    limits, memory = _limits(plan, utilisation=utilisation), plan.hardware.memory("vram")
    weights = next(use.weights for use in memory_use(plan) if use.memory == "vram")
    caches = limits.gpu_tokens * 32 * 2 * 1024 * 2
    activations = activation_bytes(plan.model, limits.batch_tokens, limits.sequences, "f16")
    assert weights + caches <= utilisation * memory.capacity
    assert memory.available * 0.98 < weights + caches + activations <= memory.available
    assert limits.batch_tokens >= 2048 and limits.gpu_tokens % limits.block == 0


def test_what_is_kept_of_more_cohorts_is_room_that_a_pass_has_not() -> None:
    plan = layer_split(*NEO_8B[:2])
    one, five = (_limits(plan, cohorts=count) for count in (1, 5))
    kept = 4 * five.sequences * (plan.model.hidden + 2 * plan.model.dense.q_width + 2 * plan.model.dense.kv_width) * 2
    freed = activation_bytes(plan.model, one.batch_tokens - five.batch_tokens, 0, "f16")
    assert five.cohorts == 5 and freed == pytest.approx(kept, rel=0.01)


def test_a_pass_of_given_tokens_leaves_the_rest_to_caches() -> None:
    plan = layer_split(*NEO_8B[:2])
    few, many = (_limits(plan, utilisation=1.0, batch_tokens=tokens) for tokens in (512, 8192))
    assert (few.batch_tokens, many.batch_tokens) == (512, 8192)
    more = activation_bytes(plan.model, 8192 - 512, 0, "f16") / (32 * 2 * 1024 * 2)
    assert few.gpu_tokens - many.gpu_tokens == pytest.approx(more, abs=17)


def test_layers_on_the_host_keep_their_caches_there() -> None:
    """A third of the blocks on the host: the second cache has what their caches leave."""
    split, whole = (layer_split("opt-125m", "rtx4060-laptop", units) for units in (5, 0))
    limits, other = _limits(split), _limits(whole)
    assert limits.gpu_tokens > other.gpu_tokens, "fewer layers' caches are on the accelerator"
    each = 2 * 768 * 2
    host = split.hardware.memory("dram")
    used = next(use.weights for use in memory_use(split) if use.memory == "dram")
    assert limits.gpu_tokens * 4 * each + limits.cpu_tokens * 12 * each + used <= host.available


def test_nothing_is_served_without_room_for_a_block() -> None:
    with pytest.raises(InfeasibleError, match="no room for keys and values on the GPU") as found:
        _limits(layer_split("Llama-3.1-8B", "rtx4060-laptop"))
    assert found.value.lacks["vram"] > GIB


def test_slots_that_fill_the_accelerator_say_how_many_leave_room() -> None:
    """With as many as the error says a request of the plan's context has room; with one more it has not."""
    ask = question("Qwen3-30B-A3B", 4, 1500 * 2**20)
    rule = SlotRule("least-recent", "host")

    def limits(slots: int) -> Limits:
        placed = place(ask.frame, ExpertLayout(0, 4, rule=rule, slots=slots))
        return _limits(placed, batch_tokens=64, sequences=4)

    with pytest.raises(InfeasibleError, match="beside weights, slots for experts and activations") as refused:
        limits(128)
    most = int(str(refused.value).partition("`expert_slots` ")[2].partition(" ")[0])
    assert "instead of 128" in str(refused.value) and 0 < most < 128
    assert limits(most).gpu_tokens >= 320 // 16 * 16
    with pytest.raises(InfeasibleError):
        limits(most + 2)


def test_a_host_alone_has_no_second_cache() -> None:
    limits = _limits(layer_split("opt-125m", "epyc9554-cpu", 14))
    assert limits.cpu_tokens == 0 < limits.gpu_tokens


@pytest.mark.parametrize("on_host", [0, 5])
def test_native_devices_hold_what_their_engine_allocates(on_host: int) -> None:
    """Where one computes everything; a plan that divides work is no engine's, and estimated as GPUs' are."""
    plan = make_plan(load_model("Qwen3-0.6B"), on_host, weights="bf16", kv="f16", hardware=make_hardware(vram=4 * GIB))
    limits = _limits(plan)
    assert (limits.batch_tokens == 2048 and limits.sequences == 64) == (on_host == 0)
    all_room = {"sequences": 8, "utilisation": 1.0, "gpu_tokens": 10**9}
    few, many = (_limits(plan, batch_tokens=tokens, **all_room) for tokens in (256, 4096))
    assert few.gpu_tokens > many.gpu_tokens and (few.cpu_tokens == many.cpu_tokens) == (on_host == 0)
    alone = _limits(plan, batch_tokens=4096, cpu_tokens=0, **all_room)
    assert (alone.gpu_tokens > many.gpu_tokens) == (on_host == 0), "no caches pass through, no second sub-batch"
    assert _limits(plan, gpu_tokens=33).gpu_tokens == 32


def test_native_caches_hold_what_as_many_requests_as_run_need() -> None:
    """Their engine touches all of it: what is said counts, and what is available."""
    work = Workload(prompt_tokens=8, output_tokens=8, context=100)
    plan = make_plan(load_model("Qwen3-0.6B"), 0, kv="f16", workload=work, hardware=make_hardware(vram=4 * GIB))
    most = _limits(plan, cpu_tokens=10**9).cpu_tokens
    assert _limits(plan).cpu_tokens == 64 * 112 < most, "whole blocks of the plan's longest context"
    room = _limits(plan, gpu_tokens=10**9).gpu_tokens
    assert 64 * 112 == _limits(plan).gpu_tokens < room
    one = _limits(plan, sequences=1).gpu_tokens
    assert 112 < one <= _limits(plan, sequences=1, gpu_tokens=10**9).gpu_tokens // 2, "a long one has half of the room"
    whole = _limits(layer_split("opt-125m", "epyc9554-cpu", 14))
    assert whole.gpu_tokens == 64 * 256, "not nine tenths of a machine"
    assert _limits(plan, sequences=8).cpu_tokens == 8 * 112
    assert _limits(plan, cpu_tokens=10_000).cpu_tokens == 10_000
    long = plan.model_copy(update={"workload": work.model_copy(update={"context": 2**15})})
    assert _limits(long).cpu_tokens < 64 * 2**15, "no more than is available"


def test_streamed_weights_leave_room_where_they_arrive_and_take_it_where_they_rest() -> None:
    """Half of the blocks in host memory: their weights' room but for a window's is for caches, which take it there."""
    plan = make_plan(load_model("Qwen3-0.6B"), 0, weights="bf16", kv="f16", hardware=make_hardware(vram=4 * GIB))
    away = Residence(select=Select(layers=LayerRange(start=0, stop=14)), memory="dram", format="bf16")
    block, token = sum(tensor.size("bf16") for tensor in block_tensors(plan.model, 0)), 28 * 2 * 8 * 128 * 2
    all_room = {"utilisation": 1.0, "cpu_tokens": 10**9, "gpu_tokens": 10**9}
    here = _limits(plan, **all_room)
    for windows, schedule in ((2, Schedule(overlap="next-layer", prefetch=1)), (3 * 1024**2 / (block / 2), Schedule())):
        streamed = plan.model_copy(update={"residence": (away, *plan.residence), "schedule": schedule})
        limits = _limits(streamed, **all_room)
        more, fewer = limits.gpu_tokens - here.gpu_tokens, here.cpu_tokens - limits.cpu_tokens
        assert more * token == pytest.approx((14 - windows) * block, abs=17 * token)
        assert fewer * token == pytest.approx(14 * block, rel=0.1), "and what is kept in f32"
        assert (limits.batch_tokens, limits.sequences) == (here.batch_tokens, here.sequences)
