"""helm-serve: from the command line to answers and to its end."""

import json
import os
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.virtual_engine import ROOM, VirtualEngine
from daily import one_in
from http_service import MODEL
from plans import make_plan
from together import together

from helmsman.analysis.ask_serving import setup_of
from helmsman.cli import bench_serve, extras, serve, sim
from helmsman.cli.serving_setup import setting_of
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.read import read_document
from helmsman.schemas.server_ready import ServerReady
from helmsman.service.http.listening import listen
from helmsman.service.inference import open_generator

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The arguments PLAN --checkpoint DIR."""
    folder = tmp_path_factory.mktemp("served")
    write_checkpoint(MODEL, folder / "checkpoint", seed=1)
    (folder / "plan.json").write_text(make_plan(MODEL).to_json())
    return str(folder / "plan.json"), "--checkpoint", str(folder / "checkpoint")


@pytest.fixture
def command(places: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """command(*arguments) -> (exit code, stdout, stderr), with a virtual engine."""
    monkeypatch.setattr(open_generator, "open_generator", lambda *_, **__: VirtualEngine())

    def call(*arguments: str) -> tuple[int, str, str]:
        code = serve.main([*places, *arguments])
        return code, *capsys.readouterr()

    return call


class Visitor(threading.Thread):
    """Waits until a server has written where it is, asks it, and ends it with a signal."""

    def __init__(self, place: Path, number: int) -> None:
        super().__init__()
        self.place, self.number, self.found = place, number, dict[str, Any]()
        self.start()

    def run(self) -> None:
        try:
            end = time.monotonic() + 60
            while not self.place.exists() and time.monotonic() < end:
                time.sleep(0.01)
            self.found["ready"] = read_document(ServerReady, self.place).to_dict()
            for path in ("/health", "/v1/models"):
                with urllib.request.urlopen(self.found["ready"]["url"] + path, timeout=60) as answer:
                    self.found[path] = json.load(answer)
        finally:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_stop(command: Command, tmp_path: Path, number: int) -> None:
    place = tmp_path / "ready.json"
    visitor = Visitor(place, number)
    code, out, err = command("--port", "0", "--json", "-o", str(place), "--policy", "neo", "--name", "small")
    visitor.join()
    assert (code, err) == (0, "")
    assert json.loads(out) == visitor.found["ready"]
    assert visitor.found["ready"]["kv_tokens"] == ROOM.homes and visitor.found["/health"]["status"] == "ok"
    model = visitor.found["/v1/models"]["data"][0]
    assert (model["id"], model["policy"], len(model["plan_sha256"])) == ("small", "neo", 64)


@pytest.mark.parametrize("on_cpu", [0, None])
@pytest.mark.parametrize("said", one_in(2, [[], ["--sequences", "5", "--chunk", "64", "--cpu-tokens", "32"]]))
def test_what_is_not_said_is_as_in_a_simulation(on_cpu: int | None, said: list[str]) -> None:
    plan = make_plan(MODEL, on_cpu)
    serving = serve.build_parser().parse_args(["plan.json", "--checkpoint", "somewhere", *said])
    simulating = sim.build_parser().parse_args(["plan.json", "--requests", "some.csv", *said])
    served, simulated = (setup_of(plan, setting_of(args)) for args in (serving, simulating))
    assert served == simulated
    assert (served.limits.sequences, served.limits.batch_tokens) == (5 if said else 64, 2048)
    assert (served.limits.cpu_tokens > 0) == (on_cpu == 0)


def test_an_occupied_port_is_said_before_anything_is_loaded(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_generator, "open_generator", lambda *_, **__: pytest.fail("loaded"))
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        code, out, err = command("--port", str(port))
    assert code == 2 and out == "" and err.count("\n") == 1
    assert f"--port: the port is occupied on 127.0.0.1 (got {port}); stop what listens there" in err


def test_a_device_that_is_not_there(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> VirtualEngine:
        raise HardwareUnavailableError("no such device", field="cuda")

    monkeypatch.setattr(open_generator, "open_generator", missing)
    code, out, err = command("--port", "0")
    assert (code, out) == (6, "") and "no such device" in err


@together(
    ("arguments", "said"),
    [
        (["--port", "65536"], "--port: not a port"),
        (["--host", "not a host", "--allow-anonymous"], "--host: not an address"),
        (["--host", "a..b", "--allow-anonymous"], "--host: not an address"),
        (["--host", "a" * 300, "--allow-anonymous"], "--host: not an address"),
        (["--host", "203.0.113.7", "--allow-anonymous"], "--host: not an address of this machine"),
        (["--queue", "-1"], "--queue"),
        (["--promise", "nan"], "--promise: must be between"),
        (["--max-body", "1B"], "--max-body: out of range"),
        (["--stall", "-1"], "--stall"),
        (["--policy", "neo,apex"], "--policy: one policy at a time"),
        (["--sequences", "0"], "--sequences: must be between"),
        (["--gpu-tokens", "-5"], "--gpu-tokens: not a number of tokens"),
        (["--name", "\n"], "--name: not a name"),
    ],
)
def test_mistakes(command: Command, arguments: list[str], said: str) -> None:
    code, _, err = command(*arguments)
    assert code == 2 and said in err and err.count("\n") == 1


def test_a_library_that_is_missing_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    for module in ("server", "load.server"):  # what would import the library cannot be imported either
        monkeypatch.setitem(sys.modules, f"helmsman.service.inference.{module}", None)
    code, _, err = command("--port", "0")
    assert code == 2 and "pip install 'helmsman[serve]'" in err
    assert bench_serve.main(["--requests", "synthetic:n=1,input=1,output=1", "-o", "served.parquet"]) == 2
