"""What a machine can run: which formats are tried, which is taken, in which order models come."""

import pytest

import helmsman
from helmsman.hwdb.format_losses import published_losses
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.errors import UsageError
from helmsman.schemas.fit_report import FitReport, FitRow
from helmsman.schemas.formats import WEIGHTS_FORMATS
from helmsman.schemas.read import parse_document
from helmsman.studies.fitting.choice import best_row, best_rows
from helmsman.studies.fitting.formats import TRIED, tried_formats
from helmsman.studies.fitting.purposes import PURPOSES, floor_of
from helmsman.studies.fitting.words import fit_text, formats_text

SMALL = "Qwen3-0.6B"


def row(model: str = "m", fmt: str = "q8_0", rate: float | None = 10.0, **values: object) -> FitRow:
    """A row that fits where it has a rate, of a floor of 5 tokens/s."""
    usual = {
        "model": model, "parameters": 8 * 10**9, "format": fmt, "bits": 8.5, "weight_bytes": 8 * 10**9,
        "context": 1280, "prompt_tokens": 1024, "output_tokens": 256,
        "status": "does-not-fit" if rate is None else "fits", "decode_rate": rate,
        "meets_floor": None if rate is None else rate >= 5.0, "loss": 0.001,
    }  # fmt: skip
    return FitRow.model_validate({**usual, **values})


def test_the_format_that_loses_least_of_those_fast_enough_is_taken() -> None:
    rows = [
        row(fmt="f16", rate=4.0, loss=0.0),
        row(fmt="q8_0", rate=6.0, loss=0.001),
        row(fmt="q6_k", rate=8.0, loss=0.005),
        row(fmt="mxfp4", rate=20.0, loss=None),
        row(fmt="q5_k", rate=9.0, loss=0.001),
    ]
    numbers = range(len(rows))
    assert rows[best_row(rows, numbers)].format == "q5_k", "of equals the faster"
    assert rows[best_row(rows, [0, 3])].format == "mxfp4", "nobody published what it loses, but it is fast enough"
    assert rows[best_row(rows, [0])].format == "f16"


def test_where_none_is_fast_enough_the_fastest_and_where_none_fits_the_smallest_is_taken() -> None:
    rows = [row(fmt="f16", rate=1.0), row(fmt="q8_0", rate=2.0), row(rate=None, weight_bytes=9), row(rate=None)]
    assert best_row(rows, range(4)) == 1
    assert best_row(rows, [2, 3]) == 2


def test_the_largest_model_that_is_fast_enough_comes_first() -> None:
    rows = [
        row("slow", rate=3.0, parameters=70 * 10**9),
        row("small"),
        row("large", parameters=14 * 10**9),
        row("too large", rate=None, parameters=400 * 10**9),
        row("large", context=4096, parameters=14 * 10**9, rate=4.0),
    ]
    assert [rows[number].model for number in best_rows(rows)] == ["large", "large", "small", "slow", "too large"]


def test_formats_have_their_true_bits_and_published_losses() -> None:
    formats = {fmt.name: fmt for fmt in tried_formats(load_model("Llama-3.1-8B"), "Llama-3.1-8B")}
    assert tuple(formats) == TRIED
    assert formats["q4_k_m"].bits == pytest.approx(4.8944, abs=1e-4)
    losses = [fmt.loss for fmt in formats.values()]
    assert None not in losses and losses == sorted(losses, key=lambda loss: loss or 0.0)
    assert [fmt.size for fmt in formats.values()] == sorted((fmt.size for fmt in formats.values()), reverse=True)
    assert "importance matrix" in str(formats["q4_k_m"].loss_of) and "Llama 3 8B" in str(formats["q8_0"].loss_of)


def test_a_loss_that_nobody_published_is_none() -> None:
    (fmt,) = tried_formats(load_model(SMALL), SMALL, ["q4_k"])
    assert fmt.loss is None and fmt.loss_of is None
    assert not tried_formats(load_model(SMALL), SMALL, ["mxfp4", "native"]), "of experts, and of quantised models"


