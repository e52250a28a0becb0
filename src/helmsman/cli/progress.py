"""A bar that says how far a long measurement is, where someone watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def bars() -> Any:
    """What makes the bars of all commands: without tqdm's thread, which looks whether a bar stands still, and warns
    beside a command's one line where the system starts no more threads."""
    from tqdm import tqdm

    tqdm.monitor_interval = 0
    return tqdm


@contextmanager
def progress(steps: int | None, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A bar of `steps`, if their number is known, on a terminal; what is yielded tells it of a step."""
    import sys

    hidden = quiet or not sys.stderr.isatty()
    with bars()(total=steps, disable=hidden, leave=False, bar_format="{l_bar}{bar}| {desc}") as bar:

        def tell(what: str) -> None:
            bar.set_description_str(what)
            bar.update()

        yield tell
