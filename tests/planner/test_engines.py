"""The engines people already have: accepted plans, what fits, what is streamed, and where llama.cpp's rules lead."""

from collections import Counter

import pytest

from helmsman.hwdb.compose import override
from helmsman.hwdb.driver_memory import reported_bytes
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.lower import lower
from helmsman.lowering.tensors import block_tensors, output_tensors, parameters
from helmsman.planner.checks.accept import accept
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.prediction.launches import driven, floor
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.accelerate import Accelerate, modules_kept
from helmsman.planner.strategies.engines.overrides import overrides_of
from helmsman.planner.strategies.engines.question import EngineQuestion
from helmsman.planner.strategies.engines.software import EAGER, looped, native
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.planner.strategies.llama_cpp import LlamaCpp
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.vllm import GIB, Vllm, offloaded
from helmsman.planner.strategies.zero_inference import ZeroInference
from helmsman.scheduler.iteration import prefill
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.workload import Workload
from helmsman.simulator.pricing import median_price
from helmsman.simulator.replay import replay

WORK = Workload(prompt_tokens=128, output_tokens=128, context=256)


def asked(engine, model="Qwen3-8B", vram=7 << 30, work=WORK, machine="rtx3090-epyc7h12", **options):
    """A question about a machine with much host memory; `vram` None: all of the accelerator's."""
    hardware = override(load_hardware(machine, None), vram, None)
    options = {"objective": "latency", **options}
    return EngineQuestion(Frame(load_model(model), roles(hardware), work), engine, CostOptions(), **options)


def small(engine, work=WORK):
    """16 blocks, of which some fit."""
    return asked(engine, "Llama-3.2-1B", 2 << 30, work)


def step(question):
    """The tasks of a decode step."""
    return lower(question.placement, mean_step(question.frame.workload)).tasks


def streamed(question):
    """Bytes of weights that a decode step brings to the accelerator."""
    return sum(task.bytes for task in step(question) if task.kind == "transfer" and task.payload == "weights")


def places(question):
    """Where operations of a decode step run, by block and name."""
    return {(task.layer, task.op): task.resource for task in step(question) if task.kind != "transfer"}


def used(question, memory):
    return next(use for use in memory_use(question.placement) if use.memory == memory)


def sizes(model):
    """Bytes of a table or head, of a block, and of the final norm."""
    model = load_model(model)
    norm, head = output_tensors(model)
    return head.size("f16"), sum(tensor.size("f16") for tensor in block_tensors(model, 0)), norm.size("f16")


EVERY = [
    Accelerate(),
    ZeroInference(),
    Vllm(offload=1.5),
    LlamaCpp(),
    LlamaCpp(ngl=3),
    LlamaCpp(ngl=0, op_offload=False),
]


@pytest.mark.parametrize("engine", EVERY, ids=lambda each: f"{each.name}-{getattr(each, 'ngl', '')}")
@pytest.mark.parametrize("batches", [1, 2])
def test_plans_are_accepted(engine, batches):
    decision = small(engine, WORK.model_copy(update={"batches": batches})).decide({})
    plan = accept(decision.plan)
    assert plan.strategy.name == engine.name and plan.predicted.decode.gap >= 0
    assert plan.label.endswith(" 2x1") == (batches == 2)


def test_accelerate_fills_the_accelerator_in_order_of_use():
    """The table, blocks while they fit beside the largest module to come, which is the head."""
    table, block, norm = sizes("Qwen3-8B")
    question = asked(Accelerate(), vram=8_000_000_000)
    kept = modules_kept(question.frame)
    assert table + (kept - 1) * block + table <= 0.9 * 8_000_000_000 < table + kept * block + table
    assert used(question, "dram").weights == (37 - kept) * block + norm + table
    assert streamed(question) == used(question, "dram").weights


