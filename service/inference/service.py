"""The state that all requests share: the engine and its model, who is let in, what is running, and how it goes."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from helmsman.schemas.errors import HardwareUnavailableError, HelmError
from helmsman.service.http.access import Access
from helmsman.service.http.bodies import BodyLimits
from helmsman.service.http.refusals import RefusedError
from helmsman.service.inference.admission import Admission, Bounds
from helmsman.service.inference.bodies import Bodies
from helmsman.service.inference.body_process import BodyProcess
from helmsman.service.inference.delivery import Mailbox
from helmsman.service.inference.generation import Generator
from helmsman.service.inference.health import Health
from helmsman.service.inference.jobs import ServedModel, TextJob
from helmsman.service.inference.metrics import Metrics
from helmsman.service.inference.refusals import refused
from helmsman.service.inference.running_request import RunningRequest


@dataclass(frozen=True, slots=True)
class Options:
    """Limits of a service, and who may ask (`access`).

    `stall_s`: seconds for which a reader may take nothing while something waits; `idle_s`: for a connection without a
    request; `grace_s`: for those running when it is asked to stop; `canary_s`: from a fault to the first canary."""

    bounds: Bounds
    bodies: BodyLimits = field(default_factory=BodyLimits)
    access: Access = field(default_factory=Access)
    stall_s: float = 30.0
    idle_s: float = 30.0
    grace_s: float = 30.0
    canary_s: float = 1.0


class Service:
    """One engine that serves one model. Made, and used, in the loop that answers."""

    def __init__(self, engine: Generator, served: ServedModel, options: Options) -> None:
        self.engine, self.served, self.options = engine, served, options
        self.metrics = Metrics(served.name, engine.load)
        self.admission = Admission(options.bounds, engine.capacity, time.monotonic)
        self.helper = BodyProcess(served.text)
        self.bodies = Bodies(options.bodies, self.helper)
        self.health = Health(engine, self._on_fault, options.canary_s)
        self._mailbox = Mailbox(asyncio.get_running_loop())
        self._runs: set[RunningRequest] = set()

    @contextmanager
    def running(self, wanted: TextJob, operation: str) -> Iterator[RunningRequest]:
        """A request let in and under way; however it is left, it is cancelled and counted. Raises RefusedError."""
        self.health.check()
        with self.admission.admitted(wanted.job):
            run = RunningRequest(self.engine, wanted, self.served.text, self._mailbox, self.metrics)
            self._runs.add(run)
            try:
                with self._submitted(run):
                    yield run
            finally:
                self._runs.discard(run)
                self.metrics.ended(operation, run.outcome())

    @contextmanager
    def _submitted(self, run: RunningRequest) -> Iterator[None]:
        try:
            run.submit()
        except HardwareUnavailableError as error:
            self.health.fault(error.message)
            raise RefusedError(503, "device_fault", str(error), retry_s=5) from None
        except HelmError as error:
            raise refused(error) from None
        try:
            yield
        finally:
            run.close()
            if run.failed:
                self.health.fault("a pass failed")

    def end_all(self) -> None:
        """Whatever is running ends now, as cancelled."""
        for run in self._runs:
            run.delivery.end("cancelled")

    def _on_fault(self) -> None:
        """Nothing that an engine makes after a fault is passed on."""
        self.metrics.fault()
        for run in self._runs:
            run.delivery.end("failed")
