"""Redrawn figures: what is written, what is compared, what is refused."""

import csv
import json
from dataclasses import replace

import pytest
from benchmarks.papers import bars
from benchmarks.papers.__main__ import main, named
from benchmarks.papers.bars import one_peak
from benchmarks.papers.catalogue import figures
from benchmarks.papers.chart import Chart
from benchmarks.papers.figure import Axis, Drawing, Fact, Found, Series, Traces, compare
from benchmarks.papers.loads import OSC, lengths, with_output
from benchmarks.papers.serving import NEO, NEO_BY_APEX, SWIFT, VLLM, latency, load_at, outcome, run, served_by, steady
from benchmarks.papers.sites import T4, T4_RUN, host_share, pooled, replica

from helmsman.schemas.errors import BadInputError, UsageError

FACTS = {
    "A": Fact("Fig 1", "speed", 50.0, "tokens/s"),
    "B": Fact("Fig 1", "gain", 10.0, "%", "E-1"),
}


def drawn(traces: Traces) -> Drawing:
    series = (Series("ours", (1.0, 2.0), (40.0, 60.0)), Series("other", (1.0, 2.0), (None, 20.0)))
    return Drawing("made up", series, (Found("A", 40.0, 1.0, "ours"), Found("B", 12.0, None, "ours")))


def test_errors_are_relative_but_of_percentages():
    first, second, third = compare([Found("A", 40.0), Found("B", 12.0), Found("A", None)], FACTS)
    assert (first["error"], first["points"]) == (pytest.approx(-0.2), None)
    assert (second["error"], second["points"], second["doubt"]) == (None, 2.0, "E-1")
    assert third["ours"] is third["error"] is None


@pytest.mark.parametrize("kind", ["lines", "bars"])
def test_a_chart_becomes_rows_and_a_picture(kind):
    chart = Chart("x-1", "Fig 1", Axis("batch", base=2 if kind == "lines" else None), Axis("y"), FACTS, drawn, kind)
    made = chart.figure.make(Traces())
    assert made.rows[0] == {"panel": "", "series": "ours", "x": 1.0, "y": 40.0}
    assert made.rows[2]["y"] is None and len(made.rows) == 4
    [(name, picture)] = made.pictures
    stars = [line for line in picture.axes[0].lines if line.get_marker() == "*"]
    assert name == "x-1" and len(stars) == 1 and list(stars[0].get_ydata()) == [50.0]
    assert {text.get_text() for text in picture.legends[0].get_texts()} >= {"ours", "other", "published"}


def test_files_are_written(tmp_path, capsys):
    assert main(["gupta-7b", "--out", str(tmp_path / "new")]) == 0
    with (tmp_path / "new" / "gupta-7b.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    shares = {(row["series"], row["x"]): float(row["y"]) for row in rows}
    assert shares["Baseline", "all"] == pytest.approx(8.29, abs=0.01)
    assert (tmp_path / "new" / "gupta-7b.png").read_bytes().startswith(b"\x89PNG")
    assert "GUPTA-F064" in (tmp_path / "new" / "gupta-7b-published.csv").read_text()
    assert "GUPTA-F067" in capsys.readouterr().out


def test_every_figure_is_listed_once(capsys):
    assert main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in figures())


def test_a_paper_stands_for_its_figures():
    known = figures()
    assert {each.name for each in named("helm", known)} == {name for name in known if name.startswith("helm-")}
    with pytest.raises(UsageError, match="choose one of helm-4.4, "):
        named("nix", known)


@pytest.mark.parametrize("asked", [["nix"], [], ["gupta-7b", "--unknown"]])
def test_unknown_figures_are_refused(asked, capsys):
    assert main(asked) == 2
    assert "error" in capsys.readouterr().err


def test_a_missing_trace_is_named(tmp_path):
    assert Traces().file("azure.csv") is None
    with pytest.raises(BadInputError, match=r"azure\.csv"):
        Traces(tmp_path).file("azure.csv")


