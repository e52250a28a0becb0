"""The report of `helm-whatif` as a page of its own: it fits screens, and wide parts are scrolled within it."""

from typing import TYPE_CHECKING

import pytest

from helmsman import study
from helmsman.studies.report.page import page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
QUESTIONS = {
    "models": "Qwen3-0.6B",
    "machines": ["rtx4060-laptop", "epyc9554-cpu"],
    "strategies": "layer-split",
    "prices": {"machines": {"rtx4060-laptop": 1000.0, "epyc9554-cpu": 9000.0}},
}


@pytest.fixture(scope="module")
def report() -> str:
    return page(study(QUESTIONS))


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_captions_are_within_the_screen_and_wide_parts_scroll(
    browser: "Browser", report: str, width: int, scheme: str
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    try:
        shown = context.new_page()
        shown.set_content(report)
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        edges = shown.eval_on_selector_all(
            "figcaption, .scroll", "all => all.map(one => one.getBoundingClientRect().right)"
        )
        assert len(edges) > 6 and max(edges) <= width
        words = shown.eval_on_selector_all("figcaption", "all => all.map(one => one.scrollWidth - one.clientWidth)")
        assert words and max(words) == 0
        pictures = shown.eval_on_selector_all("img", "all => all.map(one => one.width)")
        assert len(pictures) == 3 and min(pictures) >= 600, "letters of pictures are to be read"
        regions = shown.eval_on_selector_all(".scroll", "all => all.map(one => [one.tabIndex, one.ariaLabel])")
        assert all(index == 0 and label for index, label in regions)
    finally:
        context.close()
