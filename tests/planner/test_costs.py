"""Prices: each bound by hand, intervals, curves, the lower bound against linear programming."""

from dataclasses import replace
from math import log
from random import Random

import pytest
from random_cases import figure, random_hardware, random_split
from scipy.optimize import linprog
from seeds import seeds

from helmsman.hwdb.compose import Parts, assemble
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.lowering.operation import Formats
from helmsman.lowering.ops import block_ops
from helmsman.planner.cost.curves import interpolate
from helmsman.planner.cost.device_rates import blended, product_rate
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.prediction.between_terms import HANDOVER, JOIN, SUBMISSION
from helmsman.planner.prediction.bound import bytes_bound
from helmsman.planner.prediction.predict import mean_step, predict
from helmsman.planner.search import exhaustive
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.figures import Source
from helmsman.schemas.hardware import Compute, Efficiency
from helmsman.schemas.probed_product import PROBED


def task(**changes):
    fields = dict(
        kind="linear", op="q", operation="q", layer=0, phase="decode", resource="cpu", tokens=1, bytes=10**6,
        activation_bytes=4096, flops=10**6, format="f16", memories=("dram",), deps=(),
    )  # fmt: skip
    return Task(**{**fields, **changes})


def plain_machine(**cpu):
    hardware = random_hardware(Random(1))
    device = hardware.device("cpu").model_copy(
        update={
            "read": figure(1e10),
            "compute": tuple(c.model_copy(update={"flops": figure(1e11)}) for c in hardware.device("cpu").compute),
            "efficiency": (),
            "launch": None,
            "overhead": None,
            "elementwise": None,
            "cache_bytes": None,
            **cpu,
        }
    )
    return hardware.model_copy(update={"devices": (device, *hardware.devices[1:])})


def test_memory_bound_task():
    estimate = CostModel(plain_machine()).price(task())
    assert estimate.mid == pytest.approx(1e-4)
    assert estimate.bound == "memory"


def test_compute_bound_task():
    estimate = CostModel(plain_machine()).price(task(flops=10**9))
    assert (estimate.mid, estimate.bound) == (pytest.approx(1e-2), "compute")


def test_launch_is_a_floor_and_overhead_is_added():
    machine = plain_machine(launch=figure(1e-3), overhead=figure(2e-3))
    assert CostModel(machine).price(task()).mid == pytest.approx(3e-3)
    assert CostModel(machine, CostOptions(corrections=False)).price(task()).mid == pytest.approx(1e-4)


def test_kinds_of_operations_may_have_overheads_of_their_own():
    machine = plain_machine(overhead=figure(2e-3), overheads={"norm": figure(5e-3)})
    assert CostModel(machine).price(task(kind="norm")).mid == pytest.approx(5.1e-3)
    assert CostModel(machine).price(task(kind="linear")).mid == pytest.approx(2.1e-3)
    assert CostModel(machine, CostOptions(corrections=False)).price(task(kind="norm")).mid == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("phase", "tokens", "seconds"), [("decode", 1300, 1e-4), ("prefill", 512, 1e-3), ("prefill", 1300, 3e-3)]
)
def test_every_chunk_of_a_prompt_is_launched_by_itself(phase, tokens, seconds):
    machine = plain_machine(prompt_launch=figure(1e-3))
    assert CostModel(machine).price(task(phase=phase, tokens=tokens)).mid == pytest.approx(seconds)
    assert CostModel(machine).price(task(kind="reshape")).mid == pytest.approx(1e-3)


def test_experts_of_a_long_prompt_are_read_by_every_chunk():
    """By kernels of ours, in passes over whole prompts; a few rows each, which arithmetic binds less than reads do."""
    machine = plain_machine()
    experts = dict(kind="experts", phase="prefill", sequences=128, per_token=8.0, bytes=10**9)
    short, long = (task(**experts, tokens=8 * n, flops=10**6 * n, activation_bytes=8 * n) for n in (512, 1024))
    price = CostModel(machine).price
    assert price(long).mid == pytest.approx(2 * price(short).mid) == pytest.approx(0.2)
    assert price(long).memory == pytest.approx(2 * price(short).memory)
    served = CostModel(machine, CostOptions(chunked=False))
    engine = CostModel(plain_machine(prompt_overhead=figure(1e-9)))
    step = long._replace(phase="decode")
    for seconds in (served.price(long).mid, engine.price(long).mid, price(step).mid):
        assert seconds == pytest.approx(0.1, rel=1e-3)