def test_accelerate_keeps_everything_when_the_last_module_fits():
    """No room is reserved for a module once there is none to come."""
    table, block, norm = sizes("Qwen3-8B")
    total = 2 * table + 36 * block + norm
    just, less = (asked(Accelerate(), vram=size) for size in (round(total / 0.9) + 1, round(total / 0.9) - 1))
    assert modules_kept(just.frame) == 39 and streamed(just) == 0
    assert modules_kept(less.frame) == 37 and streamed(less) == norm + table


def test_engines_find_what_is_free_not_what_another_executor_leaves():
    """HELM's budget on its 3090 is 22 GiB; Accelerate takes 0.9 of the free 23.4."""
    question = asked(Accelerate(), "Qwen3-14B", vram=None)
    memory = load_hardware("rtx3090-epyc7h12", None).memory("vram")
    table, block, _ = sizes("Qwen3-14B")
    kept = modules_kept(question.frame)
    assert table + (kept - 1) * block + table <= 0.9 * memory.free < table + kept * block + table
    assert used(question, "vram").available == memory.free > memory.available
    assert used(question, "vram").weights > 0.9 * memory.available - block


def test_a_tied_head_stays_with_its_table():
    question = asked(Accelerate(), model="Qwen3-4B")
    _, block, norm = sizes("Qwen3-4B")
    blocks = 37 - modules_kept(question.frame)
    assert 0 < blocks < 36
    assert streamed(question) == blocks * block + norm


def test_hooks_overlap_nothing():
    """A copy from pageable memory waits for the operation before it, and its operation for it."""
    question = asked(Accelerate())
    graph = lower(question.placement, mean_step(WORK))
    copies = [task for task in graph.tasks if task.kind == "transfer" and task.payload == "weights"]
    assert {task.path for task in copies} == {"pageable"}
    prices = [question_costs(question).price(task).mid for task in graph.tasks]
    assert question.decide({}).seconds == pytest.approx(sum(prices), rel=1e-9)


def question_costs(question):
    from helmsman.planner.strategies.streaming.question import Question

    return Question(question.frame, question.cost_options).costs(question.placement)


def test_zero_inference_streams_every_matrix_but_the_table():
    """Vectors persist; of the table a token's row is looked up."""
    question = asked(ZeroInference())
    model = load_model("Qwen3-8B")
    vectors = sum(t.elements for t in block_tensors(model, 0) if len(t.shape) == 1) * model.layers + model.hidden
    table = model.vocab * model.hidden
    assert streamed(question) == 2 * (parameters(model) - vectors - table + model.hidden)
    assert used(question, "vram").weights == 2 * vectors
    assert used(question, "dram").weights == 2 * (parameters(model) - vectors)


def test_zero_inference_takes_the_longer_of_link_and_work():
    """The next block comes while one computes: a step takes little more than its transfers (HELM-70)."""
    question = asked(ZeroInference())
    costs = question_costs(question)
    moving = sum(costs.price(task).mid for task in step(question) if task.resource == "h2d")
    assert moving < question.decide({}).seconds < 1.1 * moving


def test_wide_biases_are_not_kept():
    """OPT's `up` has a bias four times as wide as the model: more than the threshold."""
    question = asked(ZeroInference(), model="opt-1.3b")
    rules = [rule.select.names for rule in question.placement.residence if rule.memory == "vram"]
    assert "down.bias" in rules and "up.bias" not in rules


def test_vllm_takes_nine_tenths_of_what_the_driver_reports():
    """HELM-71: what more is free stays free."""
    question = asked(Vllm(), vram=None)
    memory = load_hardware("rtx3090-epyc7h12", None).memory("vram")
    assert used(question, "vram").available == int(0.9 * reported_bytes("RTX 3090", memory.capacity))
    half = asked(Vllm(utilization=0.5), vram=None)
    with pytest.raises(InfeasibleError, match="`cpu_offload_gb`"):
        half.decide({})


