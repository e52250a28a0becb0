"""A profile on a virtual machine: what others take from a point, waits for quiet spells, repeats, wider spreads."""

from dataclasses import dataclass, field, replace
from statistics import median

import pytest
from test_profile import found, synthetic_profile

from helmsman.executor.profile.disturbance import DISTURBANCE, marked
from helmsman.executor.profile.handovers import BYTES, LARGE
from helmsman.executor.profile.prompts import FEW_ROWS, GEMM_SHAPE, Round, rates_of
from helmsman.executor.profile.quality import ATTEMPTS, LOOK_S, UNSTEADY, VISITS, MeasuredPoint, Session, Watch
from helmsman.executor.profile.record import record
from helmsman.executor.profile.samples import (
    BetweenPassesSamples,
    HandoverSamples,
    LinkSamples,
    UnsettledPoints,
)
from helmsman.executor.system.interference import CpuTimes, Moment, disturbance
from helmsman.schemas.figures import SHARES, SLOWINGS, Figure, disturbed_figure, undisturbed_figure
from helmsman.schemas.hardware import LEFT, Hardware
from helmsman.schemas.read import parse_document

CPUS = 2


@dataclass
class Machine:
    """Two processors, a clock that only work and sleep advance, and others that use a share of both at times.

    `load`: (from, to, share of all processor time); while we work both our threads run and wait as long as others
    run."""

    load: tuple[tuple[float, float, float], ...] = ()
    seconds: float = 0.0
    busy: float = 0.0
    own: float = 0.0
    waits: float = 0.0
    slept: float = 0.0
    ran: list[str] = field(default_factory=list)

    def now(self) -> Moment:
        times = CpuTimes(self.busy, CPUS * self.seconds, self.own)
        return Moment(self.seconds, times, {"first": 0.0, "second": self.waits})

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self._pass(seconds, working=False)

    def point(
        self, name: str, kept: dict, seconds: float = 0.5, group: str = "all", spread=lambda _: 0.0
    ) -> MeasuredPoint:
        def run() -> str:
            self.ran.append(name)
            self._pass(seconds, working=True)
            return f"{name}#{self.ran.count(name)}"

        def keep(samples: str, share: float) -> None:
            kept[name] = samples, share

        return MeasuredPoint(group, run, keep, spread)

    def _pass(self, seconds: float, working: bool) -> None:
        start, end = self.seconds, self.seconds + seconds
        others = sum(max(0.0, min(end, to) - max(start, at)) * share for at, to, share in self.load)
        self.seconds = end
        self.own += CPUS * (seconds - others) if working else 0.0
        self.busy += CPUS * seconds if working else CPUS * others
        self.waits += others if working else 0.0


def measure(machine: Machine, names: str = "abcd", **parts):
    kept, drops = {}, []
    session = Session(Watch(machine.now, machine.sleep), lambda: drops.append(1), **parts)
    session.take(machine.point(name, kept) for name in names)
    left = session.finish()
    assert left.unsteady == 0
    return kept, left.disturbed


def test_nobody_waits_on_a_quiet_machine():
    machine = Machine()
    kept, left = measure(machine)
    assert machine.ran == list("abcd") and machine.slept == LOOK_S and left == 0
    assert kept == {name: (f"{name}#1", 0.0) for name in "abcd"}


def test_a_quiet_spell_is_waited_for():
    machine = Machine(load=((0.0, 1.4, 0.3),))
    _, left = measure(machine)
    assert machine.ran == list("abcd") and left == 0
    assert 1.4 <= machine.slept <= 1.4 + 2 * LOOK_S


def test_disturbed_points_are_measured_again_and_only_those():
    """The load comes while `b` runs, and is gone two seconds later."""
    machine = Machine(load=((0.8, 2.6, 0.4),))
    kept, left = measure(machine)
    assert machine.ran == list("abcdb") and left == 0
    assert kept["b"] == ("b#2", 0.0) and kept["a"] == ("a#1", 0.0)