def test_lengths_are_those_of_the_trace_or_made_up(tmp_path):
    rows = [{"prompt": 10 * n, "max_tokens": n} for n in range(1, 6)]
    (tmp_path / OSC.file).write_text(json.dumps(rows))
    found = OSC.requests(Traces(tmp_path))
    assert list(found.prompt_tokens) == [10, 20, 30, 40, 50] and not found.arrival_s.any()
    assert list(with_output(found, 6).output_tokens) == [2, 4, 6, 8, 10]
    made_up = OSC.requests(Traces())
    assert len(made_up) == 2000
    assert made_up.prompt_tokens.min() >= round(0.9 * OSC.prompt) and made_up.output_tokens.mean() == pytest.approx(
        45, 0.02
    )


def test_hosts_are_as_slow_as_asked():
    slower = replace(T4, host_time=4.0)
    assert host_share(slower) == pytest.approx(host_share(T4) / 4)


def test_baselines_differ_in_how_they_make_room():
    """SwiftLLM keeps what it swaps out, vLLM computes it again; the same tokens come of both."""
    requests = lengths(200, 60, 120)
    swift, vllm, neo = (run(T4, system, requests) for system in (SWIFT, VLLM, NEO))
    assert swift.preemptions > 0 and vllm.preemptions > 0
    assert swift.activity.swapped_out > 0 and vllm.activity.swapped_out == 0
    assert swift.counts.finished == vllm.counts.finished == neo.counts.finished == 120
    assert neo.throughput.output_tokens > swift.throughput.output_tokens


def test_machines_pooled_take_as_long_for_as_much_more():
    one = replica(T4)
    eight = pooled(one, 8)
    assert eight.limits.gpu_tokens == 8 * one.limits.gpu_tokens and eight.limits.block == one.limits.block
    assert eight.cost.linear(8 * 300) == pytest.approx(one.cost.linear(300))
    assert eight.cost.cpu_attention(8 * 5000) == pytest.approx(one.cost.cpu_attention(5000))
    assert pooled(one, 1) == one


def test_a_run_gives_neo_a_layer_less():
    """54 blocks for the baseline, 52 for NEO (its server.py); what the planner finds to fit is the same for both."""
    assert served_by(T4_RUN, SWIFT).limits.gpu_tokens == 864
    assert served_by(T4_RUN, NEO).limits.gpu_tokens == 832
    assert served_by(T4, NEO) == served_by(T4, SWIFT)


def test_systems_have_kernels_of_their_own():
    one, slower = served_by(T4, NEO).cost, served_by(T4, NEO_BY_APEX).cost
    assert slower.cpu_attention(5000) == pytest.approx(2 * one.cpu_attention(5000))
    assert slower.gpu_attention == one.gpu_attention


def test_the_middle_of_a_run_has_neither_beginning_nor_end():
    requests = lengths(200, 20, 100)
    ends = sorted(outcome(T4, SWIFT, requests).served.finish_s)
    assert steady(T4, SWIFT, requests) == pytest.approx(40 / (ends[70] - ends[30]))


def test_load_is_where_latency_crosses():
    requests = lengths(200, 20, 100)
    load = load_at(T4, SWIFT, requests, 0.2)
    assert latency(T4, SWIFT, requests, load) <= 0.2 < latency(T4, SWIFT, requests, 1.02 * load)


@pytest.mark.parametrize(
    ("gains", "peak"),
    [
        ([0.0, 5.0, 9.0, 4.0, 1.0], True),
        ([0.0, 5.0, 4.5, 9.0, 1.0], True),  # within a point
        ([0.0, 5.0, 3.0, 9.0, 1.0], False),  # two peaks
        ([0.0, 2.0, 5.0, 9.0, 9.5], False),  # does not fall
        ([9.0, 5.0, 3.0, 2.0, 1.0], False),  # does not rise
    ],
)
def test_one_peak(gains, peak):
    assert one_peak(gains) is peak


def test_missed_bars_are_told(monkeypatch, capsys):
    monkeypatch.setattr(bars, "CHECKS", (lambda: iter([bars.Bar("gain", "+1 %", True)]),))
    assert bars.main() == 0
    monkeypatch.setattr(bars, "CHECKS", (lambda: iter([bars.Bar("gain", "-9 %", False)]),))
    assert bars.main() == 4
    assert "FAIL gain: -9 %" in capsys.readouterr().out