def test_vllm_says_what_would_fit():
    """The option that it names fits, and one less does not."""
    with pytest.raises(InfeasibleError) as caught:
        asked(Vllm()).decide({})
    least = int(caught.value.remedy.rpartition(" ")[2])
    assert asked(Vllm(offload=least)).fits(WORK) and not asked(Vllm(offload=least - 1)).fits(WORK)


def test_vllm_offloads_as_little_as_lets_it_fit():
    with pytest.raises(InfeasibleError) as caught:
        asked(Vllm()).decide({})
    least = int(caught.value.remedy.rpartition(" ")[2])
    question = asked(Vllm(offload=None))
    assert question.placement == asked(Vllm(offload=least)).placement
    assert question.label == asked(Vllm(offload=least)).label == f"vllm cuda(38) {least} GiB offloaded"
    roomy = asked(Vllm(offload=None), vram=None)
    assert roomy.placement == asked(Vllm(), vram=None).placement and roomy.label == "vllm cuda(38)"


def test_vllm_that_never_fits_says_what_it_lacks():
    """Caches and buffers stay on the accelerator."""
    with pytest.raises(InfeasibleError, match="vllm does not fit"):
        asked(Vllm(offload=None), vram=10**6).decide({})


@pytest.mark.parametrize("offload", [0.001, 1, 9.5])
def test_vllm_offloads_whole_parameters_from_the_first_block(offload):
    """Until so much is in host memory that it is enough: never less, never a parameter more."""
    question = asked(Vllm(offload=offload))
    gone = used(question, "dram").weights
    model = load_model("Qwen3-8B")
    largest = 2 * 2 * model.dense.ffn * model.hidden  # gate and up are one parameter
    assert offload * GIB <= gone < offload * GIB + largest
    assert streamed(question) == gone
    whole, parts = offloaded(question.frame, int(offload * GIB))
    names = [tensor.name for tensor in parts]
    assert ("q.weight" in names) == ("k.weight" in names) and ("gate.weight" in names) == ("up.weight" in names)
    assert whole <= gone // sizes("Qwen3-8B")[1]


def test_vllm_offloads_no_more_than_blocks_have():
    question = asked(Vllm(offload=1000))
    assert used(question, "dram").weights == 36 * sizes("Qwen3-8B")[1]


@pytest.mark.parametrize(
    ("ngl", "blocks", "head"), [(0, 0, False), (1, 0, True), (5, 4, True), (37, 36, True), (99, 36, True)]
)
def test_slots_of_llama_cpp_count_the_output(ngl, blocks, head):
    """HELM-72: the last slot is the output, the table stays with the CPU, keys and values with their layer."""
    question = asked(LlamaCpp(ngl=ngl), vram=None)
    table, block, norm = sizes("Qwen3-8B")
    assert used(question, "vram").weights == blocks * block + head * (table + norm)
    assert used(question, "dram").weights == (36 - blocks) * block + table + (not head) * (table + norm)
    per_block = used(question, "dram").kv + used(question, "vram").kv
    assert used(question, "vram").kv == per_block * blocks // 36
    assert streamed(question) == 0


def test_llama_cpp_takes_as_many_slots_as_fit():
    best = asked(LlamaCpp())
    slots = best.engine.slots(best.frame)
    assert best.fits(WORK) and not asked(LlamaCpp(ngl=slots + 1)).fits(WORK)
    with pytest.raises(InfeasibleError, match=f"or `ngl` {slots}$|or `ngl` {slots} "):
        asked(LlamaCpp(ngl=slots + 1)).decide({})


def test_the_cpu_alone_needs_no_accelerator():
    question = asked(LlamaCpp(), model="Qwen3-0.6B", vram=None, machine="ryzen7950x-cpu")
    plan = accept(question.decide({}).plan)
    assert {task.resource for task in lower(plan, mean_step(WORK)).tasks} == {"cpu"}