def test_efficiency_divides_the_rate_and_corrections_can_be_off():
    curve = Efficiency(bound="memory", op="linear", at=(1.0,), share=(figure(0.5),))
    machine = plain_machine(efficiency=(curve,))
    assert CostModel(machine).price(task()).mid == pytest.approx(2e-4)
    assert CostModel(machine).price(task(kind="attention")).mid == pytest.approx(1e-4)
    assert CostModel(machine, CostOptions(corrections=False)).price(task()).mid == pytest.approx(1e-4)


def test_turning_caches_has_a_share_of_its_own():
    """PARK-15; a machine that says nothing of it turns them like anything else."""
    plain = Efficiency(bound="memory", at=(1.0,), share=(figure(0.5),))
    turning = Efficiency(bound="memory", op="reshape", at=(1.0,), share=(figure(0.2),))
    for curves, seconds in (((plain,), 2e-4), ((plain, turning), 5e-4)):
        costs = CostModel(plain_machine(efficiency=curves))
        assert costs.price(task(kind="reshape")).mid == pytest.approx(seconds)
        assert costs.price(task(kind="attention")).mid == pytest.approx(2e-4)


def test_the_most_specific_curve_wins():
    curves = tuple(
        Efficiency(bound="memory", op=op, format=fmt, at=(1.0,), share=(figure(share),))
        for op, fmt, share in (("*", "*", 0.1), ("*", "f16", 0.2), ("linear", "*", 0.4), ("linear", "f16", 0.5))
    )
    assert CostModel(plain_machine(efficiency=curves)).price(task()).mid == pytest.approx(2e-4)
    assert CostModel(plain_machine(efficiency=curves)).price(task(format="f32")).mid == pytest.approx(2.5e-4)
    assert CostModel(plain_machine(efficiency=curves)).price(task(kind="norm")).mid == pytest.approx(5e-4)


def test_a_step_of_many_sequences_attends_as_fast_as_of_one():
    """Curves over tokens were measured on prompts, whose tokens share a cache."""
    curve = Efficiency(bound="compute", op="attention", at=(1.0, 32.0), share=(figure(0.5), figure(0.1)))
    costs = CostModel(plain_machine(efficiency=(curve,)))
    step = task(kind="attention", tokens=32, sequences=32, bytes=0, flops=10**9)
    assert costs.price(step).mid == pytest.approx(1e9 / 0.5e11)
    assert costs.price(step._replace(phase="prefill", sequences=1)).mid == pytest.approx(1e9 / 0.1e11)


def test_elementwise_traffic_is_added_to_norms_only():
    machine = plain_machine(elementwise=figure(4096e3))
    assert CostModel(machine).price(task(kind="norm")).mid == pytest.approx(1e-4 + 1e-3)
    assert CostModel(machine).price(task()).mid == pytest.approx(1e-4)


def test_transfer_is_latency_plus_bytes_over_bandwidth():
    machine = plain_machine()
    link = machine.link("dram", "vram")
    estimate = CostModel(machine).price(task(kind="transfer", resource="h2d", bytes=8192))
    assert estimate.mid == pytest.approx(link.latency.value + 8192 / link.bandwidth.value)
    assert estimate.low < estimate.mid < estimate.high
    assert estimate.bound == "link"


def slower(*kinds):
    """How much slower, and faster, a product is at the ends of its interval (logarithms), where its read rate and the
    share of it have sources of these kinds; with one kind, by the read rate alone."""
    rates = [figure(1e10, 0.1), figure(0.5, 0.1)][: len(kinds)]
    rates = [rate.model_copy(update={"source": kind}) for rate, kind in zip(rates, kinds, strict=True)]
    curves = tuple(Efficiency(bound="memory", at=(1.0,), share=(share,)) for share in rates[1:])
    hardware = plain_machine(read=rates[0], efficiency=curves)
    known = {kind: Source(kind=kind, where=kind) for kind in kinds}
    found = CostModel(hardware.model_copy(update={"sources": {**hardware.sources, **known}})).price(task())
    return log(found.high / found.mid), log(found.mid / found.low)


def test_independent_errors_add_in_quadrature():
    both, one = slower("measured", "fitted"), slower("measured")
    assert both == pytest.approx([2**0.5 * each for each in one])
    assert slower("assumed", "measured") == pytest.approx(both)


def test_what_nobody_measured_is_one_ignorance():
    assert slower("assumed", "assumed") == pytest.approx([2 * each for each in slower("assumed")])


