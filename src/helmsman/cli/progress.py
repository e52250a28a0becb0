"""A bar that says how far a long measurement is, where someone watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any


def bars() -> Any:
    """Return the class of all commands' bars: without tqdm's thread, which looks whether a bar stands still, and warns
    beside a command's one line where the system starts no more threads."""
    from tqdm import tqdm

    tqdm.monitor_interval = 0
    return tqdm


@contextmanager
def progress(steps: int | None, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A bar of `steps`, if their number is known, on a terminal; what is yielded tells it of a step."""
    import sys

    if quiet or not sys.stderr.isatty():
        yield lambda what: None
        return
    with bars()(total=steps, leave=False, bar_format="{l_bar}{bar}| {desc}") as bar:

        def tell(what: str) -> None:
            bar.set_description_str(what)
            bar.update()

        yield tell


class PartsClock:
    """Takes the seconds of parts of some work: each lasts until the next is told."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show, self._began, self._told = show, perf_counter(), list[tuple[str, float]]()
        self._ended = self._began

    def tell(self, what: str) -> None:
        """A part begins."""
        self._told.append((what, perf_counter()))
        self._show(what)

    @property
    def seconds(self) -> float:
        """Return the seconds of all the work, as far as it was when its parts were last asked for."""
        return self._ended - self._began

    def parts(self) -> dict[str, float]:
        """Return seconds by part, now."""
        self._ended = perf_counter()
        ends = [*(began for _, began in self._told[1:]), self._ended]
        took = dict[str, float]()
        for (what, began), end in zip(self._told, ends, strict=False):
            took[what] = took.get(what, 0.0) + end - began
        return took


@contextmanager
def timed_progress(steps: int | None, quiet: bool) -> Iterator[PartsClock]:
    """A bar as of `progress`, with the seconds of its steps."""
    with progress(steps, quiet) as show:
        yield PartsClock(show)
