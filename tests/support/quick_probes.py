"""Probes of arithmetic that take little time, for tests that ask whether they are there and not what they tell."""

import pytest

from helmsman.executor.devices import probe
from helmsman.executor.measuring import prober


def quick_probes(patch: pytest.MonkeyPatch) -> None:
    """Let probes beside runs multiply small matrices, a few times."""
    for name in ("PRODUCT", "JOINT_PRODUCT"):
        patch.setattr(probe, name, (64, 512))
    patch.setattr(prober, "JOINT_REPEATS", 4)