M2_MAX = {
    "f16": (7.89, 14.96), "q8_0": (14.04, 7.95), "q5_0": (12.2, 5.22), "q4_0": (23.89, 4.35), "q4_k": (17.55, 4.36),
    "q5_k": (12.26, 5.21), "q6_k": (11.62, 6.14),
}  # fmt: skip
"""Decode tokens/s of Llama-3.1-8B on its CPU by llama.cpp, and GiB of weights (ik_llama.cpp's discussions, 164)."""


@pytest.mark.parametrize("fmt", M2_MAX)
def test_a_host_that_nobody_measured_is_as_uncertain_as_engines_differ(fmt):
    """By classes alone four of seven formats were slower than the 90 % interval."""
    rate, size = M2_MAX[fmt]
    hardware = assemble(Parts("host", "Apple M2 Max", 32 * 2**30))
    moved = round(size * 2**30)
    name = hardware.devices[0].memory
    price = CostModel(hardware).price(task(bytes=moved, flops=moved, memories=(name,)))
    assert price.low <= 1 / rate <= price.high


def test_interpolation_is_linear_in_the_logarithm_and_constant_outside():
    curve = Efficiency(bound="memory", at=(1e2, 1e4), share=(figure(0.2), figure(0.8)))
    assert [interpolate(curve, at).value for at in (1.0, 1e2, 1e3, 1e4, 1e9)] == pytest.approx(
        [0.2, 0.2, 0.5, 0.8, 0.8]
    )


def test_l3_blend_follows_equation_4_14():
    device = plain_machine(cache_bytes=1000).devices[0]
    assert blended(device, 500).value == pytest.approx(3e10)
    assert blended(device, 4000).value == pytest.approx(0.25 * 3e10 + 0.75 * 1e10)
    machine = plain_machine(cache_bytes=10**6)
    attention = task(kind="attention")
    assert CostModel(machine, CostOptions(l3_blend=True)).price(attention).mid == pytest.approx(1e-4 / 3)
    assert CostModel(machine).price(attention).mid == pytest.approx(1e-4)


@pytest.mark.parametrize("seed", seeds(range(25), 8))
def test_bytes_bound_equals_linear_programming(seed):
    """min t: reads x_m with sum = total, x_m <= capacity, x_m <= bandwidth t, groups within their root's bandwidth."""
    rng = Random(seed)
    hardware = random_hardware(rng, dram=rng.randint(10**8, 10**9), vram=rng.randint(10**7, 10**9))
    bandwidths = [rng.uniform(1e9, 1e11), rng.uniform(1e9, 1e11)]
    shares = rng.choice([None, "dram"])
    memories = tuple(
        memory.model_copy(update={"bandwidth": figure(bandwidth), "shares": shares if memory.name == "vram" else None})
        for memory, bandwidth in zip(hardware.memories, bandwidths, strict=True)
    )
    slow = {"read": figure(1e3), "efficiency": ()}
    devices = tuple(device.model_copy(update=slow) for device in hardware.devices)
    hardware = hardware.model_copy(update={"memories": memories, "devices": devices})
    total = rng.randint(10**6, sum(memory.available for memory in memories))
    giga = [bandwidth / 1e9 for bandwidth in bandwidths]
    rows = [[1.0, 0.0, -giga[0]], [0.0, 1.0, -giga[1]]]
    rows += [[1.0, 1.0, -giga[0]]] if shares else []
    solved = linprog(
        [0, 0, 1], A_ub=rows, b_ub=[0.0] * len(rows), A_eq=[[1.0, 1.0, 0.0]], b_eq=[total / 1e9],
        bounds=[(0, memory.available / 1e9) for memory in memories] + [(0, None)],
    )  # fmt: skip
    assert bytes_bound(total, hardware) == pytest.approx(solved.fun, rel=1e-6)


def test_bytes_are_read_as_fast_as_all_users_together_where_that_was_measured_to_be_more():
    """Memories move between two measurements: devices that reach 20 GB/s together of 10 GB/s are not bounded by 10."""
    hardware = random_hardware(Random(1), dram=10**9, vram=100)
    slow = {"read": figure(1e3), "efficiency": ()}
    devices = tuple(device.model_copy(update=slow) for device in hardware.devices)
    dram, vram = (each.model_copy(update={"bandwidth": figure(1e10)}) for each in hardware.memories)
    joint = dram.model_copy(update={"joint": figure(2e10)})
    alone, together = (
        hardware.model_copy(update={"memories": (each, vram), "devices": devices}) for each in (dram, joint)
    )
    assert bytes_bound(10**9, alone) == pytest.approx(0.1)
    assert bytes_bound(10**9, together) == pytest.approx(0.05)


