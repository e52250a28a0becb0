"""Settings that are written for engines without a parser here are kept whole, with the documents that they follow."""

import json
from pathlib import Path
from typing import Any

import pytest

from helmsman.library import emit
from helmsman.planner.read_request import request_from
from helmsman.planner.settings.engine_format import SettingsSubject
from helmsman.planner.settings.registry import engine_format, engine_of, read_text
from helmsman.schemas.engine_names import ENGINES

KEPT = Path(__file__).parents[1] / "cases" / "engine_settings"
OTHERS = [engine for engine in ENGINES if engine != "llama.cpp"]


def golden(engine: str) -> dict[str, Any]:
    """Return the kept questions with what is written for them, and the source that it was compared with."""
    content: dict[str, Any] = json.loads((KEPT / f"{engine.replace('-', '_')}.json").read_text())
    return content


@pytest.mark.parametrize("engine", OTHERS)
def test_what_is_written_is_what_documents_say(engine: str) -> None:
    for case in golden(engine)["cases"]:
        written = emit(case["question"], engine)
        assert written.text.splitlines() == case["text"]
        assert [lost.instead for lost in written.differences] == case["instead"]


@pytest.mark.parametrize("engine", OTHERS)
def test_what_is_written_is_read_as_a_question(engine: str) -> None:
    for case in golden(engine)["cases"]:
        request = request_from(case["question"])
        subject = SettingsSubject(request.model, request.weights, request.formats, request.hardware, request.workload)
        text = "\n".join(case["text"]) + "\n"
        read = read_text(text, subject)
        assert engine_of(text) == engine == read.engine
        said = {"strategy": read.strategy, "options": dict(read.options), "kv": read.kv}
        assert {**said, "context": read.context, "batch": read.batch} == case["read"]


@pytest.mark.parametrize("engine", OTHERS)
def test_goldens_are_of_the_version_that_is_named(engine: str) -> None:
    content, named = golden(engine), engine_format(engine)
    assert content["version"] == named.version and content["source"] == named.source
