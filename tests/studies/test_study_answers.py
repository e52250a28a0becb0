"""What rows say, against enumeration: the best, the cheapest, the front, formats, upgrades, costs."""

from itertools import product
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helmsman.schemas.study import Study
from helmsman.schemas.study_row import StudyRow
from helmsman.studies.questions.read_study import study_of
from helmsman.studies.summary.answers import best_settings, cheapest, format_choices, front, upgrades
from helmsman.studies.summary.costs import judged
from helmsman.studies.summary.ranking import RowRanking, rankings_of

MACHINES = ("a", "b", "c")
CHANGES = ("as it is", "vram=x2")
FORMATS = ("q4_k", "q8_0", "f16")


def row(**values: Any) -> StudyRow:
    of: dict[str, Any] = {
        "key": "0" * 64,
        "model": "m",
        "machine": "a",
        "change": "as it is",
        "strategy": "layer-split",
        "format": "q4_k",
        "kv_format": "f16",
        "objective": "request",
        "prompt_tokens": 128,
        "output_tokens": 100,
        "context": 228,
        "batch": 1,
        "status": "fits",
        "prices": "prices",
    }
    return StudyRow(**{**of, **values})


def ranked(of: Study, rows: list[StudyRow]) -> RowRanking:
    """The ranking of rows that have one scenario."""
    [ranking] = rankings_of(of, [judged(of, entry) for entry in rows])
    return ranking


def study(**values: Any) -> Study:
    return study_of({"models": ["m"], "machines": list(MACHINES), **values})


ROWS = st.lists(
    st.builds(
        lambda machine, change, fmt, seconds, ttft: row(
            machine=machine,
            change=change,
            format=fmt,
            request_s=seconds,
            ttft_s=ttft,
            step_s=0.01,
            status="fits" if seconds else "does-not-fit",
            missing=None if seconds else "memory",
        ),
        st.sampled_from(MACHINES),
        st.sampled_from(CHANGES),
        st.sampled_from(FORMATS),
        st.none() | st.sampled_from((1.0, 2.0, 3.0, 5.0)),
        st.sampled_from((0.5, 1.5)),
    ),
    min_size=1,
    max_size=12,
)
PRICES = {"machines": {"a": 1000.0, "b": 500.0}, "changes": {"vram=x2": 200.0}}


@given(rows=ROWS, limited=st.booleans())
def test_the_best_setting_of_a_place_is_that_of_enumeration(rows: list[StudyRow], limited: bool) -> None:
    asked_of = study(slo="ttft=1s") if limited else study()
    rows = [entry.model_copy(update={"slo": "ttft=1s" if limited else None}) for entry in rows]
    ranking = ranked(asked_of, rows)
    settings_by_place = {(entry.machine, entry.change): entry for entry in best_settings(ranking)}
    assert settings_by_place.keys() == {(entry.machine, entry.change) for entry in rows}
    for place, entry in settings_by_place.items():
        good = [
            other.request_s
            for other in rows
            if (other.machine, other.change) == place and other.request_s and (not limited or other.ttft_s == 0.5)
        ]
        chosen = None if entry.row is None else rows[entry.row].request_s
        assert chosen == min(good, default=None)
        assert entry.missing is None if good else entry.missing


@given(rows=ROWS)
def test_the_cheapest_and_the_front_are_those_of_enumeration(rows: list[StudyRow]) -> None:
    priced = study(prices=PRICES, slo="ttft=1s")
    ranking = ranked(priced, [entry.model_copy(update={"slo": "ttft=1s"}) for entry in rows])
    costs = [
        (entry.cost, entry.request_s)
        for entry in ranking.rows
        if entry.cost is not None and entry.request_s is not None and entry.ttft_s == 0.5
    ]
    assert len(costs) == sum(row.machine != "c" and bool(row.request_s) and row.ttft_s == 0.5 for row in rows)
    assert [ranking.rows[number].cost for number in cheapest(ranking)] == ([min(costs)[0]] if costs else [])
    beaten = {one for one, other in product(costs, costs) if other != one and other[0] <= one[0] and other[1] <= one[1]}
    assert [(ranking.rows[number].cost, ranking.rows[number].request_s) for number in front(ranking)] == sorted(
        set(costs) - beaten
    )


@given(rows=ROWS)
def test_the_most_precise_format_that_is_good_is_chosen(rows: list[StudyRow]) -> None:
    of = study(slo="ttft=1s", formats=list(FORMATS))
    named = {"slo": "ttft=1s", "model": "Qwen3-0.6B"}
    ranking = ranked(of, [entry.model_copy(update=named) for entry in rows])
    for choice in format_choices(ranking):
        good = [
            FORMATS.index(entry.format or "")
            for entry in rows
            if (entry.machine, entry.change) == (choice.machine, choice.change)
            and entry.request_s
            and entry.ttft_s == 0.5
        ]
        assert FORMATS.index(choice.format) == max(good) and rows[choice.row].format == choice.format


