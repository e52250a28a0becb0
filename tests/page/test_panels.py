"""What is below the verdict: settings, other ways, sources, curves, the timeline, and many people."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from helmsman.planner.registry import OWN

pytestmark = pytest.mark.browser
Visit = Callable[..., Any]

DIVIDED = "#model=Qwen3-14B&machine=rtx4060-laptop&format=q4_k&method=layer-split&prompt=300&answer=100&context=2048"


def _seen(page: Any, part: str, content: str) -> None:
    page.locator(part).scroll_into_view_if_needed()
    page.wait_for_selector(f"{part} {content}")
    page.wait_for_selector(f"{part}[aria-busy=false]")


def test_the_strip_says_where_each_layer_runs(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(DIVIDED)
    visitor.best()
    cpu, gpu = page.locator("#strip .cell-cpu").count(), page.locator("#strip .cell-gpu").count()
    assert cpu > 0 and gpu > 0 and cpu + gpu == 40
    assert f"{cpu} layers on the CPU" in page.inner_text("#strip .legend")
    assert f"layers 1 to {cpu} on the CPU" in (page.get_attribute("#strip svg", "aria-label") or "")


def test_memory_bars_are_as_long_as_their_parts(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(DIVIDED)
    visitor.best()
    width = "part => part.getBoundingClientRect().width"
    parts = f"bar => [...bar.children].map({width}).reduce((sum, one) => sum + one, 0) / bar.clientWidth"
    shares = page.eval_on_selector_all("#memory .tier-bar", f"bars => bars.map({parts})")
    assert len(shares) == 2
    assert all(abs(share - 1) < 0.02 for share in shares)


def test_settings_are_copied(visit: Visit) -> None:
    visitor = visit(permissions=["clipboard-read", "clipboard-write"])
    page = visitor.open(DIVIDED)
    visitor.best()
    _seen(page, "#engines", ".command")
    command = page.inner_text("#engines .command code")
    assert command.startswith("llama-server -ngl ")
    page.click("#engines .command button")
    page.wait_for_selector("#notes:has-text('Settings copied')")
    assert page.evaluate("navigator.clipboard.readText()") == command
    page.click("#engine-choices [data-engine=vllm]")
    page.wait_for_selector("#engines .body:not(:has-text('llama-server'))")
    assert page.get_attribute("#engine-choices [data-engine=vllm]", "aria-pressed") == "true"


def test_other_ways_are_compared_the_fastest_first(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(DIVIDED)
    visitor.best()
    _seen(page, "#alternatives", "tbody tr")
    rows = page.locator("#alternatives .ways-table tbody tr")
    assert rows.count() > 5
    assert "fastest" in rows.first.inner_text()
    page.evaluate("() => { for (const one of document.querySelectorAll('#alternatives details')) one.open = true; }")
    methods = page.inner_text("#alternatives")
    assert "llama.cpp" in methods and "vLLM" in methods and "Split by layers" in methods


def test_sources_are_named_for_tokens_and_the_prompt(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(DIVIDED)
    visitor.best()
    of_tokens = page.inner_text("#sources .body")
    assert "Limited by" in of_tokens
    assert page.locator("#sources .chip").count() > 5
    page.click("#phase-choices [data-phase=prefill]")
    assert page.inner_text("#sources .body") != of_tokens
    page.click("#sources details summary")
    assert page.locator("#sources td.where").first.inner_text() != ""


def test_curves_and_the_front_are_drawn_and_told_as_numbers(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(DIVIDED)
    visitor.best()
    _seen(page, "#curves", "[data-curve=front] canvas")
    assert page.locator("#curves canvas").count() == 4
    page.click("#curves [data-curve=prompts] details summary")
    table = page.locator("#curves [data-curve=prompts] table")
    assert table.locator("tbody tr").count() >= 6
    assert "at least" in table.inner_text() and "at most" in table.inner_text()
    page.locator("#curves [data-curve=prompts] .u-over").hover(position={"x": 60, "y": 60})
    assert "tokens of prompt" in page.inner_text("#curves [data-curve=prompts] .chart-read")
    assert "at a time" in page.inner_text("#curves [data-curve=front] .about")


def test_the_timeline_zooms_by_buttons_keys_and_wheel(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(DIVIDED)
    visitor.best()
    _seen(page, "#timeline", "canvas")
    said = lambda: page.inner_text("#timeline .gantt-said")  # noqa: E731
    token = said()
    page.click("#timeline button:has-text('All')")
    whole = said()
    assert whole != token and whole.startswith("0 s")
    page.click("#timeline button[title='Zoom in']")
    closer = said()
    assert closer != whole
    page.focus("#timeline canvas")
    page.keyboard.press("+")
    assert said() != closer
    before = said()
    page.keyboard.press("ArrowRight")
    assert said() != before
    page.keyboard.press("Home")
    assert said() == whole
    page.locator("#timeline canvas").hover(position={"x": 200, "y": 40})
    page.mouse.wheel(0, -300)
    page.wait_for_function("whole => document.querySelector('#timeline .gantt-said').innerText !== whole", arg=whole)
    page.click("#timeline details summary")
    assert page.locator("#timeline details tbody tr").count() > 3
    page.click("#timeline button:has-text('Prompt')")
    assert "GPU" in page.inner_text("#timeline details table")


SMALL = "#model=Qwen3-0.6B&machine=rtx4060-laptop&format=q4_k&method=layer-split&prompt=64&answer=16&context=256"


@pytest.mark.parametrize(("within", "most"), [("0.05", "draws"), ("20", "no rate misses these limits")])
def test_requests_of_many_people_are_simulated(visit: Visit, within: str, most: str) -> None:
    visitor = visit()
    page = visitor.open(SMALL)
    visitor.best()
    page.fill("#serve-rate", "2")
    page.fill("#serve-ttft", within)
    page.fill("#serve-tpot", within)
    page.click("#serving button[type=submit]")
    page.wait_for_selector("#serving table", timeout=90_000)
    assert most in page.inner_text("#serving .tiles")
    assert "99 of 100" in page.inner_text("#serving table")
    page.fill("#serve-rate", "none")
    page.click("#serving button[type=submit]")
    page.wait_for_selector("#serving [role=alert]:not([hidden])")


def test_experts_elsewhere_are_drawn_below_their_layer(visit: Visit) -> None:
    """Words of the strip say how many are where, and each part has the colour of its place."""
    visitor = visit()
    page = visitor.open("#model=Qwen3-30B-A3B&machine=rtx4080-14700k&format=q4_k&method=ktransformers")
    page.wait_for_selector("#strip .cell-experts")
    words = page.get_attribute("#strip svg", "aria-label") or ""
    [(kept, away)] = set(re.findall(r"of the experts of each, (\d+) on the GPU, (\d+) on the CPU", words))
    assert int(kept) + int(away) == 128
    assert page.locator("#strip .cell-experts").first.locator("rect.cell-cpu").count() == 1
    assert f"{away} on the CPU" in page.inner_text("#strip .legend")


def test_experts_in_slots_are_drawn_beside_their_home(visit: Visit) -> None:
    """Of a hybrid: over a half of the part that is their home's, in the colour of the place that computes them."""
    visitor = visit()
    page = visitor.open("#model=Qwen3.5-35B-A3B&machine=rtx4080-14700k&format=q4_k&method=freetoken")
    page.wait_for_selector("#strip .cell-experts")
    words = page.get_attribute("#strip svg", "aria-label") or ""
    assert re.search(r"256 on the CPU, the \d+ used last also on the GPU", words)
    assert page.locator("#strip .cell-experts").first.locator("rect.cell-gpu").count() == 2


