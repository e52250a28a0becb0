"""Links hold the whole question; themes are kept; narrow screens need no scrolling sideways."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.browser
Visit = Callable[..., Any]

WHOLE = (
    "#model=Qwen3-14B&machine=rtx4060-laptop&format=q4_k&kv=q8_0&goal=latency&method=layer-split"
    "&prompt=300&answer=100&context=6144&batch=2&vram=12GiB&dram_bw=x1.5"
)


def _plain(page: Any) -> str:
    return str(page.inner_text("#verdict"))


def test_a_link_asks_the_same_question_again(visit: Visit) -> None:
    first = visit(permissions=["clipboard-read", "clipboard-write"])
    page = first.open(WHOLE)
    first.best()
    page.focus("#slider-vram")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#verdict:not(.stale) .echo:has-text('14 GiB')")
    page.click("#copy-link")
    page.wait_for_selector("#notes:has-text('Link copied')")
    link = page.evaluate("navigator.clipboard.readText()")
    second = visit()
    again = second.page
    again.goto(link)
    second.best()
    assert _plain(again) == _plain(page)
    for field in ("#model", "#machine", "#format", "#kv", "#goal", "#method", "#prompt", "#answer-tokens"):
        assert again.input_value(field) == page.input_value(field)
    for slider in ("vram", "dram_bw", "context", "batch"):
        assert again.get_attribute(f"#slider-{slider}", "aria-valuetext") == page.get_attribute(
            f"#slider-{slider}", "aria-valuetext"
        )


def test_a_link_holds_a_model_of_ones_own(visit: Visit, config: dict[str, Any]) -> None:
    first = visit()
    page = first.open("#machine=rtx4060-laptop&format=q4_k&method=layer-split")
    first.best()
    page.click("#model-paste")
    page.fill("#pasted-name", "mine")
    page.fill("#pasted", json.dumps(config))
    page.click("#dialog button[type=submit]")
    page.wait_for_selector("#verdict .echo:has-text('mine')")
    first.best()
    page.wait_for_function("() => location.hash.includes('model=%7E')")
    second = visit()
    second.page.goto(page.url)
    second.best()
    assert _plain(second.page) == _plain(page)


def test_a_broken_link_asks_the_first_question(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open("#model=~broken&machine=~")
    visitor.best()
    assert page.input_value("#model") == "Qwen3-8B"


def test_an_address_that_is_changed_by_hand_asks_anew(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(WHOLE)
    visitor.best()
    page.evaluate("location.hash = 'model=Qwen3-0.6B&machine=rtx4060-laptop&format=q4_k&method=layer-split'")
    page.wait_for_selector("#verdict:not(.stale) .echo:has-text('Qwen3-0.6B')")


def test_the_theme_goes_through_three_and_is_kept(visit: Visit) -> None:
    visitor = visit(color_scheme="light")
    page = visitor.open(WHOLE)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.click("#theme")
    assert page.evaluate(ground) == light
    page.click("#theme")
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    page.wait_for_selector("html[data-theme=dark]")
    assert page.evaluate(ground) == dark
    page.click("#theme")
    assert page.evaluate(ground) == light
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) == dark


@pytest.mark.parametrize("width", [360, 390, 820])
def test_nothing_is_wider_than_a_narrow_screen(visit: Visit, width: int) -> None:
    visitor = visit(width, 844)
    page = visitor.open("#model=Qwen3-14B&machine=rtx4060-laptop&format=q4_k")
    visitor.best()
    for part in ("#engines", "#alternatives", "#sources", "#curves", "#timeline"):
        page.locator(part).scroll_into_view_if_needed()
        page.wait_for_selector(f"{part}[aria-busy=false], {part}:not([aria-busy])")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.wait_for_selector("#pocket:not([hidden])")
    assert "tokens/s" in page.inner_text("#pocket")
    page.click("[data-view=studies]")
    page.wait_for_selector("#studies form")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
