"""Studies: chosen, answered with progress, cancelled, linked."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.browser
Visit = Callable[..., Any]


def _choose(page: Any, field: str, name: str) -> None:
    page.fill(field, name)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")


@pytest.mark.parametrize("width", [1440, 390])
def test_a_study_is_answered(visit: Visit, width: int) -> None:
    visitor = visit(width)
    page = visitor.open("#view=studies")
    page.wait_for_selector("#studies form")
    _choose(page, "#study-machines", "rtx3060-5600x")
    page.wait_for_selector("#studies .token:has-text('rtx3060-5600x')")
    assert page.inner_text("#studies .study-foot span").startswith("6 questions")
    page.click("#studies button.main")
    page.wait_for_selector("#studies h2:has-text('What came of it')", timeout=90_000)
    assert "6 questions fit" in page.inner_text("#studies")
    assert page.locator("#studies section:has(> h3:has-text('The best of each machine')) tbody tr").count() == 6
    assert "What changes bring" in page.inner_text("#studies")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.wait_for_selector("#studies .jobs li:has-text('done')")
    with page.expect_download() as download:
        page.click("button:has-text('Save as JSON')")
    assert download.value.suggested_filename == "study.json"


def test_a_study_shows_its_progress_and_is_cancelled(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open("#view=studies")
    page.wait_for_selector("#studies form")
    page.fill("#study-prompts", "64..4096/64")
    page.fill("#study-batches", "1..8")
    page.select_option("#study-method", "best")
    page.click("#studies button.main")
    page.wait_for_selector("#studies .progress span:has-text(' of ')")
    page.click("#studies .progress button")
    page.wait_for_selector("#studies h2:has-text('Cancelled')")
    page.wait_for_selector("#studies .jobs li:has-text('cancelled')")


def test_what_is_wrong_with_a_study_is_said(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open("#view=studies")
    page.wait_for_selector("#studies form")
    page.fill("#study-changes", "wings=2")
    page.keyboard.press("Enter")
    page.click("#studies button.main")
    page.wait_for_selector("#studies [role=alert]:not([hidden])")
    assert "not an edit of a machine" in page.inner_text("#study-changes-fault")


@pytest.mark.parametrize("width", [1440, 390])
def test_what_is_served_within_limits_and_paid_is_asked(visit: Visit, width: int) -> None:
    visitor = visit(width)
    page = visitor.open("#view=studies")
    page.wait_for_selector("#studies form")
    form = page.locator("#studies form")
    for name in ("12 GiB on the GPU", "RAM ×1.5 as fast"):
        page.click(f"#studies button[aria-label='Remove {name}']")
    page.focus("#studies details summary")
    page.keyboard.press("Enter")
    for label, value in {
        "First token within": "2",
        "Each further token within": "100 ms",
        "For how many requests": "90 %",
        "Price of rtx4060-laptop": "900",
        "Power of rtx4060-laptop": "140",
        "Price of energy": "0.3",
        "Currency": "EUR",
        "How sure": "0",
    }.items():
        form.get_by_label(label).fill(value)
    form.get_by_label("For so many requests").fill("2")
    page.fill("#study-requests", "synthetic:n=100,input=64,output=16")
    page.keyboard.press("Enter")
    form.get_by_label("Currency").press("Enter")
    best = "#studies section:has(> h3:has-text('The best of each machine'))"
    page.wait_for_selector(best, timeout=90_000)
    heads = page.locator(f"{best} th[scope=col]").all_inner_texts()
    cells = dict(zip(heads, page.locator(f"{best} tbody tr").first.locator("th, td").all_inner_texts(), strict=True))
    assert float(cells["Requests/s at most"].split()[0]) > 0.1 and int(cells["Machines needed"].split(",")[0]) >= 1
    assert cells["A million tokens"].endswith(" EUR") and "gpu-only" in cells["Weights"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("written", "value", "blamed", "words"),
    [
        ("energy", "-1", "energy", "greater than or equal to 0"),
        ("watts-0", "much", "watts-0", "valid number"),
        ("tpot", "soon", "tpot", "not a quantity"),
        ("share", "300", "share", "not a share"),
        ("rate", "2", "requests", "at least 1"),
        ("prompts", "many", "prompts", "whole number"),
    ],
)
def test_a_mistake_is_said_at_its_field(visit: Visit, written: str, value: str, blamed: str, words: str) -> None:
    page = visit(390).open("#view=studies")
    page.wait_for_selector("#studies form")
    page.click("#studies details summary")
    page.fill("#study-ttft", "2")
    page.fill(f"#study-{written}", value)
    page.click("#studies button.main")
    page.wait_for_selector(f"#study-{blamed}[aria-invalid=true][aria-describedby=study-{blamed}-fault]")
    assert words in page.inner_text(f"#study-{blamed}-fault")
    assert page.evaluate("document.activeElement.id") == f"study-{blamed}"
    assert page.locator("#studies [aria-invalid=true]").count() == 1


def test_a_link_holds_a_study(visit: Visit) -> None:
    first = visit(permissions=["clipboard-read", "clipboard-write"])
    page = first.open("#view=studies")
    page.wait_for_selector("#studies form")
    page.click("#studies .suggestions button:has-text('one more GPU')")
    page.fill("#study-prompts", "256..1024")
    page.click("#studies details summary")
    written = {
        "#study-ttft": "2s",
        "#study-share": "95",
        "#study-users": "8..32",
        "#study-think": "10s",
        "#study-machines-0": "900",
        "#study-energy": "0.3",
    }
    for field, value in written.items():
        page.fill(field, value)
    for words in ("whatever is fastest", "400 requests like yours"):
        page.click(f"#studies .suggestions button:has-text('{words}')")
    page.click("#copy-link")
    page.wait_for_selector("#notes:has-text('Link copied')")
    second = visit()
    second.page.goto(page.evaluate("navigator.clipboard.readText()"))
    second.page.wait_for_selector("#studies form")
    assert second.page.input_value("#study-prompts") == "256..1024"
    assert second.page.locator("#studies .token:has-text('one more GPU')").count() == 1
    assert {field: second.page.input_value(field) for field in written} == written
    for words in ("whatever is fastest", "synthetic:n=400,input=512,output=256"):
        assert second.page.locator(f"#studies .token:has-text('{words}')").is_visible()
