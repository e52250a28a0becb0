"""What activations are rounded to: the choice by processor, and the curves that a plan keeps."""

from pathlib import Path

import pytest
from together import together

from helmsman.cli.plan import main as plan
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.planner.cost.device_rates import efficiency_curve
from helmsman.planner.cost.rounding import Wanted, rounding_of, with_rounding
from helmsman.planner.cost.rounding_loss import MEASURED, loss_of
from helmsman.schemas.figures import Figure
from helmsman.schemas.formats import PRECISIONS, STORED_FORMATS, Precision, StoredFormat
from helmsman.schemas.hardware import Device, Efficiency, Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import read_document
from helmsman.schemas.rounding import DEFAULT_ROUNDING, Rounding


def processor(isa: str = "avx2", curves: tuple[Efficiency, ...] = ()) -> Device:
    found = load_hardware("a4000-7950x", None).device("cpu")
    return found.model_copy(update={"isa": (isa,), "efficiency": curves})


def measured(fmt: StoredFormat, rounding: Precision | None, share: float) -> Efficiency:
    figure = Figure(value=share, p10=share, p90=share, source="measured")
    return Efficiency(bound="compute", op="linear", format=fmt, rounding=rounding, at=(32.0,), share=(figure,))


@pytest.mark.parametrize(
    ("isa", "wanted", "rounding"),
    [
        ("avx2", "auto", Rounding(bf16="f32", codes="int16")),
        ("avx512bf16", "auto", Rounding(bf16="bf16", codes="int16", attention="bf16")),
        ("amx", "auto", Rounding(bf16="bf16", codes="int16", attention="bf16")),
        ("avx512_bf16", "auto", Rounding(bf16="bf16", codes="int16", attention="bf16")),
        ("neonbf16", "auto", Rounding(bf16="bf16", codes="int16", attention="bf16")),
        ("bf16", "auto", Rounding(bf16="bf16", codes="int16", attention="bf16")),
        ("neondot", "auto", Rounding(bf16="f32", codes="int16")),
        ("avx512bf16", "f32", Rounding(bf16="f32", codes="f32")),
        ("avx2", "bf16", Rounding(bf16="bf16", codes="bf16", attention="bf16")),
        ("avx2", "int8", Rounding(bf16="f32", codes="int8")),
        ("avx512bf16", "int16", Rounding(bf16="bf16", codes="int16", attention="int16")),
        ("neondot", "int16", Rounding(bf16="f32", codes="int16", attention="int16")),
        ("avx512bf16", "int8", Rounding(bf16="bf16", codes="int8", attention="bf16")),
    ],
)
def test_what_is_asked_for_leaves_other_weights_as_auto_has_them(isa: str, wanted: Wanted, rounding: Rounding) -> None:
    assert rounding_of(processor(isa), wanted) == rounding


@pytest.mark.parametrize(("f32", "bf16", "chosen"), [(0.9, 0.5, "f32"), (0.5, 0.9, "bf16"), (0.7, 0.7, "bf16")])
def test_auto_takes_units_that_pay(f32: float, bf16: float, chosen: Precision) -> None:
    """Where f32 is faster it is also more accurate; attention goes by its own curves."""
    curves = measured("bf16", "f32", f32), measured("bf16", "bf16", bf16)
    found = rounding_of(processor("avx512bf16", curves), "auto")
    assert (found.bf16, found.attention) == (chosen, "bf16")
    attending = tuple(each.model_copy(update={"op": "attention", "format": "*"}) for each in curves)
    found = rounding_of(processor("avx512bf16", attending), "auto")
    assert (found.bf16, found.attention) == ("bf16", chosen)
    assert rounding_of(processor("avx512bf16", curves), "bf16").bf16 == "bf16"


