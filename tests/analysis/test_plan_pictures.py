"""Pictures of plans and of comparisons: they show the rules and figures they are made of, and can be read."""

from collections.abc import Iterator
from itertools import combinations

import pytest
from matplotlib.text import Text
from plans import GIB, make_hardware, make_plan
from shapes import small_model

from helmsman.analysis.comparison import Answer, ranked
from helmsman.analysis.front import points
from helmsman.analysis.plots.latency_rate import draw_points
from helmsman.analysis.plots.layer_overlap import draw_overlaps
from helmsman.analysis.plots.layer_strip import Look, draw_layers
from helmsman.analysis.plots.layer_units import HomeUse, UnitPart, strips
from helmsman.analysis.plots.picture import BLUE, GREEN, ORANGE, image
from helmsman.analysis.plots.strategy_bars import draw_strategies
from helmsman.cli import plan as helm_plan
from helmsman.cli import sim as helm_sim
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.planner.prediction.speed import planned
from helmsman.schemas.comparison import Comparison
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Plan, Residence, Select
from helmsman.schemas.plan import Part as Rows
from helmsman.schemas.predicted import Interval, Seconds
from helmsman.schemas.workload import Workload
from helmsman.simulator.per_layer import LayerTimes, PassLayers

HOME, GUEST = HomeUse("dram", "cpu"), HomeUse("dram", "loopback")
INNER = HomeUse("vram", "loopback")


def whole(use: HomeUse) -> tuple[UnitPart, ...]:
    return (UnitPart(0.0, 1.0, use),)


def shown(figure) -> Iterator[Text]:
    """What is written; ticks beyond the ends of an axis are not drawn."""
    yield from figure.texts
    yield from (text for legend in figure.legends for text in legend.get_texts())
    for axes in figure.axes:
        yield from axes.texts
        yield from (child for child in axes.get_children() if isinstance(child, Text) and child not in axes.texts)
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            yield axis.label
            yield from (tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high)


def check_readable(figure) -> None:
    """No two texts overlap, and none leaves the picture."""
    figure.draw_without_rendering()
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown(figure) if text.get_text().strip()]
    assert [(a, b) for (a, one), (b, other) in combinations(boxes, 2) if one.overlaps(other)] == []
    inside = figure.bbox
    assert [
        text
        for text, box in boxes
        if not (inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1)
    ] == []


def with_rules(plan: Plan, **rules: object) -> Plan:
    return plan.model_copy(update=rules)


