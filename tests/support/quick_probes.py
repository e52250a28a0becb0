"""Probes that take little time, for tests that ask whether they are there and not what they tell."""

from collections.abc import Callable

from helmsman.executor.devices import probe
from helmsman.executor.measuring import measure, prober

READ_BYTES = 8 << 20


def quick_probes(set_attribute: Callable[[object, str, object], None]) -> None:
    """Let probes beside runs be taken once, read little memory, and multiply small matrices a few times.

    `set_attribute`: of a test's `monkeypatch`; the built-in one in a process that ends with the run."""
    set_attribute(measure, "TURNS", 1)
    for name in ("PRODUCT", "JOINT_PRODUCT"):
        set_attribute(probe, name, (64, 512))
    set_attribute(probe, "PRODUCTS_S", 0.0)
    set_attribute(prober, "JOINT_REPEATS", 4)
    for module in (probe, prober):
        set_attribute(module, "beyond_caches", lambda _: READ_BYTES)
