"""Places in what a PyTorch device does: to wait for from other lanes, and to time what lies between them."""

import time
from typing import Any

import torch


class Mark:
    """A place in the work of the current stream; a device without streams has been there when it is made.

    `captured`: the stream is being captured, and every replay of the graph comes by."""

    def __init__(self, device: torch.device, captured: bool = False) -> None:
        self._event: torch.cuda.Event | None = None
        self._moment = time.monotonic()
        if device.type == "cuda":
            untyped: Any = torch.cuda.Event  # PyTorch gives its constructor no types
            self._event = untyped(enable_timing=True, blocking=True, external=captured)
            torch.cuda.current_stream(device).record_event(self._event)

    def wait(self) -> None:
        """Block until it is reached."""
        if self._event is not None:
            self._event.synchronize()

    def since(self, before: "Mark") -> float:
        """Seconds from another, both reached."""
        if self._event is None or before._event is None:
            return self._moment - before._moment
        return float(before._event.elapsed_time(self._event)) / 1e3


class Spans:
    """The work of a stream, cut into parts that have names."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[tuple[str | None, Mark]] = []

    def end(self, part: str | None) -> Mark:
        """All since the last end was of `part`; None: it was idle."""
        self._marks.append((part, Mark(self._device)))
        return self._marks[-1][1]

    def seconds(self) -> dict[str, float]:
        """By part, once the last mark is reached."""
        result: dict[str, float] = {}
        for (_, before), (part, mark) in zip(self._marks, self._marks[1:], strict=False):
            if part is not None:
                result[part] = result.get(part, 0.0) + mark.since(before)
        return result