def test_the_least_disturbed_attempt_counts_and_its_disturbance_is_kept():
    machine = Machine(load=((0.0, 9.0, 0.25), (9.0, 1000.0, 0.5)))
    kept, left = measure(machine, "a")
    assert machine.ran == ["a"] * ATTEMPTS and left == 1
    assert kept["a"][0] in ("a#1", "a#2")
    assert kept["a"][1] == pytest.approx(0.25, abs=0.05)


def test_a_point_whose_samples_lie_apart_is_measured_again():
    """Nobody took processor time from it: the second attempt is a little steadier, the third as it should be."""
    machine, kept = Machine(), {}
    spread = {"a#1": 3 * UNSTEADY, "a#2": 2 * UNSTEADY, "a#3": UNSTEADY / 2}
    session = Session(Watch(machine.now, machine.sleep), lambda: None)
    session.take([machine.point("a", kept, spread=spread.get), machine.point("b", kept)])
    assert session.finish() == UnsettledPoints()
    assert machine.ran == list("abaa")
    assert kept == {"a": ("a#3", 0.0), "b": ("b#1", 0.0)}


def slow_in_spell(machine: Machine, spell: tuple[float, float], kept: dict, seconds: float = 0.5) -> MeasuredPoint:
    """A point of several visits whose rate is half in a spell of which nothing is to be seen: nobody takes processor
    time, and within a visit all is steady."""

    def more(before: list[float]) -> list[float]:
        rate = 0.5 if spell[0] <= machine.seconds < spell[1] else 1.0
        machine.ran.append("visit")
        machine._pass(seconds, working=True)
        return [*before, rate, rate]

    def keep(samples: list[float], share: float) -> None:
        kept["rates"] = samples, share

    return MeasuredPoint("rates", lambda: more([]), keep, more=more)


@pytest.mark.parametrize("spell", [(0.0, 0.6), (0.6, 1.6), (2.0, 2.4), (9.0, 9.5)])
def test_a_slow_spell_is_not_most_of_a_point(spell: tuple[float, float]) -> None:
    machine, kept = Machine(), {}
    session = Session(Watch(machine.now, machine.sleep), lambda: None)
    session.take([slow_in_spell(machine, spell, kept), *(machine.point(name, kept) for name in "ab")])
    assert session.finish() == UnsettledPoints()
    rates, share = kept["rates"]
    assert machine.ran.count("visit") == VISITS and len(rates) == 2 * VISITS
    assert median(rates) == 1.0 and share == 0.0


def test_visits_are_made_without_a_budget_and_a_disturbed_point_is_measured_whole_again() -> None:
    machine, kept = Machine(), {}
    session = Session(Watch(machine.now, machine.sleep), lambda: None, budget=0.0)
    session.take([slow_in_spell(machine, (0.0, 0.0), kept)])
    session.finish()
    assert machine.ran.count("visit") == VISITS
    machine, kept = Machine(load=((0.0, 3.6, 0.4),)), {}
    session = Session(Watch(machine.now, machine.sleep), lambda: None)
    session.take([slow_in_spell(machine, (0.0, 0.0), kept)])
    assert session.finish() == UnsettledPoints()
    rates, share = kept["rates"]
    assert len(rates) == 2 * VISITS and share == 0.0


NO_BYTES = 0, 0


def of_arithmetic(seconds: dict[int, tuple[float, float]]) -> Round:
    """Products whose bytes take nothing."""
    return Round(seconds, 1.0)


