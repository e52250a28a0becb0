"""A bar that says how far a long measurement is, where someone watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(steps: int | None, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A bar of `steps`, if their number is known, on a terminal; what is yielded tells it of a step."""
    import sys

    from tqdm import tqdm

    hidden = quiet or not sys.stderr.isatty()
    with tqdm(total=steps, disable=hidden, leave=False, bar_format="{l_bar}{bar}| {desc}") as bar:

        def tell(what: str) -> None:
            bar.set_description_str(what)
            bar.update()

        yield tell
