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
    page.wait_for_selector("#studies [role=alert]")
    assert "wings" in page.inner_text("#studies [role=alert]") or "edit" in page.inner_text("#studies [role=alert]")


def test_a_link_holds_a_study(visit: Visit) -> None:
    first = visit(permissions=["clipboard-read", "clipboard-write"])
    page = first.open("#view=studies")
    page.wait_for_selector("#studies form")
    page.click("#studies .suggestions button:has-text('one more GPU')")
    page.fill("#study-prompts", "256..1024")
    page.click("#copy-link")
    page.wait_for_selector("#notes:has-text('Link copied')")
    second = visit()
    second.page.goto(page.evaluate("navigator.clipboard.readText()"))
    second.page.wait_for_selector("#studies form")
    assert second.page.input_value("#study-prompts") == "256..1024"
    assert second.page.locator("#studies .token:has-text('one more GPU')").count() == 1
