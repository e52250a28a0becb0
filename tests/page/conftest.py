"""A planner service, Chromium, and visitors who note what a page must not do.

These tests need Debian's Chromium and playwright, and are run by `make page`."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

CHROMIUM = os.environ.get("HELM_CHROMIUM", "/usr/bin/chromium")
PATIENCE_MS = 30_000
"""Milliseconds that an element may take to come: some answers take seconds, on cores that are busy with other tests."""
REFUSED = re.compile(r"Failed to load resource: the server responded with a status of 4\d\d")
"""What Chromium itself writes about an answer that is a refusal; the page cannot keep it from that."""


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a planner service of this session, or of the one that HELM_WEB_ADDRESS names."""
    if "HELM_WEB_ADDRESS" in os.environ:
        yield os.environ["HELM_WEB_ADDRESS"]
        return
    folder = tmp_path_factory.mktemp("web")
    command = [sys.executable, "-c", "from helmsman.cli.web import main; raise SystemExit(main())"]
    arguments = ["--port", "0", "--store", str(folder / "store"), "--jobs", "2"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            address = re.search(r"http://[\d.:]+", line)
            assert address, f"helm-web said {line!r}, {(folder / 'log').read_text()[-2000:]}"
            yield address[0]
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """Chromium, as the system has it."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"needs Chromium as {CHROMIUM}: apt-get install chromium, or name it in HELM_CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


class Visitor:
    """A page and what went on in it: `mistakes` that it wrote or threw, `requests` that it sent."""

    def __init__(self, page: "Page", address: str) -> None:
        self.page, self.address = page, address
        self.mistakes, self.requests = list[str](), list[str]()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.mistakes.append(str(error)))
        page.on("request", self._note)

    def open(self, fragment: str = "") -> "Page":
        """Open the page with what follows its address."""
        self.page.goto(f"{self.address}/{fragment}")
        return self.page

    def best(self) -> None:
        """Wait for the answer of the chosen method to the newest question."""
        self.page.wait_for_selector("#verdict[data-state=fits][aria-busy=false]:not(.stale) [data-answer=best]")

    def outside(self) -> list[str]:
        """Return requests that went elsewhere than to the service."""
        own = urlsplit(self.address).netloc
        return [
            url for url in self.requests if urlsplit(url).scheme in ("http", "https") and urlsplit(url).netloc != own
        ]

    def _hear(self, message: "ConsoleMessage") -> None:
        if message.type in ("error", "warning") and not REFUSED.match(message.text):
            self.mistakes.append(message.text)

    def _note(self, request: "Request") -> None:
        self.requests.append(request.url)


@pytest.fixture
def visit(browser: "Browser", service: str) -> Iterator[Callable[..., Visitor]]:
    """visit(width, height, **settings of the context) -> Visitor; after the test none may have seen a mistake."""
    contexts, visitors = [], []

    def enter(width: int = 1440, height: int = 900, **settings: Any) -> Visitor:
        context = browser.new_context(viewport={"width": width, "height": height}, **settings)
        contexts.append(context)
        visitors.append(Visitor(context.new_page(), service))
        return visitors[-1]

    yield enter
    for context in contexts:
        context.close()
    for visitor in visitors:
        assert visitor.mistakes == []
        assert visitor.outside() == []


@pytest.fixture
def config() -> dict[str, Any]:
    """A config.json as repositories of models have it."""
    return {
        "model_type": "qwen3",
        "num_hidden_layers": 20,
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 6144,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