def test_a_model_that_was_released_quantised_is_tried_so_first() -> None:
    formats = tried_formats(load_model("gpt-oss-20b"), "gpt-oss-20b")
    assert formats[0].name == "native" and formats[0].loss == 0.0
    assert all(fmt.bits < formats[0].bits and fmt.loss is None for fmt in formats[1:])


def test_published_losses_name_formats_and_sources() -> None:
    losses = published_losses()
    assert set(losses) <= set(WEIGHTS_FORMATS)
    assert losses["q4_k_m"].kl_divergence == 0.028152 and losses["q4_k_m"].imatrix
    assert losses["q6_k"].perplexity_rise == 0.021748 and not losses["q6_k"].imatrix
    assert all("revision" in loss.source and loss.error < loss.kl_divergence for loss in losses.values())


def test_floors_say_where_they_come_from() -> None:
    assert floor_of(PURPOSES["chat"], None)[0] == pytest.approx(238 * 4 / 3 / 60, abs=0.05)
    assert floor_of(PURPOSES["code"], 7) == (7.0, "as asked")
    for wrong in (-1.0, float("nan"), True):
        with pytest.raises(UsageError, match="not a speed"):
            floor_of(PURPOSES["chat"], wrong)


def test_a_machine_is_asked_as_a_study_is() -> None:
    report = helmsman.fit(
        "rtx4060-laptop", [SMALL, "Llama-3.1-405B"], contexts=[512], formats=["q8_0", "iq3_xxs"], strategy="cpu-only"
    )
    assert parse_document(FitReport, report.to_json().encode(), "x") == report
    assert [(row.model, row.format, row.status) for row in report.rows] == [
        (SMALL, "q8_0", "fits"),
        (SMALL, "iq3_xxs", "fits"),
        ("Llama-3.1-405B", "q8_0", "does-not-fit"),
        ("Llama-3.1-405B", "iq3_xxs", "does-not-fit"),
    ]
    assert [report.rows[number].model for number in report.best] == [SMALL, "Llama-3.1-405B"]
    alone = helmsman.plan(
        {"model": SMALL, "hardware": "rtx4060-laptop", "format": "q8_0", "strategy": "cpu-only",
         "prompt_tokens": 256, "output_tokens": 256}
    )  # fmt: skip
    assert report.rows[0].request_s == alone.seconds and report.rows[0].prompt_tokens == 256
    assert report.rows[2].missing and "Llama-3.1-405B" in fit_text(report)
    assert {loss.format for loss in report.losses} == {"q8_0", "iq3_xxs"}
    assert "does not fit" in formats_text(report)
    assert "revision f364eb6f" in " ".join(fit_text(report).split())


def test_what_makes_no_sense_is_refused() -> None:
    for arguments, told in (
        ({"purpose": "fun"}, "no such purpose"),
        ({"contexts": [100]}, "no room for a prompt"),
        ({"contexts": [10**6]}, "no model has such formats|beyond"),
        ({"formats": ["mxfp4"]}, "no model has such formats"),
        ({"strategy": "nobody"}, "no such strategy"),
    ):
        with pytest.raises(UsageError, match=told):
            helmsman.fit("rtx4060-laptop", [SMALL], **arguments)


def test_formats_that_gguf_files_do_not_have_are_not_tried_for_llama_cpp() -> None:
    model = load_model("DeepSeek-R1")
    assert tried_formats(model, "DeepSeek-R1")[0].name == "native"
    names = [fmt.name for fmt in tried_formats(model, "DeepSeek-R1", in_gguf=True)]
    assert names[:2] == ["f16", "q8_0"] and "native" not in names
    assert tried_formats(load_model("gpt-oss-20b"), "gpt-oss-20b", in_gguf=True)[0].name == "native"
