"""Redrawn figures: what is written, what is compared, what is refused."""

import csv

import pytest
from benchmarks.papers.__main__ import main, named
from benchmarks.papers.catalogue import figures
from benchmarks.papers.chart import Chart
from benchmarks.papers.figure import Axis, Drawing, Fact, Found, Series, Traces, compare

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
