"""Rules: accessible to screen readers and keyboards, nothing from elsewhere, small, quiet."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser
Visit = Callable[..., Any]

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
MOST_BYTES = 1_000_000
DIVIDED = "#model=Qwen3-14B&machine=rtx4060-laptop&format=q4_k&method=layer-split"
VIEWS = {
    "plan": DIVIDED,
    "misfit": "#model=Llama-3.1-70B&machine=rtx4060-laptop&format=f16&method=layer-split",
    "studies": "#view=studies",
}
SCREENS = {"light": (1440, 900, "light"), "dark": (1440, 900, "dark"), "phone": (390, 844, "light")}


def _violations(page: Any) -> list[str]:
    page.add_script_tag(path=str(AXE))
    report = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in report["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_serious(visit: Visit, view: str, screen: str) -> None:
    if not AXE.exists():
        pytest.skip("needs axe-core: npm ci --prefix tests/page")
    width, height, scheme = SCREENS[screen]
    visitor = visit(width, height, color_scheme=scheme, bypass_csp=True)
    page = visitor.open(VIEWS[view])
    page.wait_for_selector("#studies form" if view == "studies" else "#verdict[data-state][aria-busy=false]")
    if view == "plan":
        for part in ("#engines", "#alternatives", "#sources", "#curves", "#timeline"):
            page.locator(part).scroll_into_view_if_needed()
            page.wait_for_selector(f"{part}[aria-busy=false], {part}:not([aria-busy])")
    if view != "misfit":
        page.evaluate("() => { for (const one of document.querySelectorAll('details')) one.open = true; }")
        page.wait_for_timeout(200)
    assert _violations(page) == []


def test_dialogs_and_lists_are_accessible_too(visit: Visit) -> None:
    if not AXE.exists():
        pytest.skip("needs axe-core: npm ci --prefix tests/page")
    visitor = visit(bypass_csp=True)
    page = visitor.open(DIVIDED)
    visitor.best()
    page.click("#machine")
    page.keyboard.press("ArrowDown")
    assert _violations(page) == []
    page.keyboard.press("Escape")
    page.click("#machine-edit")
    page.wait_for_selector("#dialog[open]")
    assert _violations(page) == []


def test_all_that_is_transferred_is_small(visit: Visit) -> None:
    visitor = visit()
    sizes: list[int] = []

    def weigh(request: Any) -> None:
        size = request.sizes()
        sizes.append(size["responseBodySize"] + size["responseHeadersSize"])

    visitor.page.on("requestfinished", weigh)
    page = visitor.open()
    visitor.best()
    for part in ("#engines", "#alternatives", "#curves", "#timeline"):
        page.locator(part).scroll_into_view_if_needed()
        page.wait_for_selector(f"{part}[aria-busy=false]")
    files = [url for url in visitor.requests if "/v1/" not in url]
    assert len(files) > 20
    assert sum(sizes) <= MOST_BYTES, f"{len(sizes)} answers"


def test_keys_alone_reach_everything_and_leave_it(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open(DIVIDED)
    visitor.best()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "answer"
    seen = set()
    page.focus(".brand")
    for _ in range(45):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"copy-link", "theme", "model", "machine", "format", "prompt", "slider-vram", "slider-batch"} <= seen


def test_without_motion_nothing_moves(visit: Visit) -> None:
    visitor = visit(reduced_motion="reduce")
    page = visitor.open(DIVIDED)
    visitor.best()
    assert (
        page.evaluate("getComputedStyle(document.querySelector('#memory .tier-bar span')).transitionDuration") == "0s"
    )
