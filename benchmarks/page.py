"""The planner's web page in Chromium: time to the first plan, how soon sliders answer, and bytes that are transferred.

`python -m benchmarks.page` starts a service of its own; `--address URL` asks one that runs. It needs playwright, and
Chromium as /usr/bin/chromium or in HELM_CHROMIUM. Exit code 4: a target was missed."""

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

CHROMIUM = os.environ.get("HELM_CHROMIUM", "/usr/bin/chromium")
FIRST_S = 1.0
"""Seconds after loading in which a first plan is to be visible."""
SLIDER_S = 0.150
"""Seconds in which a slider is to answer, at the median."""
MOST_BYTES = 1_000_000
VISITS = 5
MOVES = {"vram": 8, "dram_bw": 6, "vram_bw": 6, "context": 4, "batch": 4}
"""Positions that each slider is moved to; none of them was asked before."""
QUESTIONS = {
    "q4_k": "#model=Qwen3-14B&machine=rtx4060-laptop&format=q4_k",
    "q4_k_m": "#model=Qwen3-14B&machine=rtx4060-laptop&format=q4_k_m",
}
"""Questions whose answers are divided between CPU and GPU. In files of `q4_k_m` some matrices have another format, and
planning takes several times as long: its figure is told beside that of the target."""

WATCH = """
addEventListener("DOMContentLoaded", () => {
  const seen = window.helmSeen = { first: null, moved: 0, answers: [] };
  addEventListener("input", () => { seen.moved = performance.now(); }, true);
  new MutationObserver(() => {
    const state = document.querySelector("#verdict").dataset.state;
    if (!state) return;
    requestAnimationFrame(() => setTimeout(() => {
      const now = performance.now();
      seen.first ??= now;
      if (!seen.moved) return;
      const request = performance.getEntriesByType("resource").filter((one) => one.name.endsWith("/v1/plans")).at(-1);
      seen.answers.push([now - seen.moved, request.responseEnd - request.startTime]);
      seen.moved = 0;
    }));
  }).observe(document.querySelector("#verdict"), { childList: true, attributeFilter: ["data-state"] });
});
"""
"""Notes when a verdict has been painted: after loading, and after a slider has moved."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds until the first plan of each visit, seconds of each slider's answer and of the request in it, by format,
    and bytes of a visit."""

    first: list[float]
    sliders: dict[str, list[tuple[float, float]]]
    transferred: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--address", help="of a service that runs (default: one is started)")
    with served(parser.parse_args().address) as address:
        figures = measured(address)
    return told(figures)


@contextmanager
def served(address: str | None) -> Iterator[str]:
    """Give the address of a service: the one that is named, or a new one."""
    if address is not None:
        yield address
        return
    with TemporaryDirectory(prefix="helm-page-") as store:
        command = [sys.executable, "-c", "from helmsman.cli.web import main; raise SystemExit(main())"]
        arguments = ["--port", "0", "--store", store]
        process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        line = re.search(r"http://[\d.:]+", process.stdout.readline())
        try:
            assert line is not None, "helm-web did not start"
            yield line[0]
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def measured(address: str) -> Figures:
    """Visit the page several times, and move its sliders once."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        visits = [visit(browser, address) for _ in range(VISITS)]
        sliders = {name: moved(browser, f"{address}/{question}") for name, question in QUESTIONS.items()}
        browser.close()
    return Figures([seconds for seconds, _ in visits], sliders, visits[0][1])


def visit(browser: "Browser", address: str) -> tuple[float, int]:
    """Return the seconds from the start of loading to the first plan, and the bytes of the visit."""
    finished = list["Request"]()
    page = _page(browser)
    page.on("requestfinished", lambda request: finished.append(request))
    page.goto(address)
    page.wait_for_selector("#verdict[aria-busy=false] [data-answer=best]")
    first = page.evaluate("helmSeen.first") / 1e3
    transferred = sum(_size(request) for request in list(finished))
    page.context.close()
    return first, transferred


def moved(browser: "Browser", address: str) -> list[tuple[float, float]]:
    """Return the seconds in which sliders answered, and those of the request, position by position."""
    page = _page(browser)
    page.goto(address)
    page.wait_for_selector("#verdict[aria-busy=false] [data-answer=best]")
    for name, times in MOVES.items():
        page.focus(f"#slider-{name}")
        for _ in range(times):
            before = page.evaluate("helmSeen.answers.length")
            page.keyboard.press("ArrowRight")
            page.wait_for_function("before => helmSeen.answers.length > before", arg=before)
    answers: list[tuple[float, float]] = page.evaluate("helmSeen.answers")
    page.context.close()
    return [(whole / 1e3, request / 1e3) for whole, request in answers]


def told(figures: Figures) -> int:
    """Print the figures beside their targets and return the exit code."""
    first = max(figures.first)
    print(
        f"first plan     median {median(figures.first):.2f} s, worst {first:.2f} s of {VISITS} visits (<= {FIRST_S:g})"
    )
    middles = {name: _told_slider(name, answers) for name, answers in figures.sliders.items()}
    print(f"transfer       {figures.transferred / 1e3:.0f} kB (<= {MOST_BYTES / 1e3:g})")
    print(f"load           {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, {_processor()}")
    soon = next(iter(middles.values())) <= SLIDER_S
    return 0 if first <= FIRST_S and soon and figures.transferred <= MOST_BYTES else 4


def _told_slider(name: str, answers: list[tuple[float, float]]) -> float:
    whole = [seconds for seconds, _ in answers]
    middle, request = median(whole), median(seconds for _, seconds in answers)
    worst = quantiles(whole, n=20)[-1]
    shown = f"median {middle * 1e3:.0f} ms, {request * 1e3:.0f} of them the request, p95 {worst * 1e3:.0f} ms"
    print(f"slider {name:7} {shown}, {len(whole)} positions (<= {SLIDER_S * 1e3:g})")
    return middle


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "unknown")


def _page(browser: "Browser") -> "Page":
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.add_init_script(WATCH)
    return page


def _size(request: "Request") -> int:
    sizes = request.sizes()
    return sizes["responseBodySize"] + sizes["responseHeadersSize"]


if __name__ == "__main__":
    raise SystemExit(main())