def test_products_of_few_tokens_are_at_the_usual_speed_of_the_memory() -> None:
    """Two rounds of six met a memory of half its speed, one a core of half its speed: all say the same."""
    rows, part, size = GEMM_SHAPE[0], FEW_ROWS[0] / GEMM_SHAPE[0], 1 << 23
    arithmetic = {2: 0.0, 4: 1e-4, 128: 1e-2}

    def seconds(tokens: int, read: float, slow: float) -> tuple[float, float]:
        whole = size / read + slow * arithmetic[tokens]
        return whole, part * whole

    speeds = [(30e9, 1.0), (15e9, 1.0), (30e9, 1.0), (15e9, 1.0), (30e9, 2.0), (30e9, 1.0)]
    sizes = (size, round(part * size))
    rounds = [Round({tokens: seconds(tokens, *each) for tokens in arithmetic}, each[0]) for each in speeds]
    for tokens, (flops, _) in rates_of(rounds, sizes, 30e9).items():
        usual = size / 30e9 + arithmetic[tokens]
        assert flops == pytest.approx([2 * tokens * rows * GEMM_SHAPE[1] / usual] * 6, rel=0.05), tokens


def test_products_of_prompts_are_parts_of_the_median_over_visits() -> None:
    """One visit of three was half as fast: rates are those of the others, and parts of a round stay what they were."""
    wide, few, inputs = GEMM_SHAPE[0], FEW_ROWS[0], {2: 3e-6, 128: 1e-4}

    def seconds(tokens: int, rows: int) -> float:
        return 1e-8 * tokens * rows + inputs[tokens]

    slow = (2.0, 2.0, 1.0, 1.0, 0.9, 1.0)
    rounds = [
        of_arithmetic({tokens: (each * seconds(tokens, wide), each * seconds(tokens, few)) for tokens in inputs})
        for each in slow
    ]
    for tokens, (flops, rates) in rates_of(rounds, NO_BYTES, 1.0).items():
        assert flops == pytest.approx([2 * GEMM_SHAPE[1] / 1e-8] * 6)
        assert rates == pytest.approx([4 * tokens * GEMM_SHAPE[1] / inputs[tokens]] * 6)


def test_an_interrupted_product_does_not_make_the_others_of_its_round_fast() -> None:
    rounds = [of_arithmetic({2: (1e-3, 1e-4), 128: (1e-2 * late, 1e-3)}) for late in (1.0, 300.0)]
    [(flops, _), *_] = rates_of(rounds, NO_BYTES, 1.0).values()
    assert max(flops) < 4 * (2 * 2 * GEMM_SHAPE[0] * GEMM_SHAPE[1] / 1e-3)


def test_inputs_that_take_nothing_are_not_less_than_nothing() -> None:
    """A part of the rows that takes less than its part of the time, as noise has it."""
    flops, rates = rates_of([of_arithmetic({8: (1.6e-3, 0.9e-4)})] * 3, NO_BYTES, 1.0)[8]
    assert flops == pytest.approx([2 * 8 * GEMM_SHAPE[0] * GEMM_SHAPE[1] / 1.6e-3] * 3, rel=1e-4)
    assert min(rates) > 1e12


def test_what_stayed_unsteady_is_told_apart_from_what_others_disturbed():
    machine, kept = Machine(load=((0.25, 0.75, 0.4),)), {}
    session = Session(Watch(machine.now, machine.sleep), lambda: None, budget=0.0)
    points = [
        machine.point(name, kept, spread=lambda _, apart=apart: apart) for name, apart in (("a", 0.1), ("b", 0.2))
    ]
    session.take(points)
    assert session.finish() == UnsettledPoints(disturbed=1, unsteady=1)


def test_links_say_how_far_their_samples_lie_apart():
    """Of a neighbour on the same memory, who takes no processor time here."""
    calm, shaken = (LinkSamples(rate=rates) for rates in ([1.0, 1.0, 1.02, 1.0], [1.0, 1.0, 0.5, 0.6]))
    assert calm.spread < UNSTEADY < shaken.spread


def test_what_is_beside_every_point_is_of_all_visits_and_points_of_several_are_kept_last() -> None:
    machine, kept, moments = Machine(), {}, []
    session = Session(Watch(machine.now, machine.sleep), lambda: None, beside=lambda: moments.append(machine.seconds))
    session.take([slow_in_spell(machine, (0.0, 0.0), kept), machine.point("a", kept)])
    session.finish()
    assert len(moments) == 2 + VISITS - 1 and moments == sorted(moments)
    assert list(kept) == ["a", "rates"]