def test_methods_of_the_front_are_chosen(visit: Visit) -> None:
    """What answers soon is compared at first; a visitor adds methods, or all that the service has."""
    visitor = visit()
    page = visitor.open(SMALL)
    visitor.best()
    _seen(page, "#curves", "[data-curve=front] canvas")
    front = "#curves [data-curve=front]"
    page.wait_for_selector(f"{front} summary:has-text('4 of {len(OWN)} methods')")
    page.click(f"{front} .front-methods summary")
    prompts = page.locator("#curves [data-curve=prompts] figure").element_handle()
    page.click(f"{front} [data-method=twinpilots]")
    assert page.evaluate("document.activeElement.dataset.method") == "twinpilots"
    page.wait_for_selector(f"{front} .legend:has-text('TwinPilots')")
    assert page.locator(f"{front} .legend :is(.key-shape-1, .key-shape-2)").count() == 1
    assert prompts is not None and prompts.evaluate("figure => figure.isConnected"), "the others are not drawn again"
    asked: list[list[str]] = []

    def fewer(route: Any) -> None:
        """All methods take half a minute of a processor that is free; those that are quick stand for them."""
        body = json.loads(route.request.post_data)
        asked.append(body["strategies"])
        route.continue_(post_data=json.dumps({**body, "strategies": ["layer-split", "accelerate", "weights-on-host"]}))

    page.route("**/v1/comparisons", fewer)
    page.click(f"{front} [data-method=all]")
    page.wait_for_selector(f"{front} summary:has-text('{len(OWN)} of {len(OWN)} methods')")
    page.wait_for_selector(f"{front} .legend:has-text('Accelerate')")
    assert [len(names) for names in asked] == [len(OWN)] and "best" not in asked[0]
    page.unroute("**/v1/comparisons")
    page.click(f"{front} [data-method=all]")
    page.wait_for_selector(f"{front} summary:has-text('4 of {len(OWN)} methods')")
    for name in ("layer-split", "llama-cpp", "vllm"):
        page.click(f"{front} [data-method={name}]")
    page.wait_for_selector("#notes:has-text('At least two methods')")
    assert page.get_attribute(f"{front} [data-method=vllm]", "aria-pressed") == "true"
