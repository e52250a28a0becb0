"""Readers that behave as none may, for tests of the harness: the third case of each does."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from harness import Case, Target

from helmsman.schemas.errors import BadInputError


def _forever() -> None:
    while True:
        pass


def _waiting() -> None:
    time.sleep(10**6)


def _much() -> None:
    bytearray(2**32)


def _gone() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _missing() -> None:
    {}["x"]


def _refused() -> None:
    raise BadInputError("no", remedy="another", file="a\nb")


def _third(behaviour: Callable[[], object]) -> Callable[[Path], Case]:
    def prepare(folder: Path) -> Case:
        numbers = iter(range(10))
        return lambda chance: behaviour if next(numbers) == 2 else int

    return prepare


_BEHAVIOURS = {
    "a hang": _forever,
    "a wait": _waiting,
    "memory": _much,
    "a crash": _gone,
    "another exception": _missing,
    "refused": _refused,
    "accepted": int,
}
TARGETS = {name: Target(name, _third(behaviour)) for name, behaviour in _BEHAVIOURS.items()}