def test_large_products_are_done_by_the_accelerator():
    """From 32 tokens on: weights of blocks in host memory are copied for the prompt, attention stays."""
    question = asked(LlamaCpp(ngl=5))
    first = lower(question.placement, prefill(WORK)).tasks
    linear = {task.resource for task in first if task.kind == "linear" and task.layer == 0}
    attention = {task.resource for task in first if task.kind == "attention" and task.layer == 0}
    assert (linear, attention) == ({"cuda"}, {"cpu"})
    short = asked(LlamaCpp(ngl=5), work=Workload(prompt_tokens=31, output_tokens=1, context=32))
    stay = asked(LlamaCpp(ngl=5, op_offload=False))
    for other in (short, stay):
        tasks = lower(other.placement, prefill(other.frame.workload)).tasks
        assert {task.resource for task in tasks if task.layer == 0 and task.kind == "linear"} == {"cpu"}


@pytest.mark.parametrize(("batch", "where"), [(31, "cpu"), (32, "cuda")])
def test_large_batches_are_products_of_the_accelerator_too(batch, where):
    question = asked(LlamaCpp(ngl=5), work=WORK.model_copy(update={"batch": batch}))
    assert places(question)[0, "up"] == where and places(question)[0, "attention"] == "cpu"
    assert (streamed(question) > 0) == (where == "cuda")


def test_overridden_tensors_are_computed_where_they_live():
    frame = asked(LlamaCpp()).frame
    rules = overrides_of(r"blk\.[0-3]\.ffn_(up|gate)=CPU,token_embd=vram,blk\.3\.ffn=CUDA0", frame.model, frame.roles)
    question = asked(LlamaCpp(ngl=37, overrides=rules), vram=None)
    accept(question.decide({}).plan)
    found = places(question)
    for layer in range(5):
        assert found[layer, "up"] == found[layer, "gate"] == ("cpu" if layer < 4 else "cuda")
        assert found[layer, "down"] == found[layer, "q"] == "cuda"
    assert found[None, "embedding"] == "cuda"
    assert streamed(question) == 0


def test_the_first_pattern_decides():
    frame = asked(LlamaCpp()).frame
    rules = overrides_of(r"blk\.0\.ffn_up=CUDA0,ffn_up=CPU", frame.model, frame.roles)
    found = places(asked(LlamaCpp(ngl=37, overrides=rules), vram=None))
    assert found[0, "up"] == "cuda" and found[1, "up"] == "cpu"


@pytest.mark.parametrize(
    "text",
    ["ffn", "=CPU", "ffn_up=", "ffn_(up=CPU", "ffn_exps=CPU", "ffn_up=TPU", "", "a" * 201 + "=CPU",
     "(([a-z0-9._]*)*)*#1=CPU", ",".join(["ffn_up=CPU"] * 65)],
)  # fmt: skip
def test_bad_rules_are_refused(text):
    frame = asked(LlamaCpp()).frame
    with pytest.raises(UsageError):
        overrides_of(text, frame.model, frame.roles)


def test_more_rules_than_a_plan_has_are_refused():
    """Every other block of seven kinds of matrices: 36 stretches each."""
    frame = asked(LlamaCpp(), "Qwen3-14B").frame
    rules = overrides_of(r"blk\.\d*[02468]\.(attn_|ffn_).*=CPU", frame.model, frame.roles)
    with pytest.raises(UsageError, match="at most 256"):
        asked(LlamaCpp(ngl=41, overrides=rules), "Qwen3-14B", None).decide({})


@pytest.mark.parametrize("engine", [Accelerate(), LlamaCpp()], ids=lambda each: each.name)
def test_more_memory_is_never_slower(engine):
    """With every GB of the accelerator's memory no more is streamed or computed by the CPU."""
    steps = [asked(engine, vram=size * 10**9).decide({}).seconds for size in (4, 6, 8)]
    assert steps == sorted(steps, reverse=True) and steps[-1] < 0.8 * steps[0]