def test_more_bytes_than_all_memories_hold_have_no_finite_bound():
    hardware = random_hardware(Random(1), dram=100, vram=100)
    assert bytes_bound(201, hardware) == float("inf")


@pytest.mark.parametrize("seed", seeds(range(0, 60, 3), 7))
def test_predictions_are_ordered_add_up_and_stay_above_the_lower_bound(seed):
    split = random_split(seed)
    for k, _ in exhaustive(split.candidates(), split.evaluate).feasible:
        predicted = predict(split.placement(k), split.costs)
        for phase in (predicted.prefill, predicted.decode):
            assert phase.seconds.low <= phase.seconds.mid <= phase.seconds.high
            assert sum(term.seconds.mid for term in phase.terms) == pytest.approx(phase.seconds.mid, rel=1e-9)
        graph = lower(split.placement(k), mean_step(split.workload))
        work = [term for term in predicted.decode.terms if term.op not in (HANDOVER, JOIN, SUBMISSION)]
        assert sum(term.tasks for term in work) == len(graph.tasks)
        assert predicted.decode.seconds.mid == pytest.approx(split.seconds(k, mean_step(split.workload)), rel=1e-9)


def test_the_bound_holds_where_measured_shares_exceed_one():
    """Shares against a plain read may be above 1 in a measured record; the bound follows the best of them."""
    curve = Efficiency(bound="memory", at=(1.0,), share=(figure(1.2),))
    hardware = plain_machine(efficiency=(curve,))
    memories = tuple(m.model_copy(update={"bandwidth": figure(1e10)}) for m in hardware.memories)
    hardware = hardware.model_copy(update={"memories": memories[:1], "devices": hardware.devices[:1], "links": ()})
    split = random_split(4)
    split = replace(split, roles=roles(hardware), costs=CostModel(hardware))
    k = split.model.units
    for phase in (predict(split.placement(k), split.costs).prefill, predict(split.placement(k), split.costs).decode):
        assert 0 < phase.lower_bound <= phase.seconds.mid


@pytest.mark.parametrize("seed", seeds(range(0, 40, 4), 4))
def test_the_bound_holds_under_the_l3_blend(seed):
    split = random_split(seed)
    split = replace(split, costs=CostModel(split.roles.hardware, CostOptions(False, True)))
    for k, _ in exhaustive(split.candidates(), split.evaluate).feasible:
        decode = predict(split.placement(k), split.costs).decode
        assert decode.lower_bound <= decode.seconds.mid * (1 + 1e-9)


def test_the_interval_covers_the_bound_that_lost():
    """A launch floor close below a wide memory bound still limits how fast the task can be."""
    machine = plain_machine(read=figure(1e10, 0.5), launch=figure(9e-5))
    estimate = CostModel(machine).price(task())
    assert estimate.bound == "memory"
    assert estimate.low == pytest.approx(9e-5)


def test_only_bytes_scale_with_bandwidth():
    machine = plain_machine(overhead=figure(2e-3))
    assert CostModel(machine).price(task()).memory == pytest.approx(1e-4)
    bound = CostModel(machine).price(task(flops=10**9))
    assert bound.bound == "compute", "its bytes move with the memory all the same"
    assert bound.memory == pytest.approx(1e-4) and bound.compute == pytest.approx(bound.mid - 2e-3 - 1e-4)
    link = machine.link("dram", "vram")
    copied = CostModel(machine).price(task(kind="transfer", resource="h2d", bytes=8192))
    assert copied.memory == pytest.approx(8192 / link.bandwidth.value)


def curve(fmt, share, bound="memory"):
    return Efficiency(bound=bound, op="linear", format=fmt, at=(1.0,), share=(figure(share),))


@pytest.mark.parametrize(
    ("curves", "share", "source"),
    [
        ({"f16": 0.5, "q4_0": 0.25}, 0.25, "measured"),
        ({"f16": 0.5, "*": 0.4, "q8_0": 0.2}, 0.4, "measured"),
        ({"f16": 0.5, "q8_0": 0.2, "q4_k": 0.1}, 0.1, "assumed"),
        ({"f32": 0.9, "f16": 0.5}, 0.5, "assumed"),
        ({}, 1.0, "measured"),
    ],
)
def test_formats_that_were_not_measured_go_by_the_nearest(curves, share, source):
    machine = plain_machine(efficiency=tuple(curve(fmt, value) for fmt, value in curves.items()))
    machine = machine.model_copy(
        update={
            "sources": {key: value.model_copy(update={"kind": "measured"}) for key, value in machine.sources.items()}
        }
    )
    estimate = CostModel(machine).price(task(format="q4_0"))
    assert estimate.mid == pytest.approx(1e-4 / share)
    assert estimate.source == source


