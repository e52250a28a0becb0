"""A lane of a PyTorch device: a stream, and a thread that hands it what was submitted, in order.

The thread waits for events of other lanes, native ones included, and signals when the stream is done; so a plan's
lanes meet through the same events whatever drives them."""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

import numpy as np
import torch
from typing_extensions import Buffer as SupportsBuffer

from helmsman.executor._kernels import Event

Work = Callable[[], None]
Items = SimpleQueue[Work | None]


class WaitPoint(Protocol):
    """A point that an item may have to wait for: an event, or a place in another stream."""

    def wait(self) -> None:
        """Block until it is reached."""


class TorchLane:
    """Does what is submitted, one after the other, on a stream of `device`; its thread ends with it.

    After an item has failed, later ones are skipped, but signal, until the error has been taken by `check`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._items: Items = SimpleQueue()
        self._stream = _stream(device) if device.type == "cuda" else None
        self._error: Exception | None = None
        Thread(target=_work, args=(self._items,), daemon=True, name=f"lane of {device}").start()

    def __del__(self) -> None:
        self._items.put(None)

    def submit_work(
        self, run: Work, wait: Sequence[WaitPoint], done: Event | None, times: SupportsBuffer | None = None
    ) -> None:
        """Queue `run`; `times` (f64, 2) is filled with its start and end."""

        def item() -> None:
            try:
                for event in wait:
                    event.wait()
                if self._error is None:
                    self._timed(run, times)
            except Exception as error:
                self._error = error
            finally:
                if done is not None:
                    done.signal()

        self._items.put(item)

    def check(self) -> None:
        """Raise the first error since the last check, if any."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def synchronize(self) -> None:
        """Block until everything submitted so far is done, then check."""
        reached = Event()
        self._items.put(reached.signal)
        reached.wait()
        self.check()

    def _timed(self, run: Work, times: SupportsBuffer | None) -> None:
        start = time.monotonic()
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            run()
        if self._stream is not None:
            self._stream.synchronize()
        if times is not None:
            np.frombuffer(memoryview(times), np.float64)[:2] = start, time.monotonic()


def _stream(device: torch.device) -> torch.cuda.Stream:
    untyped: Any = torch.cuda.Stream  # PyTorch gives its constructor no types
    made: torch.cuda.Stream = untyped(device)
    return made


def _work(items: Items) -> None:
    with torch.inference_mode():
        while (item := items.get()) is not None:
            item()
            del item  # it keeps its lane alive