@pytest.mark.parametrize("engine", [Accelerate(), ZeroInference(), ZeroInference(resident=True), Vllm()], ids=repr)
def test_what_fits_nowhere_is_refused(engine):
    """65 GB of weights beside 7 and 14 GB."""
    with pytest.raises(InfeasibleError, match="would do"):
        asked(engine, model="Qwen3-32B", machine="rtx4060-laptop").decide({})


@pytest.mark.parametrize("engine", [Accelerate(), ZeroInference(), Vllm()], ids=lambda each: each.name)
def test_machines_without_an_own_memory_are_refused(engine):
    for machine, why in (("m1-16gb", "offloading gains nothing"), ("ryzen7950x-cpu", "no accelerator")):
        with pytest.raises(UsageError, match=why):
            asked(engine, model="Qwen3-0.6B", vram=None, machine=machine).decide({})


def test_launches_run_ahead_of_long_operations():
    """E-HELM-12: a pass takes the longer of the host's and the accelerator's sum, however operations differ."""
    work = [1.0, 1.0, 9.0, 2.0, 30.0]
    for host in (0.5, 1.0, 3.0, 8.0, 9.0, 40.0):
        level = floor(Counter(work).items(), host * len(work))
        assert sum(max(each, level) for each in work) == pytest.approx(max(sum(work), host * len(work)))
    known = Counter(work).items()
    assert floor(known, 200.0) == 40.0 and floor(known, 2.5) == 0.0 and floor([], 0.0) == 0.0


@pytest.mark.parametrize("machine", ["rtx3090-epyc7h12", "l40s-epyc7413"])
@pytest.mark.parametrize("model", ["Qwen3-4B", "Qwen3-8B", "Qwen3-14B"])
def test_layer_splits_and_eager_engines_launch_by_one_model(machine, model):
    """The same resident weights on one GPU: the longer of the host's launches and the accelerator's work, for both.

    With a least time for each operation beside long ones, splits of Qwen3-14B were a quarter slower on the L40S."""
    hardware = load_hardware(machine, None)
    vram = hardware.memory("vram").model_copy(update={"capacity": 1 << 36, "available": 1 << 35, "free": 1 << 35})
    hardware = hardware.model_copy(update={"memories": (hardware.memories[0], vram)})
    found = driven(roles(hardware), load_model(model), WORK, "f16", "f16")
    split = LayerSplit(load_model(model), found, WORK, SplitQuestion(), CostModel(found.hardware))
    engine = EngineQuestion(
        Frame(load_model(model), roles(hardware), WORK),
        ZeroInference(resident=True),
        CostOptions(),
        objective="latency",
    )
    own, transformers = split.seconds(0, mean_step(WORK)), engine.decide({}).seconds
    count = len(lower(split.placement(0), mean_step(WORK)).tasks)
    bare = _unlaunched(hardware, model)
    assert own == pytest.approx(max(bare, count * hardware.device("cuda").dispatch.seconds.value), rel=1e-2)
    assert transformers == pytest.approx(max(bare, count * EAGER.dispatch.seconds.value), rel=1e-2)


def _unlaunched(hardware, model):
    """Seconds of a step by the accelerator's work alone."""
    placed = EngineQuestion(Frame(load_model(model), roles(hardware), WORK), Vllm(), CostOptions()).placement
    costs = CostModel(native(hardware))
    return sum(costs.price(task).mid for task in lower(placed, mean_step(WORK)).tasks)


def test_every_further_sequence_is_launched_again():
    """HELM's Table 6.2, of which only single sequences are in the record: 34.0, 53.6, 63.5 tokens/s at 2, 4, 8."""
    hardware, model = load_hardware("rtx3090-epyc7h12", None), load_model("Qwen3-4B")
    for batch, published in ((1, 21.1), (2, 34.0), (4, 53.6), (8, 63.5)):
        work = WORK.model_copy(update={"batch": batch})
        found = driven(roles(hardware), model, work, "f16", "f16")
        split = LayerSplit(model, found, work, SplitQuestion(), CostModel(found.hardware))
        assert batch / split.seconds(0, mean_step(work)) == pytest.approx(published, rel=0.2)
        assert found.accelerator.dispatch is None
    for machine in ("rtx4060-laptop", "a10-xeon6342"):
        other = roles(load_hardware(machine, None))
        assert driven(other, model, WORK, "f16", "f16") is other