@pytest.mark.parametrize(
    ("isa", "shares", "chosen"),
    [
        ("amx", {"q8_0": (0.2, 0.4)}, "bf16"),
        ("avx512bf16", {"q8_0": (0.5, 0.6), "q4_0": (0.5, 0.59)}, "bf16"),
        ("amx", {"q8_0": (0.2, 0.4), "q4_0": (0.3, 0.33)}, "int16"),
        ("amx", {"q8_0": (0.2, 0.22)}, "int16"),
        ("avx2", {"q8_0": (0.2, 0.4)}, "int16"),
    ],
)
def test_auto_rounds_codes_to_bf16_where_units_are_worth_the_loss(
    isa: str, shares: dict[StoredFormat, tuple[float, float]], chosen: Precision
) -> None:
    """All formats that were measured must gain; without units bf16 is never chosen."""
    curves = [
        measured(fmt, rounding, share)
        for fmt, both in shares.items()
        for rounding, share in zip(("int16", "bf16"), both, strict=True)
    ]
    assert rounding_of(processor(isa, tuple(curves)), "auto").codes == chosen
    assert rounding_of(processor(isa, tuple(curves)), "int8").codes == "int8"


@pytest.mark.parametrize(
    ("isa", "shares", "chosen", "others"),
    [
        ("avx512bf16", {"q8_0": (0.5, 0.5, 0.6), "q4_0": (0.5, 0.55, 0.8), "mxfp4": (0.5, 0.5, 0.7)}, "int8", "int16"),
        ("avx512bf16", {"q8_0": (0.5, 0.6, 0.8), "q4_0": (0.5, 0.6, 0.8), "mxfp4": (0.5, 0.6, 0.8)}, "int8", "bf16"),
        ("avxvnni", {"q4_0": (0.5, 0.3, 0.8)}, "int8", "int16"),
        ("avx512bf16", {"q4_0": (0.5, 0.5, 0.8), "mxfp4": (0.5, 0.5, 0.55)}, "int16", "int16"),
        ("avx512bf16", {"q8_0": (0.5, 0.5, 0.9)}, "int16", "int16"),
        ("avx2", {"q4_0": (0.5, 0.3, 0.8)}, "int16", "int16"),
        ("amx", {"q4_0": (0.3, 0.6, 0.7)}, "bf16", "bf16"),
    ],
)
def test_auto_rounds_activations_to_int8_where_weights_have_fewer_than_five_bits(
    isa: str, shares: dict[StoredFormat, tuple[float, float, float]], chosen: Precision, others: Precision
) -> None:
    """The default rounds activations to int8 where units for int8 were measured to pay in all formats of fewer than
    five bits, unless bf16 pays more; other formats and experts keep their precision."""
    curves = [
        measured(fmt, rounding, share)
        for fmt, all_three in shares.items()
        for rounding, share in zip(("int16", "bf16", "int8"), all_three, strict=True)
    ]
    default = rounding_of(processor(isa, tuple(curves)), "auto")
    few: tuple[StoredFormat, ...] = ("q4_0", "q4_k", "q4", "mxfp4")
    assert {default.of(fmt) for fmt in few} == {chosen}
    assert {default.of_experts(fmt) for fmt in few} == {default.of("q8_0")} == {default.of("q6_k")} == {default.codes}
    assert default.codes == others
    for wanted in PRECISIONS:
        assert rounding_of(processor(isa, tuple(curves)), wanted).of("q4_0") == wanted


def test_weights_of_every_format_meet_one_precision() -> None:
    rounding = Rounding(bf16="bf16", codes="int8")
    assert [rounding.of(fmt) for fmt in ("f32", "f16", "bf16", "q8_0", "q4_k", "q4")] == [
        "f32", "f32", "bf16", "int8", "int8", "int8"
    ]  # fmt: skip
    assert processor().rounds == DEFAULT_ROUNDING


