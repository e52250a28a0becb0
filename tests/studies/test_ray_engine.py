"""Shards given to a Ray cluster: by its interface, with a cluster that runs tasks when they are waited for."""

import socket
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from helmsman.schemas.errors import BadInputError, HardwareUnavailableError, UsageError
from helmsman.studies.answering.local import LocalEngine
from helmsman.studies.answering.on_ray import RayEngine
from helmsman.studies.answering.run import rows_of
from helmsman.studies.questions.points import grid_of
from helmsman.studies.questions.read_study import study_of

STUDY = study_of(
    {
        "models": ["Qwen3-0.6B"],
        "machines": ["rtx4060-laptop"],
        "strategies": ["cpu-only"],
        "batches": ["1..48/1"],
        "sensitivity": 0,
    }
)


class RayError(Exception):
    """What a cluster that lost its workers raises."""


class Cluster(ModuleType):
    """A module that has of Ray what the engine uses; `waiting`: the most tasks that waited at a time."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, lost: bool = False) -> None:
        super().__init__("ray")
        self.lost, self.waiting, self.joined = lost, 0, False

    def init(self, address: str, **_: Any) -> None:
        self.joined = True

    def shutdown(self) -> None:
        self.joined = False

    def put(self, value: object) -> object:
        return value

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}

    def remote(self, max_retries: int) -> Callable[[Any], Any]:
        assert max_retries > 0, "a lost worker's tasks are given to another"
        return lambda work: SimpleNamespace(remote=lambda *given: lambda: work(*given))

    def wait(self, tasks: list[Any]) -> tuple[list[Any], list[Any]]:
        self.waiting = max(self.waiting, len(tasks))
        return tasks[-1:], tasks[:-1]

    def get(self, tasks: list[Any]) -> list[Any]:
        if self.lost:
            raise RayError("The worker died.\nAgain and again.")
        return [task() for task in tasks]


def rows(engine: Any) -> Any:
    return rows_of(STUDY, tuple(grid_of(STUDY).points()), engine, None, lambda done, total: None)


def test_a_cluster_gives_the_rows_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    monkeypatch.setitem(sys.modules, "ray", cluster)
    assert rows(RayEngine()) == rows(LocalEngine(1))
    assert 1 < cluster.waiting <= 4 and not cluster.joined


def test_a_cluster_that_loses_worker_after_worker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(lost=True)
    monkeypatch.setitem(sys.modules, "ray", cluster)
    with pytest.raises(HardwareUnavailableError, match=r"failed: The worker died\.$") as caught:
        rows(RayEngine())
    assert caught.value.field == "workers" and not cluster.joined


def test_no_cluster_and_no_ray_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()

    def nowhere(address: str, **_: Any) -> None:
        raise ConnectionError("nothing listens")

    monkeypatch.setattr(cluster, "init", nowhere)
    monkeypatch.setitem(sys.modules, "ray", cluster)
    with pytest.raises(HardwareUnavailableError, match="ray start"):
        rows(RayEngine())
    monkeypatch.setattr(cluster, "init", lambda address, **_: pytest.fail("Ray itself tries for minutes"))
    with socket.create_server(("127.0.0.1", 0)) as gone:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{gone.getsockname()[1]}")
    with pytest.raises(HardwareUnavailableError, match="reached.*127"):
        rows(RayEngine())
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"helmsman\[ray\]"):
        rows(RayEngine())


def test_an_address_that_ray_does_not_take_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()

    def refused(address: str, **_: Any) -> None:
        raise ValueError("Invalid address format: nonsense")

    monkeypatch.setattr(cluster, "init", refused)
    monkeypatch.setitem(sys.modules, "ray", cluster)
    monkeypatch.setenv("RAY_ADDRESS", "nonsense")
    with pytest.raises(UsageError, match="Invalid address format.*'nonsense'"):
        rows(RayEngine())


def test_what_a_worker_refuses_is_told_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    class RayTaskError(RayError):
        cause = BadInputError("damaged", file="trace.csv")

    def failing(tasks: list[Any]) -> list[Any]:
        raise RayTaskError("ray::answered() (pid=7)")

    cluster = Cluster()
    monkeypatch.setattr(cluster, "get", failing)
    monkeypatch.setitem(sys.modules, "ray", cluster)
    with pytest.raises(BadInputError, match=r"^trace\.csv: damaged$"):
        rows(RayEngine())