def streaming(layers: int = 4) -> Plan:
    """Everything is computed on the accelerator; Q and the later half of the layers' FC.0 come from host memory."""
    model = small_model("llama").with_layers(layers)
    half = LayerRange(start=layers // 2, stop=layers)
    return with_rules(
        make_plan(model),
        residence=(
            Residence(select=Select(names="q.weight"), memory="dram", format="f32"),
            Residence(select=Select(names="up.weight", layers=half), memory="dram", format="f32"),
            Residence(select=Select(names="k.weight"), memory="dram", format="f32", replicas=("vram",)),
            Residence(select=Select(names="embedding*"), memory="dram", format="f32"),
            Residence(select=Select(), memory="vram", format="f32"),
        ),
        kv=(KvRule(select=Select(), memory="vram", format="f32"),),
        compute=(
            ComputeRule(select=Select(names="embedding"), device="cpu"),
            ComputeRule(select=Select(names="down"), device="cpu", phase="decode"),
            ComputeRule(select=Select(), device="loopback"),
        ),
    )


def test_strips_are_the_rules_of_the_plan() -> None:
    decode, prefill = strips(streaming())
    assert decode.phases == ("decode",) and prefill.phases == ("prefill",)
    assert decode.rows == ("Q", "K", "V", "Keys", "Values", "Output", "Gate", "FC.0", "FC.1")
    assert [(stretch.first, stretch.last) for stretch in decode.stretches] == [(0, 2), (2, 4)]
    early, late = (dict(zip(decode.rows, stretch.parts, strict=True)) for stretch in decode.stretches)
    assert early["Q"] == late["Q"] == whole(GUEST)
    assert early["K"] == whole(INNER), "a copy in the device's own memory is at home"
    assert early["FC.0"] == whole(INNER) and late["FC.0"] == whole(GUEST)
    assert early["FC.1"] == whole(HomeUse("vram", "cpu"))
    assert dict(zip(prefill.rows, prefill.stretches[0].parts, strict=True))["FC.1"] == whole(INNER)
    assert decode.embedding == whole(HOME) and decode.head == whole(INNER)


def test_blocks_that_are_alike_are_drawn_where_they_are() -> None:
    """Rules that put every other block elsewhere: every block has its own column."""
    plan = streaming(6)
    odd = [
        Residence(select=Select(layers=LayerRange(start=n, stop=n + 1)), memory="dram", format="f32") for n in (1, 4)
    ]
    plan = with_rules(plan, residence=(*odd, *plan.residence[2:]))
    strip = strips(plan)[0]
    assert [(each.first, each.last) for each in strip.stretches] == [(0, 1), (1, 2), (2, 4), (4, 5), (5, 6)]
    query = [each.parts[strip.rows.index("Q")] for each in strip.stretches]
    assert query == [whole(INNER), whole(GUEST), whole(INNER), whole(GUEST), whole(INNER)]


def test_phases_that_are_alike_are_one_strip() -> None:
    (both,) = strips(make_plan(small_model("llama"), 2))
    assert both.phases == ("prefill", "decode")
    assert [(stretch.first, stretch.last, stretch.parts[0]) for stretch in both.stretches] == [
        (0, 1, whole(HOME)),
        (1, small_model("llama").layers, whole(INNER)),
    ]


def test_parts_of_weights_and_of_work_are_cut_where_either_changes() -> None:
    """The first half of the rows lives in host memory; the first three quarters are computed there."""
    plan, rows = streaming(), small_model("llama").dense.ffn
    lives = Select(names="up.weight", part=Rows(axis="rows", start=0, stop=rows // 2))
    works = Select(names="up", part=Rows(axis="rows", start=0, stop=3 * rows // 4))
    plan = with_rules(
        plan,
        residence=(Residence(select=lives, memory="dram", format="f32"), *plan.residence[3:]),
        compute=(ComputeRule(select=works, device="cpu"), *plan.compute),
    )
    strip = strips(plan)[0]
    assert strip.stretches[0].parts[strip.rows.index("FC.0")] == (
        UnitPart(0.0, 0.5, HOME),
        UnitPart(0.5, 0.75, HomeUse("vram", "cpu")),
        UnitPart(0.75, 1.0, INNER),
    )


def test_what_is_streamed_is_striped_in_the_colour_of_where_it_goes() -> None:
    look = Look(make_hardware())
    assert [look.colour(memory) for memory in ("dram", "vram")] == [ORANGE, BLUE]
    assert [look.stripes(use) for use in (HOME, INNER, GUEST)] == [None, None, BLUE]
    assert look.words(GUEST) == "in dram, streamed to loopback" and look.words(HOME) == "in dram, used there by cpu"
    figure = draw_layers(streaming())
    blocks = figure.axes[1]
    drawn = {(box.get_x(), box.get_y(), box.get_width()): box for box in blocks.patches}
    assert drawn[0, 0, 2].get_hatch() == "////" and drawn[0, 2, 2].get_hatch() is None
    assert drawn[0, 7, 2].get_hatch() is None and drawn[2, 7, 2].get_hatch() == "////"


def test_devices_of_one_memory_are_told_apart() -> None:
    look = Look(load_hardware("m4max-128gb", None))
    processor, accelerator = HomeUse("unified", "cpu"), HomeUse("unified", "metal")
    assert look.stripes(processor) not in (None, look.colour("unified")) and look.stripes(accelerator) is None


def test_memories_of_one_kind_have_different_colours() -> None:
    look = Look(load_hardware("a4000-7950x", None))
    names = [memory.name for memory in look.hardware.memories]
    assert len({look.colour(name) for name in names}) == len(names)


@pytest.mark.parametrize("layers", [2, 36, pytest.param(96, marks=pytest.mark.nightly), 130])
def test_strips_of_any_depth_are_readable(layers: int) -> None:
    plan = streaming(layers)
    figure = draw_layers(plan)
    check_readable(figure)
    names = [label.get_text() for label in figure.axes[1].get_xticklabels()]
    assert names[0] == "0" and int(names[-1]) > 0.9 * layers - 2
    assert figure.texts[0].get_text() == f"{plan.strategy.name} {plan.label}"


def interval(mid: float) -> Interval:
    return Interval(low=0.8 * mid, mid=mid, high=1.5 * mid)


def plan_of(step: float, label: str = "plan", batch: int = 1) -> Plan:
    work = Workload(prompt_tokens=8, output_tokens=3, batch=batch, context=16)
    plan = make_plan(small_model("llama"), workload=work)
    decode = plan.predicted.decode.model_copy(update={"seconds": interval(step)})
    predicted = plan.predicted.model_copy(update={"ttft": Seconds(seconds=interval(step)), "decode": decode})
    return plan.model_copy(update={"predicted": predicted, "label": label})


def compared(answers: dict[str, Plan | InfeasibleError | UsageError], **more: object) -> Comparison:
    rows = ranked([Answer(name, given) for name, given in answers.items()], "latency")
    facts = {"model": "m", "model_sha256": "0" * 64, "hardware": "h", "hardware_sha256": "0" * 64}
    asked = {"workload": Workload(), "weights": "f16", "kv": "f16", "objective": "latency", "same_software": True}
    return Comparison(**facts, **asked, rows=rows, **more)


ANSWERS = {
    "layerwise-map": plan_of(0.1, "layerwise-map attention 27.5 % ffn 33.3 % (25.8 % resident) " + "x" * 60),
    "best": plan_of(0.05),
    "far-away": plan_of(3.5),
    "vllm": InfeasibleError("too large", lacks={"vram": 8 * GIB, "dram": 3 * GIB}),
    "flexgen": UsageError("needs an accelerator with a memory of its own and links both ways " * 3, field="--strategy"),
}


def test_bars_are_the_seconds_of_the_comparison() -> None:
    figure = draw_strategies(compared(ANSWERS))
    axes = figure.axes[0]
    end = axes.get_xlim()[1]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([50.0, 100.0, end])
    assert [bar.get_facecolor()[:3] == pytest.approx(rgb(GREEN), abs=0.01) for bar in axes.patches] == [
        True,
        False,
        False,
    ]
    texts = [text.get_text() for text in axes.texts]
    assert {"best", "50 ms", "100 ms", "2.00x", "3.5 s", "70.00x", "vllm", "layerwise-map"} <= set(texts)
    assert "does not fit: vram lacks 8.59 GB, dram lacks 3.22 GB" in texts
    assert axes.get_xlabel() == "decode step, ms"


def rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))


@pytest.mark.parametrize("chosen", [tuple(ANSWERS), ("best",), ("best", "far-away", "flexgen")])
def test_bars_are_readable(chosen) -> None:
    check_readable(draw_strategies(compared({name: ANSWERS[name] for name in chosen})))


def test_the_front_is_drawn_over_the_lines_of_strategies() -> None:
    found = [("a", batch, planned(plan_of(1.0 + batch / 9, batch=batch))) for batch in (1, 2, 4, 8, 16)]
    found += [("b", batch, planned(plan_of(3.0, batch=batch))) for batch in (1, 2, 4)]
    found += [("c", 1, planned(plan_of(0.9)))]
    figure = draw_points(compared(ANSWERS, points=points(found)))
    check_readable(figure)
    axes = figure.axes[0]
    lines = {line.get_label(): line.get_xydata() for line in axes.lines}
    assert set(lines) == {"front", "a", "b", "c"} and len(lines["a"]) == 5 and len(lines["c"]) == 1
    assert lines["front"][0].tolist() == lines["c"][0].tolist() and len(lines["front"]) == 5
    frame = axes.get_window_extent()
    assert all(frame.x0 <= text.get_window_extent().x0 for text in axes.texts) and len(axes.texts) >= 4


def test_many_strategies_look_different() -> None:
    found = [(f"s{number}", 1, planned(plan_of(1.0 + number))) for number in range(13)]
    lines = draw_points(compared(ANSWERS, points=points(found))).axes[0].lines[1:]
    looks = {(line.get_color(), line.get_marker(), line.get_markerfacecolor(), line.get_linestyle()) for line in lines}
    assert len(looks) == 13


def halves(blocks: int, load: float = 4e-3) -> PassLayers:
    """Attention that computes 2 ms and is loaded in 4, an FFN that computes 6 ms and is loaded in 8."""
    times = {"attention": (2e-3, load), "ffn": (6e-3, 8e-3)}
    inner = [LayerTimes(kind, block, *times[kind]) for block in range(blocks) for kind in ("attention", "ffn")]
    ends = LayerTimes("embedding", None, 1e-6, 0.0), LayerTimes("output", None, 1e-3, 0.0)
    return PassLayers("decode", 9, (ends[0], *inner, ends[1]), ())


def test_bars_load_what_lines_compute_before() -> None:
    bars, ratios = draw_overlaps(streaming(), [halves(3)]).axes
    assert [bar.get_height() for bar in bars.patches] == pytest.approx([4, 8, 4, 8, 4, 8, 0])
    lines = [line.get_xydata().tolist() for line in bars.lines]
    assert lines[1:] == [[[1, 2], [3, 2], [5, 2]], [[2, 6], [4, 6], [6, 6]]] and lines[0][0][0] == 0
    points_drawn = {int(x): y for line in ratios.lines[1:] for x, y in line.get_xydata()}
    assert points_drawn[1] == pytest.approx(2 / 8) and points_drawn[2] == pytest.approx(6 / 4) and 6 not in points_drawn


@pytest.mark.parametrize(
    ("blocks", "load"),
    [
        (1, 4e-3),
        (12, 4e-3),
        pytest.param(96, 4e-3, marks=pytest.mark.nightly),
        pytest.param(12, 7e-4, marks=pytest.mark.nightly),
        (12, 2e-2),
        (2, 1e-9),
    ],
)
def test_overlaps_are_readable(blocks: int, load: float) -> None:
    check_readable(draw_overlaps(streaming(), [halves(blocks, load)] * 2))


def test_nothing_to_load() -> None:
    idle = PassLayers("prefill", 8, tuple(LayerTimes("block", block, 1e-3, 0.0) for block in range(4)), ())
    figure = draw_overlaps(streaming(), [idle])
    check_readable(figure)
    assert "no block is loaded" in figure.axes[0].get_title(loc="left")


def test_pictures_are_the_same_every_time() -> None:
    for draw in (lambda: draw_layers(streaming()), lambda: draw_strategies(compared(ANSWERS))):
        assert image(draw(), "svg") == image(draw(), "svg")


QUESTION = ["--model", "opt-125m", "--hw", "a10g-g5.4xlarge", "--prompt-tokens", "16", "--output-tokens", "4"]


def test_commands_draw_plans_comparisons_and_layers(capsys, tmp_path) -> None:
    names = ("strip.png", "overlap.svg", "front.png", "bars.svg")
    strip, overlap, front, bars = (tmp_path / name for name in names)
    out = tmp_path / "plan.json"
    chosen = [*QUESTION, "--strategy", "all-cpu"]
    assert helm_plan.main([*chosen, "-q", "-o", str(out), "--plot", str(strip)]) == 0
    assert helm_sim.main([str(out), "-q", "--per-layer", "--plot", str(overlap)]) == 0
    assert helm_plan.main([*chosen, "-q", "--pareto", "2", "--plot", str(front)]) == 0
    no_gpu = ["--model", "opt-125m", "--hw", "epyc9554-cpu", "--strategy", "all"]
    assert helm_plan.main([*no_gpu, "--plot", str(bars)]) == 0
    assert f"plot         {bars}" in capsys.readouterr().out
    for path in (strip, front):
        assert path.read_bytes().startswith(b"\x89PNG")
    for path in (overlap, bars):
        assert path.read_bytes().startswith(b"<?xml")
    assert helm_sim.main([str(out), "--per-layer", "--layer", "2", "--plot", str(overlap)]) == 2
    assert "--layer" in capsys.readouterr().err


def test_the_longest_context_is_no_picture(capsys, tmp_path) -> None:
    assert helm_plan.main([*QUESTION, "--max-context", "--plot", str(tmp_path / "x.svg")]) == 2
    assert "--max-context" in capsys.readouterr().err and list(tmp_path.iterdir()) == []