def test_nothing_is_measured_again_after_the_budget():
    machine = Machine(load=((0.0, 1000.0, 0.25),))
    kept, left = measure(machine, "abcd", budget=15.0)
    assert machine.seconds <= 15.0 and left == 4 and set(kept) == set("abcd")
    assert len(machine.ran) < 4 * ATTEMPTS


def test_first_waits_are_bounded_together():
    machine = Machine(load=((0.0, 1e6, 0.5),))
    measure(machine, "abcdefghijklmnop", budget=0.0)
    assert machine.slept <= 15.0 and len(machine.ran) == 16


def moments(seconds=0.5, others=0.0, waited=0.0, own=1.0):
    before = Moment(10.0, CpuTimes(5.0, 20.0, 1.0), {"a": 0.1, "b": 0.2})
    times = CpuTimes(5.0 + own + others, 20.0 + CPUS * seconds, 1.0 + own)
    return before, Moment(10.0 + seconds, times, {"a": 0.1, "b": 0.2 + waited})


def test_waits_for_our_own_threads_are_no_disturbance():
    assert disturbance(*moments(waited=0.4)) == 0.0
    assert disturbance(*moments(waited=0.4, others=0.11)) == pytest.approx(0.2)


def test_a_wait_on_one_processor_holds_up_all():
    assert disturbance(*moments(waited=0.1, others=0.12)) == pytest.approx(0.2)


def test_others_beside_us_count_by_their_share_of_all_processors():
    assert disturbance(*moments(others=0.31)) == pytest.approx(0.3)


def test_one_clock_tick_is_no_disturbance():
    assert disturbance(*moments(seconds=0.02, others=0.01, own=0.03)) == pytest.approx(0.0, abs=1e-9)


def test_a_system_that_says_nothing_disturbs_nothing():
    assert disturbance(Moment(0.0), Moment(1.0)) == 0.0


def test_a_spread_widens_by_what_others_took_and_narrows_back():
    figure = Figure(value=10.0, p10=9.0, p90=11.0, n=5, source="measured")
    wider = disturbed_figure(figure, 0.2)
    assert (wider.value, wider.p10, wider.p90, wider.disturbed) == pytest.approx((10.0, 7.2, 13.75, 0.2))
    back = undisturbed_figure(wider)
    assert (back.p10, back.p90, back.disturbed) == (pytest.approx(9.0), pytest.approx(11.0), None)


def test_only_disturbed_figures_of_a_record_are_wider_and_say_so():
    profile = synthetic_profile()
    samples = replace(profile.processors[0].samples)
    samples.disturbed = {
        ("linear", "bf16", 10**6): 0.3,
        ("gemm f32", "bf16", 128): 0.05,
        ("linear", "f16", 10**6): 0.02,
    }
    processors = (replace(profile.processors[0], samples=samples), *profile.processors[1:])
    profile = replace(profile, processors=processors)
    profile.links["h2d"].disturbed = 0.5
    plain = record(profile)
    hardware = marked(plain, profile)
    disturbed = [
        (device.name, curve.op, curve.format, at, share.disturbed)
        for device in hardware.devices
        for curve in device.efficiency
        for at, share in zip(curve.at, curve.share, strict=True)
        if share.disturbed
    ]
    assert disturbed == [("cpu", "linear", "bf16", 10.0**6, 0.3)]
    assert hardware.device("cpu").read == plain.device("cpu").read
    assert hardware.link("dram", "vram").bandwidth.disturbed == 0.5
    assert hardware.link("vram", "dram") == plain.link("vram", "dram")
    assert found(hardware, DISTURBANCE, "cpu", of="linear", format="bf16", bytes=10**6).value == 0.3
    assert found(hardware, DISTURBANCE, "h2d", of="copy").value == 0.5
    assert parse_document(Hardware, hardware.to_json().encode(), "record") == hardware


