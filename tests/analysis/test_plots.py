"""Pictures: what they show is what was measured, simulated or searched; nothing in them overlaps."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from random import Random

import numpy as np
import pytest
from matplotlib.text import Text
from op_plans import make_op_split_plan
from op_tables import OPS, published
from plans import make_hardware
from shapes import small_model
from splits import with_storage

from helmsman.analysis.plots.blocks import Chart, ChartRow, ChartSpan, chart, layer_period
from helmsman.analysis.plots.gantt import Heading, gantt
from helmsman.analysis.plots.picture import image, image_format, ink_on, lighter
from helmsman.analysis.plots.split_curve import Names, split_curve
from helmsman.analysis.plots.split_panels import draw_split_curve
from helmsman.cli import plan as helm_plan
from helmsman.cli import sim as helm_sim
from helmsman.lowering.lower import lower
from helmsman.planner.strategies.op_split.layer_table import chunked
from helmsman.planner.strategies.op_split.search import SearchOptions, search
from helmsman.planner.strategies.streaming.division import DivisionPiece
from helmsman.scheduler.iteration import decode
from helmsman.schemas.errors import UsageError
from helmsman.schemas.trace import Span
from helmsman.simulator.replay import replay, spans

MS = 1e-3
HEADING = Heading("cpu[norm1..v] loopback[scores..up] cpu[down]", "small model")
NAMES = Names("cuda[norm1..norm2] cpu[up..down]", "published tables", "L", "GPU")
PAPER_OPS = ("norm1", "q", "k", "v", "scores", "softmax", "wv", "o", "norm2", "up", "down")


def span(task: str, op: str, lane: str, start: float, end: float, layer: int = 5) -> Span:
    """Milliseconds."""
    return Span(0, "simulated", f"3/{layer}.{task}", 3, 0, "decode", layer, op, lane, start * MS, end * MS, 1, 0.0)


def every_row() -> list[Span]:
    """A layer of 10 ms with something in every row, and weights of the next."""
    return [
        span("q:0-4", "q", "cpu", 100, 104),
        span("q:4-8", "q", "loopback", 104, 105),
        span("scores", "scores", "loopback", 105, 107),
        span("down", "down", "cpu", 107, 110),
        span("o.weights@h2d", "o.weights", "h2d", 98, 101),
        span("keys@h2d", "keys", "h2d", 101, 103),
        span("hidden@h2d", "hidden", "h2d:activations", 104, 104.5),
        span("up.weights@s2d-fast", "up.weights", "s2d-fast", 100, 103),
        span("up.weights.decompress", "up.weights.decompress", "loopback", 103, 104),
        span("kv@d2h", "kv", "d2h", 106, 107),
        span("o.weights@h2d", "o.weights", "h2d", 105, 112, layer=6),
        span("norm1", "norm1", "cpu", 120, 121, layer=7),
    ]


def test_rows_are_those_of_the_paper_and_blocks_lie_at_their_times() -> None:
    found = chart(every_row(), with_storage(make_hardware(), "fast"), range(5, 6))
    assert found.seconds == pytest.approx(10 * MS)
    rows = {
        row.name: [(block.name, *(round(t / MS, 6) for t in (block.start, block.end))) for block in row.tracks[0]]
        for row in found.rows
    }
    assert rows == {
        "CPU": [("Q", 0, 4), ("FC.1", 7, 10)],
        "H2D (weights)": [("Output", -2, 1), ("Output", 5, 12)],
        "H2D (cache)": [("Keys", 1, 3)],
        "H2D (activations)": [("hidden", 4, 4.5)],
        "Storage (fast)": [("FC.0", 0, 3)],
        "Decompression": [("FC.0", 3, 4)],
        "Accelerator": [("Q", 4, 5), ("Scores", 5, 7)],
        "D2H": [("KV", 6, 7)],
    }
    assert list(rows) == [
        "CPU", "H2D (weights)", "H2D (cache)", "H2D (activations)", "Storage (fast)", "Decompression",
        "Accelerator", "D2H",
    ]  # fmt: skip
    weights = found.rows[1].tracks[0]
    assert [(block.layer, block.inside) for block in weights] == [(5, True), (6, False)]
    assert found.rows[0].tracks[0][0].chunk == (0, 4)


def test_a_row_has_as_many_tracks_as_things_happen_at_once() -> None:
    both = [span("q", "q", "cpu", 0, 4), span("kv@d2h", "kv", "d2h", 0, 2), span("o@d2h", "o", "d2h:activations", 1, 3)]
    rows = chart(both, make_hardware(), range(5, 6)).rows
    assert [(row.name, len(row.tracks)) for row in rows] == [("CPU", 1), ("D2H", 2)]


def test_the_chart_goes_on_until_the_next_layer_starts() -> None:
    waits = [span("norm1", "norm1", "cpu", 115, 116, layer=6), span("q", "q", "cpu", 109, 109.5, layer=4)]
    assert chart(
        [*every_row()[:7], *every_row()[9:], *waits[1:]], make_hardware(), range(5, 6)
    ).seconds == pytest.approx(10 * MS)
    assert chart([*every_row()[:7], *every_row()[9:], *waits], make_hardware(), range(5, 6)).seconds == pytest.approx(
        15 * MS
    )


def test_batches_are_told_apart_and_what_they_share_is_not() -> None:
    both = [
        span("q.weights@h2d", "q.weights", "h2d", 0, 1),
        span("q", "q", "loopback", 0, 1),
        span("q#1", "q", "loopback", 1, 2),
        span("o.weights.decompress", "o.weights.decompress", "loopback", 1, 2),
    ]
    weights, expansions, work = (row.tracks[0] for row in chart(both, make_hardware(), range(5, 6)).rows)
    assert [block.batch for block in (*weights, *expansions)] == [None, None]
    assert [block.batch for block in work] == [0, 1]
    assert chart(both[:2], make_hardware(), range(5, 6)).rows[1].tracks[0][0].batch is None


def test_the_period_is_from_layer_to_layer_in_the_middle() -> None:
    """Layers of 4 ms that begin every 3 ms, the first two and the last two later than that."""
    begins = [0, 5, 10, 13, 16, 19, 22, 30]
    every = [span("q", "q", "cpu", at, at + 4, layer=layer) for layer, at in enumerate(begins)]
    every += [span("q.weights@h2d", "q.weights", "h2d", 0, 1, layer=layer) for layer in range(8)]
    assert layer_period(every, make_hardware()) == pytest.approx(3 * MS)
    assert layer_period(every[:2], make_hardware()) == pytest.approx(5 * MS)
    assert layer_period(every[:1], make_hardware()) is None


def test_layers_that_were_not_computed_are_refused() -> None:
    with pytest.raises(UsageError, match="0 to 7"):
        chart(every_row(), make_hardware(), range(9, 10))


def test_the_chart_draws_every_block_in_its_row() -> None:
    found = chart(every_row(), with_storage(make_hardware(), "fast"), range(5, 6))
    axes = gantt(found, HEADING).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.name for row in found.rows]
    drawn = {(round(box.get_x(), 6), round(box.get_width(), 6), int(box.get_y())) for box in axes.patches}
    wanted = {
        (round(block.start / MS, 6), round((block.end - block.start) / MS, 6), top)
        for top, row in enumerate(found.rows)
        for block in row.tracks[0]
    }
    assert drawn == wanted
    assert axes.get_xlim() == pytest.approx((0, 10)) and axes.get_xlabel() == "ms"


def overlaps(boxes) -> list[tuple[object, object]]:
    return [(a, b) for (a, one), (b, other) in combinations(boxes, 2) if one.overlaps(other)]


def check_readable(figure) -> None:
    """Labels overlap neither one another nor blocks that are not theirs; the legend and captions are outside."""
    axes = figure.axes[0]
    texts = [(text.get_text(), text.get_window_extent()) for text in axes.texts]
    assert overlaps(texts) == []
    frame = axes.get_window_extent()
    blocks = [box.get_window_extent() for box in axes.patches]
    for text, box in texts:
        assert frame.x0 <= box.x0 and box.x1 <= frame.x1, text
        around = [block for block in blocks if block.overlaps(box)]
        assert len(around) <= 1, text
        assert all(block.x0 <= box.x0 and box.x1 <= block.x1 for block in around), text
    outside = [("legend", figure.legends[0].get_window_extent()), ("axes", axes.get_tightbbox())]
    outside += [(text.get_text(), text.get_window_extent()) for text in figure.texts]
    assert overlaps(outside) == []
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for _, box in outside)


@pytest.mark.parametrize(("start", "stop", "batches"), [(3, 10, 1), (0, 8, 3), (2, 2, 1)])
def test_charts_of_simulated_plans_are_readable(start: int, stop: int, batches: int) -> None:
    plan = make_op_split_plan(small_model("llama"), start, stop, {"scores": 2} if batches == 1 else None)
    step = decode(plan.workload, 2, batches)
    done = spans(replay(lower(plan, step), lambda task: 1e-5 + task.bytes / 1e9, plan.hardware))
    check_readable(gantt(chart(done, plan.hardware, range(1, 2)), HEADING))


@pytest.mark.parametrize("seed", range(3))
def test_any_chart_is_readable(seed: int) -> None:
    dice, rows = Random(seed), []
    for number in range(6):
        now, track = 0.0, []
        while now < 0.1:
            start = now + dice.choice((0.0, 1e-4, dice.random() * 0.02))
            now = start + dice.choice((1e-5, 1e-3, dice.random() * 0.03))
            layer = dice.choice((4, 5, 6))
            name, batch = dice.choice(("LN.0", "Output", "Scores", "pin KV")), dice.choice((None, 0, 11))
            chunk = dice.choice((None, (3584, 28672)))
            track.append(ChartSpan(start, now, name, chunk, batch, layer, "Output", layer == 5))
        rows.append(ChartRow(f"row {number}", (tuple(track),)))
    figure = gantt(Chart(tuple(rows), 0.1, range(5, 6)), Heading("a long label " * 30, "many blocks"))
    check_readable(figure)
    assert len(figure.axes[0].texts) > 20


def test_labels_say_what_they_can() -> None:
    found = chart(every_row(), with_storage(make_hardware(), "fast"), range(5, 6))
    texts = [text.get_text() for text in gantt(found, HEADING).axes[0].texts]
    assert "Q\n0–4" in texts and "FC.1" in texts and "Output\nlayer 6" in texts


def test_narrow_blocks_are_named_beside() -> None:
    wide = span("down", "down", "cpu", 1, 100)
    narrow = [span(op, op, "loopback", 0.1 * k, 0.1 * (k + 1)) for k, op in enumerate(("scores", "softmax", "wv"))]
    axes = gantt(chart([*narrow, wide], make_hardware(), range(5, 6)), HEADING).axes[0]
    assert [text.get_text() for text in axes.texts] == ["FC.1", "Scores, Softmax, WV"]


def test_blocks_too_narrow_for_names_share_those_of_their_neighbours() -> None:
    """Nothing is free beside K and V: Output, which was named upright, is named with them behind it."""
    ends = (("gate", 0, 60), ("k", 60, 60.8), ("v", 60.8, 61.6), ("o", 61.6, 64))
    row = [span(op, op, "loopback", start, end) for op, start, end in ends]
    later = [span("down", "down", "loopback", 90, 100)]
    axes = gantt(chart([*row, *later], make_hardware(), range(5, 6)), HEADING).axes[0]
    assert [text.get_text() for text in axes.texts] == ["Gate", "FC.1", "K, V, Output"]
    check_readable(axes.figure)


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_pictures_are_the_same_every_time(kind) -> None:
    def drawn() -> bytes:
        return image(gantt(chart(every_row(), with_storage(make_hardware(), "fast"), range(5, 6)), HEADING), kind)

    first = drawn()
    assert first == drawn()
    assert first.startswith(b"\x89PNG" if kind == "png" else b"<?xml")
    assert kind == "png" or (b"dc:date" not in first and b"<text" not in first)


def test_a_picture_is_svg_or_png() -> None:
    assert image_format(Path("a/b.SVG"), "--plot") == "svg"
    for name in ("a.pdf", "a", "svg"):
        with pytest.raises(UsageError, match=r"--plot: a picture is SVG or PNG"):
            image_format(Path(name), "--plot")


def test_letters_are_readable_on_every_colour() -> None:
    assert ink_on("#0072B2") == "#FFFFFF" and ink_on("#F0E442") == "#000000"
    assert lighter("#000000", 0.5) == "#808080" and lighter("#FFFFFF") == "#FFFFFF"


def units(chunks: int = 1) -> list[DivisionPiece]:
    """Units of the published layer; every operation in so many chunks."""
    return [DivisionPiece(op, k, k + 1, chunks) for op in PAPER_OPS for k in range(chunks)]


def test_the_curve_is_the_search() -> None:
    found = search(published(), SearchOptions(printed=True))
    curve = split_curve(found, units(), found.best, NAMES)
    assert curve.units == OPS
    prefix, suffix = curve.lines
    assert prefix.side == "host" and prefix.at == tuple(range(12)) == suffix.at
    assert prefix.total[0] == pytest.approx(81.258 * MS) and prefix.total[4] == pytest.approx(68.615 * MS)
    assert min(suffix.total) == suffix.total[9] == curve.seconds == pytest.approx(47.546 * MS, rel=1e-3)
    assert len(curve.totals) == 78 and min(total for *_, total in curve.totals) == curve.seconds
    assert prefix.total == pytest.approx([max(lanes) for lanes in zip(prefix.cpu, prefix.h2d, strict=True)])


def test_a_single_split_is_no_curve() -> None:
    found = search(published(), SearchOptions(offload=False))
    with pytest.raises(UsageError, match="only one split"):
        split_curve(found, units(), found.best, NAMES)


def test_panels_show_the_lanes_the_total_and_the_plan() -> None:
    found = search(published(), SearchOptions(printed=True))
    figure = draw_split_curve(split_curve(found, units(), found.best, NAMES))
    prefix, suffix, pairs, _ = figure.axes
    lines = {line.get_label(): line for line in suffix.lines}
    assert {"CPU", "H2D", "GPU", "total L", "chosen plan"} <= set(lines) and "S2D" not in lines
    assert lines["total L"].get_ydata()[9] == pytest.approx(47.546, rel=1e-3)
    assert (lines["chosen plan"].get_xdata()[0], lines["chosen plan"].get_ydata()[0]) == (9, pytest.approx(47.54, 1e-3))
    elsewhere = next(line for line in prefix.lines if line.get_label() == "chosen plan")
    assert np.isnan(elsewhere.get_xdata()[0])
    cells = pairs.images[0].get_array()
    assert cells.shape == (12, 12) and np.unravel_index(cells.argmin(), cells.shape) == (9, 0)
    assert [round(float(x)) for x in pairs.lines[0].get_xydata()[0]] == [0, 9]
    assert "47.55 ms" in figure.texts[0].get_text() and NAMES.label in figure.texts[0].get_text()


@pytest.mark.parametrize("chunks", [1, 8])
def test_split_points_are_named_without_overlap(chunks: int) -> None:
    table = chunked(published(), dict.fromkeys(OPS, chunks)) if chunks > 1 else published()
    found = search(table, SearchOptions(compress=(False, True), storage=chunks == 1))
    figure = draw_split_curve(split_curve(found, units(chunks), found.best, NAMES))
    for axes in figure.axes[:3]:
        for axis in (axes.xaxis, axes.yaxis):
            names = [(label.get_text(), label.get_window_extent()) for label in axis.get_ticklabels()]
            assert overlaps(names) == []
        names = [label.get_text() for label in axes.get_xticklabels()]
        assert set(OPS) - set(names) <= ({"LN.0", "Softmax"} if chunks == 1 else set())
    panels = [(axes.get_title(loc="left"), axes.get_tightbbox()) for axes in figure.axes]
    panels += [("legend", figure.legends[0].get_window_extent())]
    panels += [(text.get_text(), text.get_window_extent()) for text in figure.texts]
    assert overlaps(panels) == []
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and figure.bbox.y0 <= box.y0 for _, box in panels)


def test_names_of_a_panel_keep_away_from_the_title_below() -> None:
    """`all accelerator` is the longest of them."""
    found = search(published(), SearchOptions(printed=True))
    figure = draw_split_curve(split_curve(found, units(), found.best, replace(NAMES, accelerator="accelerator")))
    lowest = min(label.get_window_extent().y0 for label in figure.axes[0].get_xticklabels())
    titles = [text for text in figure.axes[1].get_children() if isinstance(text, Text) and text.get_text()]
    assert titles and all(lowest - title.get_window_extent().y1 > 15 for title in titles)


def test_where_nothing_fits_is_a_gap() -> None:
    fits = np.ones((12, 12), dtype=bool)
    fits[:3] = False
    found = search(published(), SearchOptions(feasible=fits))
    curve = split_curve(found, units(), found.best, NAMES)
    figure = draw_split_curve(replace(curve, chosen=(4, 10)))
    total = next(line for line in figure.axes[0].lines if line.get_label() == "total L")
    assert np.isnan(total.get_ydata()[:3]).all() and not np.isnan(total.get_ydata()[3:]).any()


QUESTION = ["--model", "opt-125m", "--hw", "a4000-7950x", "--prompt-tokens", "16", "--output-tokens", "4"]


def test_commands_draw_and_print_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, curve, layer = (tmp_path / name for name in ("plan.json", "curve.svg", "layer.png"))
    search_for = [*QUESTION, "--strategy", "op-split"]
    assert helm_plan.main([*search_for, "-q", "-o", str(out), "--plot", str(curve)]) == 0
    assert capsys.readouterr().out == "" and curve.read_bytes().startswith(b"<?xml")
    assert helm_sim.main([str(out), "--json"]) == 0
    plain = capsys.readouterr().out
    assert helm_sim.main([str(out), "--json", "--plot", str(layer), "--layer", "3-4"]) == 0
    assert capsys.readouterr().out == plain and json.loads(plain)
    assert layer.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plot", "x.pdf"], "SVG or PNG"),
        (["--plot", "x.svg", "--max-context"], "does not go with --max-context"),
        (["--plot", "x.svg", "--strategy", "op-split", "--no-cpu-offload"], "only one split"),
        (["--plot", "nowhere/x.svg", "--strategy", "op-split"], "cannot be written"),
    ],
)
def test_a_plot_that_cannot_be_made_is_refused(arguments, message, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert helm_plan.main([*QUESTION, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and message in err
    assert list(tmp_path.iterdir()) == []


def test_layers_that_do_not_exist_are_refused(capsys, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    assert helm_plan.main([*QUESTION, "--strategy", "layer-split", "-q", "-o", str(out)]) == 0
    for layer in ("12", "x", "4-3", "-", "0-12"):
        assert helm_sim.main([str(out), "--plot", str(tmp_path / "x.svg"), f"--layer={layer}"]) == 2
        assert "--layer" in capsys.readouterr().err, layer