def test_a_cpu_does_not_launch_ahead():
    """What the thread that launches computes itself: every operation takes its launch on top."""
    hardware, model = load_hardware("rtx3090-epyc7h12", None), load_model("Qwen3-4B")
    device = driven(roles(hardware), model, WORK, "f16", "f16").host
    assert device.overhead.value == pytest.approx(hardware.device("cpu").dispatch.seconds.value)
    many = driven(roles(hardware), model, WORK.model_copy(update={"batch": 2}), "f16", "f16").host
    assert many.overhead.value == pytest.approx(device.overhead.value * (399 + 3 * 36) / 399)


def test_a_resident_model_takes_the_hosts_time_per_operation():
    """399 operations of transformers' modules, whatever the model's size, until the accelerator needs longer."""
    small, larger = (asked(Accelerate(), name, None) for name in ("Qwen3-4B", "Qwen3-8B"))
    for question in (small, larger):
        assert len(step(question)) == 399
        assert question.decide({}).seconds == pytest.approx(399 * EAGER.dispatch.seconds.value, rel=1e-6)
    slow = asked(Accelerate(), vram=None, machine="rtx4060-laptop")
    assert slow.frame.roles.accelerator.launch.value < EAGER.dispatch.seconds.value


def test_software_is_that_of_the_engine_on_real_devices_only():
    hardware = load_hardware("rtx3090-epyc7h12", None)
    bare = native(hardware).device("cuda")
    assert bare.dispatch is None and bare.launch.value < 1e-5 < hardware.device("cuda").dispatch.seconds.value
    same = asked(Vllm(), vram=None, own_software=False)
    assert same.frame.roles.hardware == hardware
    assert same.decide({}).seconds > 2 * asked(Vllm(), vram=None).decide({}).seconds
    devices = tuple(
        device if device.kind == "cpu" else device.model_copy(update={"kind": "loopback"})
        for device in hardware.devices
    )
    ours = hardware.model_copy(update={"devices": devices})
    assert looped(ours) and not looped(hardware)
    frame = Frame(load_model("Qwen3-4B"), roles(ours), WORK)
    for engine in (Accelerate(), LlamaCpp()):
        assert EngineQuestion(frame, engine, CostOptions()).frame.roles.hardware == ours


def test_plans_hold_their_own_sources():
    """A figure of the engine's software names a source that is in the plan."""
    for engine in (Accelerate(), LlamaCpp()):
        plan = asked(engine).decide({}).plan
        again = type(plan.hardware).model_validate(plan.hardware.model_dump())
        assert again == plan.hardware


def test_engines_ask_for_smaller_batches():
    many = WORK.model_copy(update={"batch": 4096})
    with pytest.raises(InfeasibleError, match="batches of at most") as caught:
        asked(ZeroInference(), work=many).decide({})
    most = int(caught.value.remedy.rpartition(" ")[2])
    fitting = asked(ZeroInference(), work=WORK)
    assert fitting.fits(replace_batch(most)) and not fitting.fits(replace_batch(most + 1))


def replace_batch(count):
    return WORK.model_copy(update={"batch": count})


@pytest.mark.parametrize("engine", EVERY, ids=lambda each: f"{each.name}-{getattr(each, 'ngl', '')}")
def test_the_simulator_replays_what_is_predicted(engine):
    plan = small(engine).decide({}).plan
    graph = lower(plan, mean_step(plan.workload))
    simulated = replay(graph, median_price(plan), plan.hardware).makespan
    assert simulated == pytest.approx(plan.predicted.decode.seconds.mid, rel=1e-6)
