"""Whether anything may be served: not while a device is at fault, until a canary passes; not while stopping."""

import asyncio
from collections.abc import Callable
from typing import Literal

from helmsman.service.http.refusals import RefusedError
from helmsman.service.inference.generation import Generator

State = Literal["ok", "faulted", "stopping"]

_LOOK_S = 0.5
_LONGEST_S = 30.0


class Health:
    """The state of an engine. `on_fault` is called in the loop whenever one is found.

    `pause_s`: between a fault and the first canary; twice as long after each that fails, up to 30 s."""

    def __init__(self, engine: Generator, on_fault: Callable[[], None], pause_s: float = 1.0) -> None:
        self._engine, self._on_fault, self._pause_s = engine, on_fault, pause_s
        self._found = asyncio.Event()
        self.state: State = "ok"
        self.problem: str | None = None

    def check(self) -> None:
        """Raises RefusedError (503) while nothing is served."""
        if self.state == "stopping":
            raise RefusedError(503, "stopping", "the server is stopping", retry_s=5)
        if self.state == "faulted":
            message = f"a device is at fault ({self.problem}); nothing is served until a canary passes"
            raise RefusedError(503, "device_fault", message, retry_s=5)

    def fault(self, problem: str) -> None:
        """A device is at fault: nothing is served from now on."""
        if self.state == "ok":
            self.state, self.problem = "faulted", problem
            self._on_fault()
            self._found.set()

    def stop(self) -> None:
        """Nothing new is served from now on."""
        self.state = "stopping"

    async def watch(self) -> None:
        """Look for faults, and after one let canaries fly until one returns. Runs until it is cancelled."""
        while True:
            try:
                await asyncio.wait_for(self._found.wait(), _LOOK_S)
            except TimeoutError:
                if self._engine.fault is not None:
                    self.fault(self._engine.fault)
            if self.state == "faulted":
                await self._recover()
            self._found.clear()

    async def _recover(self) -> None:
        pause = self._pause_s
        while self.state == "faulted":
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_S)
            try:
                await asyncio.to_thread(self._engine.check)
            except Exception as error:  # whatever a canary meets, another is sent
                self.problem = str(error) or type(error).__name__
            else:
                self._passed()

    def _passed(self) -> None:
        if self.state == "faulted" and self._engine.fault is None:
            self.state, self.problem = "ok", None
