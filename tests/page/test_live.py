"""Sliders answer while they move; stale answers, slow ones, and a service that is gone."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.browser
Visit = Callable[..., Any]

LARGE = "#model=Qwen3-14B&machine=rtx4060-laptop&format=q4_k"


def test_a_slider_answers_with_the_quick_method_and_then_the_best(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open()
    visitor.best()
    sent: list[dict[str, Any]] = []
    page.on("request", lambda request: request.url.endswith("/v1/plans") and sent.append(json.loads(request.post_data)))
    page.focus("#slider-vram")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("[data-answer=quick]")
    assert "split by layers" in page.inner_text("#verdict .badges")
    visitor.best()
    assert "best of several" in page.inner_text("#verdict .badges")
    asked = [question for question in sent if "engine" not in question]  # which the panel of engines asks beside
    assert [question["strategy"] for question in asked[:2]] == ["layer-split", "best"]
    assert asked[0]["hardware"]["changes"] == ["vram=10GiB"]
    assert page.get_attribute("#slider-vram", "aria-valuetext") == "10 GiB"
    assert "10 GiB" in page.inner_text("#verdict .echo")


@pytest.mark.parametrize("name", ["vram_bw", "dram_bw", "link", "context"])
def test_every_slider_changes_the_question(visit: Visit, name: str) -> None:
    visitor = visit()
    page = visitor.open(f"{LARGE}&method=layer-split")
    visitor.best()
    before = page.inner_text("#verdict")
    page.focus(f"#slider-{name}")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("before => document.querySelector('#verdict').innerText !== before", arg=before)
    visitor.best()
    assert page.is_visible("#reset") == (name != "context")


def test_more_requests_at_a_time_are_told_apart(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(f"{LARGE}&method=layer-split")
    visitor.best()
    page.focus("#slider-batch")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#verdict .figure:has-text('for each of 2')")
    assert "2 at a time" in page.inner_text("#verdict .echo")


def test_a_late_answer_to_an_earlier_position_is_dropped(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(f"{LARGE}&method=layer-split")
    visitor.best()
    held = []

    def hold(route: Any) -> None:
        question = json.loads(route.request.post_data)
        changes = question["hardware"]["changes"] if isinstance(question["hardware"], dict) else []
        if changes == ["vram=10GiB"]:
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/plans", hold)
    page.focus("#slider-vram")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(2_200)
    assert len(held) == 1
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#verdict:not(.stale) .echo:has-text('11 GiB')")
    shown = page.inner_text("#verdict")
    if not held[0].request.failure:
        held[0].continue_()
    page.wait_for_timeout(300)
    assert page.inner_text("#verdict") == shown


def test_the_last_answer_stays_when_the_service_is_gone(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(f"{LARGE}&method=layer-split")
    visitor.best()
    page.route("**/v1/**", lambda route: route.abort())
    page.select_option("#format", "q8_0")
    page.wait_for_selector("#verdict[data-state=refused]")
    assert "does not answer" in page.inner_text("#verdict")
    assert "helm-web" in page.inner_text("#verdict")
    assert page.locator("#strip.stale .cell").count() == 40
    page.unroute("**/v1/**")
    page.select_option("#format", "q4_k")
    visitor.best()
    visitor.mistakes[:] = [text for text in visitor.mistakes if "ERR_FAILED" not in text]


def test_a_slow_answer_shows_that_it_is_under_way(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(f"{LARGE}&method=layer-split")
    visitor.best()
    held: list[Any] = []
    page.route("**/v1/plans", lambda route: held.append(route))
    page.select_option("#format", "q8_0")
    page.wait_for_selector("#verdict[aria-busy=true]")
    held[0].continue_()
    page.unroute("**/v1/plans")
    visitor.best()
    assert "Q8_0" in page.inner_text("#verdict .echo")


def test_answers_are_announced_once_nothing_moves(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(f"{LARGE}&method=layer-split")
    visitor.best()
    page.wait_for_function(
        "() => document.querySelector('#announcer').textContent.includes('tokens a second, between')"
    )