def test_upgrades_are_beside_the_machine_as_it_is() -> None:
    of = study(prices=PRICES, changes=["as it is", "vram=x2", "link=x2"])
    rows = [
        row(request_s=4.0, ttft_s=1.0, step_s=0.1),
        row(request_s=2.0, ttft_s=1.0, step_s=0.1, change="vram=x2"),
        row(request_s=1.0, ttft_s=1.0, step_s=0.1, change="link=x2"),
        row(status="does-not-fit", machine="b", missing="1 GB"),
        row(request_s=2.0, ttft_s=1.0, step_s=0.1, machine="b", change="vram=x2"),
    ]
    listed = upgrades(ranked(of, rows))
    assert [(entry.machine, entry.change, entry.times, entry.price) for entry in listed] == [
        ("a", "vram=x2", 2.0, 200.0),
        ("a", "link=x2", 4.0, None),
        ("b", "vram=x2", None, 200.0),
    ]
    assert listed[0].per_price == pytest.approx(1 / 200)


def test_a_million_tokens_cost_what_the_machine_and_its_energy_do() -> None:
    prices = {**PRICES, "years": 2.0, "used": 0.5, "watts": {"a": 300.0}, "energy": 0.4}
    answer = judged(study(prices=prices), row(request_s=10.0, ttft_s=1.0, step_s=0.1, batch=4))
    seconds = 1e6 / (4 * 100 / 10.0)
    owning = 1000.0 * seconds / (2 * 365.25 * 86400 * 0.5)
    energy = 0.3 * seconds / 3600 * 0.4
    assert answer.price == 1000.0 and answer.cost == pytest.approx(owning + energy)
    assert judged(study(prices=prices), row(request_s=10.0, ttft_s=1.0, step_s=0.1, machine="c")).cost is None


@pytest.mark.parametrize(
    ("slo", "kept"),
    [
        ("ttft=1s", True),
        ("ttft=0.5s", False),
        ("tpot=100ms", True),
        ("tpot=99ms", False),
        ("e2e=10s", True),
        ("per-token=0.05s", False),
    ],
)
def test_one_request_keeps_every_limit_of_an_slo_or_misses_it(slo: str, kept: bool) -> None:
    ranking = ranked(study(slo=slo), [row(request_s=10.0, ttft_s=1.0, step_s=0.1, slo=slo)])
    assert ranking.rows[0].keeps_slo is kept
    assert ranking.goodness(0) == (0.1 if kept else -inf)


def test_what_costs_nothing_is_cheapest_and_the_first_upgrade() -> None:
    of = study(prices={"machines": {"a": 0.0, "b": 100.0}, "changes": {"vram=x2": 0.0, "link=x2": 100.0}})
    rows = [
        row(request_s=4.0, ttft_s=1.0, step_s=0.1),
        row(request_s=4.0, ttft_s=1.0, step_s=0.1, machine="b"),
        row(request_s=3.0, ttft_s=1.0, step_s=0.1, change="link=x2"),
        row(request_s=2.0, ttft_s=1.0, step_s=0.1, change="vram=x2"),
    ]
    ranking = ranked(of, rows)
    assert cheapest(ranking) == (3,) and front(ranking)[0] == 3
    assert [entry.change for entry in upgrades(ranking)] == ["vram=x2", "link=x2"]


def test_tokens_after_the_first_are_not_judged_where_there_are_none() -> None:
    limits = "ttft=2s,tpot=1ms"
    answer = judged(study(slo=limits), row(request_s=1.0, ttft_s=1.0, step_s=0.1, output_tokens=1, slo=limits))
    assert answer.keeps_slo is True


@given(rows=ROWS)
def test_answers_are_compared_under_the_same_circumstances_only(rows: list[StudyRow]) -> None:
    """Rows of two lengths, two SLOs and two sets of prices: conclusions are those of each combination by itself."""
    prices = [{"name": "new", **PRICES}, {"name": "used", "machines": {"a": 300.0, "b": 400.0}}]
    of = study(prices=prices, slo=["ttft=1s", "ttft=9s"], prompt_tokens=[128, 512])
    circumstances = list(product((128, 512), ("ttft=1s", "ttft=9s"), ("new", "used")))
    mixed = [
        entry.model_copy(update={"prompt_tokens": tokens, "slo": slo, "prices": name})
        for tokens, slo, name in circumstances
        for entry in rows
    ]
    judged_rows = [judged(of, entry) for entry in mixed]
    rankings = rankings_of(of, judged_rows)
    assert [(one.scenario.prompt_tokens, one.scenario.slo, one.scenario.prices) for one in rankings] == circumstances
    for number, ranking in enumerate(rankings):
        first = number * len(rows)
        [alone] = rankings_of(of, judged_rows[first : first + len(rows)])
        assert [entry.row - first for entry in best_settings(ranking) if entry.row is not None] == [
            entry.row for entry in best_settings(alone) if entry.row is not None
        ]
        assert tuple(row - first for row in cheapest(ranking)) == cheapest(alone)
        assert tuple(row - first for row in front(ranking)) == front(alone)
        assert {entry.scenario for entry in (*best_settings(ranking), *upgrades(ranking))} == {number}