def test_peaks_that_were_not_measured_are_those_of_the_nearest_format():
    peaks = {"f32": 1e11, "f16": 4e11, "q8_0": 2e11}
    compute = tuple(Compute(phase="decode", format=fmt, flops=figure(value)) for fmt, value in peaks.items())
    device = plain_machine(compute=compute).devices[0]
    assert product_rate(device, "decode", "q4_0", 1) == 2e11
    assert product_rate(device, "decode", "q6_k", 1) == 2e11
    assert product_rate(device, "decode", "f16", 1) == 4e11


def test_several_sequences_attend_as_fast_as_one_with_a_cache_of_its_size() -> None:
    """Short caches are read slower than long ones: four of a kilobyte take four times as long as one."""
    curve = Efficiency(bound="memory", op="attention", format="f16", at=(1e3, 1e6), share=(figure(0.1), figure(1.0)))
    costs = CostModel(plain_machine(efficiency=(curve,)))
    one = task(kind="attention", op="attention", bytes=1000, flops=1000)
    several = one._replace(tokens=4, bytes=4000, flops=4000, sequences=4)
    assert costs.price(several).memory == pytest.approx(4 * costs.price(one).memory)
    assert costs.price(one).memory == pytest.approx(1000 / (0.1 * 1e10))
    on_host = several._replace(op="attention.host")
    assert costs.price(on_host).memory < costs.price(several).memory


def test_every_part_of_a_product_brings_all_inputs_into_its_form() -> None:
    """Half of the rows take half of the arithmetic, and all of the inputs; a single token has none to bring."""
    inputs = Efficiency(bound="inputs", op="linear", format="q8_0", at=(2.0, 256.0), share=(figure(0.1), figure(0.2)))
    quick = plain_machine(efficiency=(inputs,), elementwise=figure(1e10), read=figure(1e15))
    costs, bare = CostModel(quick), CostModel(plain_machine(elementwise=figure(1e10), read=figure(1e15)))
    whole = task(phase="prefill", tokens=256, format="q8_0", flops=10**9, columns=1000)
    half = whole._replace(flops=whole.flops // 2)
    took = 4 * 256 * 1000 / (0.2 * 1e10)
    for part in (whole, half):
        assert costs.price(part).mid == pytest.approx(bare.price(part).mid + took)
        assert costs.price(part).compute == pytest.approx(bare.price(part).compute + took)
    one = whole._replace(tokens=1)
    assert costs.price(one) == bare.price(one)
    plain = whole._replace(format="f16")
    assert costs.price(plain) == bare.price(plain)
    without = CostModel(quick, CostOptions(corrections=False))
    assert without.price(half).mid == pytest.approx(without.price(whole).mid / 2)


def test_the_probed_product_has_its_inputs() -> None:
    inputs = Efficiency(bound="inputs", op="linear", format="q8_0", at=(128.0,), share=(figure(0.1),))
    device = plain_machine(efficiency=(inputs,), elementwise=figure(1e10)).devices[0]
    rows, columns = PROBED
    work = task(phase="decode", tokens=128, format="q8_0", flops=2 * 128 * rows * columns, columns=columns, bytes=0)
    seconds = CostModel(plain_machine(efficiency=(inputs,), elementwise=figure(1e10))).price(work).mid
    assert product_rate(device, "decode", "q8_0", 128) == pytest.approx(work.flops / seconds)


def test_prompts_attend_as_fast_as_one_of_their_length() -> None:
    """By a curve of attention, which is measured of one prompt; one of every operation is of all tokens of a pass."""

    def seconds(op: str, count: int) -> float:
        shares = figure(0.1), figure(1.0)
        curve = Efficiency.model_validate({"bound": "compute", "op": op, "at": (64.0, 256.0), "share": shares})
        prompts = block_ops(load_model("Qwen3-0.6B"), 0, Iteration(0, "prefill", count, 64, 64), Formats())
        one = next(each for each in prompts if each.kind == "attention")
        amount = {"tokens": one.tokens, "flops": one.flops, "sequences": one.sequences}
        work = task(phase="prefill", kind="attention", op="attention", **amount)
        price = CostModel(plain_machine(efficiency=(curve,))).price(work)
        assert price.bound == "compute"
        return price.mid

    assert seconds("attention", 4) == pytest.approx(4 * seconds("attention", 1))
    assert seconds("*", 4) == pytest.approx(0.4 * seconds("*", 1))