def on(curves: tuple[Efficiency, ...], wanted: Wanted) -> Device:
    machine = load_hardware("a4000-7950x", None)
    devices = tuple(
        each.model_copy(update={"efficiency": curves, "isa": ("avx2",)}) if each.kind == "cpu" else each
        for each in machine.devices
    )
    return with_rounding(machine.model_copy(update={"devices": devices}), wanted).device("cpu")


@pytest.mark.parametrize("wanted", PRECISIONS)
def test_a_plan_keeps_the_curves_of_its_precision(wanted: Precision) -> None:
    of_codes: tuple[Precision, ...] = ("int16", "int8", "f32", "bf16")
    curves = [measured("q8_0", each, share) for each, share in zip(of_codes, (0.5, 0.9, 0.3, 0.7), strict=True)]
    curves += [measured("bf16", "f32", 0.4), measured("bf16", "bf16", 0.8), measured("f16", None, 0.45)]
    device = on(tuple(curves), wanted)
    for fmt in ("q8_0", "bf16", "f16"):
        chosen = device.rounds.of(fmt)
        (expected,) = (each for each in curves if each.format == fmt and each.rounding in (chosen, None))
        assert efficiency_curve(device, "compute", "linear", fmt) == expected
    assert efficiency_curve(device, "compute", "linear", "q4_k") is not None  # of the nearest format


@pytest.mark.parametrize("wanted", PRECISIONS)
def test_experts_are_priced_in_the_precision_of_their_kernels(wanted: Precision) -> None:
    """It is that of the device's codes, also where products of few bits have another."""
    of_codes: tuple[Precision, ...] = ("int16", "int8", "f32", "bf16")
    curves = [
        measured("q4_0", each, share).model_copy(update={"op": "experts"})
        for each, share in zip(of_codes, (0.5, 0.9, 0.3, 0.7), strict=True)
    ]
    device = on(tuple(curves), wanted)
    (expected,) = (each for each in curves if each.rounding == device.rounds.of_experts("q4_0"))
    assert efficiency_curve(device, "compute", "experts", "q4_0") == expected
    alone = on((curves[0],), wanted)
    assert efficiency_curve(alone, "compute", "experts", "q4_0") == curves[0], "no other precision was measured"


def attention_curves(*shares: float) -> tuple[Efficiency, ...]:
    """Return efficiency curves of attention of prompts in f32, bf16 and int16, with these shares of the peak."""
    precisions: tuple[Precision, ...] = ("f32", "bf16", "int16")
    curves = (measured("*", each, share) for each, share in zip(precisions, shares, strict=True))
    return tuple(curve.model_copy(update={"op": "attention"}) for curve in curves)


@pytest.mark.parametrize(
    ("isa", "shares", "chosen"),
    [
        ("avx2", (0.6, 0.55, 0.7), "int16"),
        ("avx2", (0.6, 0.9, 0.65), "f32"),
        ("avx512vnni", (0.6, 0.55, 0.66), "int16"),
        ("avx512bf16", (0.6, 0.7, 0.9), "bf16"),
        ("avx512bf16", (0.6, 0.5, 0.7), "int16"),
    ],
)
def test_attention_is_in_int16_where_that_pays_and_no_units_multiply_bf16(
    isa: str, shares: tuple[float, float, float], chosen: Precision
) -> None:
    """Where they do, but slower than f32, int16 is compared with f32 as well."""
    device = processor(isa, attention_curves(*shares))
    assert rounding_of(device, "auto").attention == rounding_of(device, "int8").attention == chosen
    assert rounding_of(device, "f32").attention == "f32" and rounding_of(device, "int16").attention == "int16"


@pytest.mark.parametrize("wanted", ["auto", "f32", "bf16", "int16", "int8"])
def test_attention_is_priced_as_it_is_computed(wanted: Wanted) -> None:
    """Int16 is no tenth faster than f32 here."""
    curves = attention_curves(0.6, 0.9, 0.65)
    device = on(curves, wanted)
    place = {"bf16": 1, "int16": 2}.get(wanted, 0)
    assert efficiency_curve(device, "compute", "attention", "bf16") == curves[place]
    assert efficiency_curve(device, "compute", "scores", "bf16") == curves[0]
    assert efficiency_curve(on(tuple(reversed(curves)), wanted), "compute", "wv", "bf16") == curves[0]


