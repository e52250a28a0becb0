"""Seeds of random cases: some of them in the everyday run, the others in the nightly one."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import pytest


def seeds(every: Iterable[int], everyday: int) -> list[Any]:
    """Parameters of a test: the first `everyday` of so many seeds, and what is left of them for the nightly run."""
    rest = iter(every)
    return [*islice(rest, everyday), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in rest)]
