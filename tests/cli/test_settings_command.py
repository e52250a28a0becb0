"""`helm-plan --emit` and `--from`: settings of other engines on the command line, and from a server that runs."""

import io
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from plan_command import run

from helmsman.library import emit, read_settings
from helmsman.schemas.errors import HardwareUnavailableError, UsageError
from helmsman.schemas.generate import json_schema

ASKED = ("--model", "Qwen3-14B", "--hw", "rtx4060-laptop", "--format", "q4_k")
QUESTION = {"model": "Qwen3-14B", "hardware": "rtx4060-laptop", "format": "q4_k", "strategy": "llama-cpp"}
PROPS = {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 1, "build_info": "b9000"}


def test_a_command_is_printed_alone_and_can_be_read(capsys: Any, tmp_path: Path) -> None:
    code, command, told = run(capsys, *ASKED, "--strategy", "llama-cpp", "--ngl", "20", "--emit", "llama.cpp")
    assert code == 0 and told == "" and command.startswith("llama-server -ngl 20 ") and command.count("\n") == 1
    place = tmp_path / "command.sh"
    place.write_text(command)
    code, text, _ = run(capsys, *ASKED, "--strategy", "llama-cpp", "--from", place)
    first = text.splitlines()[0]
    said = re.match(r"yours: ([\d.]+), Helm's: ([\d.]+) tokens/s, because steps spend ", first)
    assert code == 0 and said is not None and float(said[1]) < float(said[2]), text
    assert "on the CPU instead of" in first or "on the CPU instead of" in text.replace("\n             ", " ")


@pytest.mark.parametrize("engine", ["llama.cpp", "ollama", "lm-studio"])
def test_the_document_of_settings_is_read_as_the_settings(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    place = tmp_path / "out.json"
    question = ("--model", "Qwen3-0.6B", "--hw", "rtx4060-laptop", "--strategy", "llama-cpp")
    code, settings, _ = run(capsys, *question, "--format", "q4_k_m", "--emit", engine, "-o", place)
    assert code == 0 and json.loads(place.read_text())["text"].rstrip() == settings.rstrip()
    read = run(capsys, *question, "--from", place, "--json")
    assert read[0] == 0 and json.loads(read[1])["engine"] == engine
    assert read == run(capsys, *question, "--from", settings, "--json"), "the format that they state is read too"
    monkeypatch.setattr("sys.stdin", io.StringIO(place.read_text()))
    assert read == run(capsys, *question, "--from", "-", "--json")


def test_a_document_without_settings_is_called_what_it_is(capsys: Any, tmp_path: Path) -> None:
    place = tmp_path / "out.json"
    assert run(capsys, *ASKED, "--strategy", "llama-cpp", "-o", place)[0] == 0
    code, _, told = run(capsys, *ASKED, "--from", place)
    assert code == 5 and "helm.plan/1" in told and "helm.engine-settings/1" in told, told
    assert run(capsys, *ASKED, "--strategy", "llama-cpp", "--emit", "ollama", "-o", place)[0] == 0
    place.write_text(place.read_text().replace('"engine": "ollama"', '"engine": "olama"'))
    code, _, told = run(capsys, *ASKED, "--from", place)
    assert code == 5 and "engine: no such choice (got 'olama')" in told, told


def test_what_is_lost_goes_to_standard_error(capsys: Any) -> None:
    asked = (*ASKED, "--strategy", "flexgen", "--emit", "ollama")
    code, text, told = run(capsys, *asked)
    assert code == 0 and text.startswith("# the environment") and "PARAMETER num_gpu" in text
    assert "warning: ollama cannot say: " in told and "note: predicted with these settings" in told
    assert run(capsys, *asked, "-q")[1:] == ("", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--emit", "llamacpp"), "llama.cpp"),
        (("--from", "llama-server --ngl 3"), "--from"),
        (("--from", "-ngl 3", "--emit", "vllm"), "--from"),
        (("--emit", "vllm", "--strategy", "all"), "one strategy"),
        (("--emit", "vllm", "--max-context"), "one strategy"),
        (("--from", "llama-server -c 100"), "no room for prompt and output"),
        (("--from", "ftp://x/props", "-q"), "no program"),
    ],
)
def test_what_makes_no_sense_is_refused(capsys: Any, words: tuple[str, ...], message: str) -> None:
    code, _, told = run(capsys, *ASKED, *words)
    assert code == 2 and message in told and told.count("\n") == 1, told


def test_documents_follow_their_schemas(capsys: Any) -> None:
    for words, name in ((("--emit", "lm-studio"), "engine-settings"), (("--from", "-ngl 5"), "settings-reading")):
        code, text, told = run(capsys, *ASKED, "--strategy", "llama-cpp", *words, "--json")
        assert code == 0, told
        document = json.loads(text)
        Draft202012Validator(json_schema(name)).validate(document)
        assert document["schema"] == f"helm.{name}/1"


@pytest.fixture
def server() -> Iterator[str]:
    """A server that says what llama-server says of itself, at its address."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/props" else 404)
            self.end_headers()
            self.wfile.write(json.dumps(PROPS).encode())

        def log_message(self, *_: object) -> None:
            pass

    serving = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{serving.server_port}"
    serving.shutdown()
    serving.server_close()
    thread.join()


def test_a_server_that_runs_is_read(server: str) -> None:
    reading = read_settings(server, QUESTION)
    assert reading.placed == ("1 slots", "4096 tokens of each") and "build_info b9000" in reading.idle
    assert any("--fit" in text for text in reading.assumed)
    with pytest.raises(UsageError, match="not the address of a server"):
        read_settings(f"{server}/v1/models", QUESTION)


def test_a_server_that_does_not_answer_is_unavailable() -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed:
        port = closed.server_port
    with pytest.raises(HardwareUnavailableError, match="does not answer"):
        read_settings(f"http://127.0.0.1:{port}", QUESTION)


def test_settings_that_do_not_fit_say_so() -> None:
    content = emit({**QUESTION, "strategy": "layer-split"}, "vllm")
    assert content.nearest is not None or "fit" in (content.unpriced or "")