def test_products_of_few_bits_are_priced_by_int8_curves() -> None:
    """A plan keeps the curves of each format's own precision."""
    curves = [
        measured(fmt, rounding, share)
        for fmt in ("q8_0", "q4_0")
        for rounding, share in (("int16", 0.5), ("bf16", 0.5), ("int8", 0.9))
    ]
    machine = load_hardware("a4000-7950x", None)
    device = processor("avx512bf16", tuple(curves))
    others = tuple(each for each in machine.devices if each.kind != "cpu")
    chosen = with_rounding(machine.model_copy(update={"devices": (*others, device)}), "auto").device("cpu")
    assert efficiency_curve(chosen, "compute", "linear", "q4_0") == curves[5]
    assert efficiency_curve(chosen, "compute", "linear", "q8_0") == curves[0]


def test_what_was_not_measured_is_priced_by_what_was() -> None:
    usual = measured("q8_0", "int16", 0.5)
    assert efficiency_curve(on((usual,), "int8"), "compute", "linear", "q8_0") == usual


def test_accelerators_compute_in_the_format_of_their_weights() -> None:
    before: Hardware = load_hardware("a4000-7950x", None)
    after = with_rounding(before, "int8")
    changed = [each.name for each in after.devices if each.rounding is not None]
    assert changed == [each.name for each in before.devices if each.kind == "cpu"]


@together("rounding", PRECISIONS)
@together("fmt", STORED_FORMATS)
def test_every_precision_says_what_it_costs(fmt: StoredFormat, rounding: Precision) -> None:
    said = loss_of(fmt, rounding)
    assert ("rounds nothing" in said) == (rounding == "f32")
    assert said.startswith("about") == (
        rounding != "f32" and not any((each.format, each.rounding) == (fmt, rounding) for each in MEASURED)
    )


@pytest.mark.parametrize("wanted", ["auto", "int8", "f32"])
def test_verbose_plans_say_what_rounding_costs(capsys: pytest.CaptureFixture[str], wanted: str, tmp_path: Path) -> None:
    cpu_only = ["--model", "Qwen3-0.6B", "--hw", "a4000-7950x", "--strategy", "layer-split", "--vram-avail", "1"]
    options = ["--format", "q4_0", "--activations", wanted]
    assert plan([*cpu_only, *options, "-v", "-o", str(tmp_path / "plan.json")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("precision")]
    kept = read_document(Plan, tmp_path / "plan.json")
    assert any("attention of prompts multiplies bf16" in line for line in lines) == (wanted != "f32")
    lines = [line for line in lines if "attention" not in line]
    used = {rule.device for rule in kept.compute}
    assert "cpu" in used
    assert len(lines) == len([each for each in kept.hardware.devices if each.rounding and each.name in used])
    rounding = {"auto": "int16"}.get(wanted, wanted)
    assert all(f"q4_0 weights meet activations in {rounding}" in line for line in lines)


@pytest.mark.parametrize(
    ("fmt", "wanted", "kept"),
    [
        ("f16", "int8", True),
        ("q4_0", "auto", True),
        ("q4_0", "int8", False),
        ("q4_0", "f32", False),
        ("bf16", "bf16", False),
    ],
)
def test_operation_tables_stay_where_activations_are_as_they_were_measured(
    fmt: StoredFormat, wanted: Wanted, kept: bool
) -> None:
    machine = load_hardware("a4000-7950x", None)
    (table,) = (each.model_copy(update={"format": fmt}) for each in machine.tables[:1])
    rounded_machine = with_rounding(machine.model_copy(update={"tables": (table,)}), wanted)
    assert rounded_machine.tables == ((table,) if kept else ())