def test_all_that_a_disturbed_hand_over_says_is_wider():
    ends = {name: [1e-6, 2e-6, 3e-6] for name in ("cpu", "loopback")}
    lanes = {name: [25e-6, 26e-6, 27e-6] for name in ("h2d", "d2h")}
    taken = {(link, name, size): [(1e-5, 4e-5)] * 5 for link in lanes for name in ends for size in (BYTES, LARGE)}
    calm = HandoverSamples(2e-5, ends, ends, ends, lanes, lanes, lanes, taken)
    for share, marks in ((0.02, {None}), (0.4, {0.4})):
        profile = synthetic_profile(handovers=replace(calm, disturbed=share))
        hardware = marked(record(profile), profile)
        link = hardware.link("dram", "vram")
        interrupts = [getattr(each, size) for each in link.interrupts.values() for size in ("small", "large")]
        figures = [link.overhead, link.handover, hardware.device("cpu").join, *interrupts]
        assert {each.disturbed for each in figures} == marks


def test_what_copies_take_beside_much_other_work_is_still_a_record():
    """Work stood still in most of its time, and others took nine tenths: more than any record may say."""
    ends = {name: [1e-6] for name in ("cpu", "loopback")}
    lanes = {name: [25e-6] for name in ("h2d", "d2h")}
    taken = {(link, name, size): [(4e-5, 4e-5)] * 5 for link in lanes for name in ends for size in (BYTES, LARGE)}
    profile = synthetic_profile(
        handovers=HandoverSamples(2e-5, ends, ends, ends, lanes, lanes, lanes, taken, disturbed=0.9)
    )
    for processor in profile.processors:
        processor.samples.disturbed = {("linear", "bf16", 10**6): 0.9}
    hardware = marked(record(profile), profile)
    assert hardware.link("dram", "vram").interrupts["cpu"].large.p90 == SLOWINGS[1]
    assert parse_document(Hardware, hardware.to_json().encode(), "record") == hardware


@pytest.mark.parametrize("limits", [SHARES, SLOWINGS])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_wider_spread_ends_where_figures_of_its_kind_do(limits, share):
    for value in (limits[0], 1.0, limits[1]):
        wider = disturbed_figure(Figure(value=value, p10=value, p90=value, source="measured"), share, limits)
        assert limits[0] <= wider.p10 <= wider.value == value <= wider.p90 <= limits[1]


def test_a_record_says_how_many_points_stayed_disturbed_or_unsteady():
    profile = replace(synthetic_profile(), left=UnsettledPoints(disturbed=2, unsteady=1))
    hardware = marked(record(profile), profile)
    left = [found(hardware, LEFT, "cpu-all", of=of).value for of in ("disturbed", "unsteady")]
    assert left == [2.0, 1.0]


def test_reads_are_disturbed_as_far_as_their_samples_are():
    profile = synthetic_profile()
    for processor in profile.processors:
        processor.samples.reads_disturbed = [0.0, 0.0, 0.3, 0.3, 0.3]
    hardware = marked(record(profile), profile)
    assert hardware.device("cpu").read.disturbed == pytest.approx(0.18)
    assert hardware.memory("dram").bandwidth.disturbed == pytest.approx(0.18)


def test_a_disturbed_time_between_passes_is_wider_and_says_so():
    profile = synthetic_profile()
    alone = replace(profile, between_passes=BetweenPassesSamples({("cpu", 1): [1e-4, 1.1e-4, 1.2e-4]}))
    beside = replace(alone, between_passes=replace(alone.between_passes, disturbed=0.5))
    calm, wide = (marked(record(each), each).between_passes.begin["cpu"] for each in (alone, beside))
    assert calm.disturbed is None and wide.disturbed == 0.5
    assert wide.value == calm.value and wide.p90 == pytest.approx(2.0 * calm.p90)
