"""The speeds of this machine's devices and links now, and a plan at these speeds."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import harmonic_mean, median
from threading import Event, Thread

from helmsman.analysis.probed_hardware import at_probed_rates
from helmsman.analysis.scaling import Scaling
from helmsman.executor._kernels import Pool, time_linear
from helmsman.executor.devices import base
from helmsman.executor.devices.cpu import CpuDevice
from helmsman.executor.devices.opening import open_devices
from helmsman.executor.devices.probe import PRODUCT_TOKENS, random_matrix
from helmsman.executor.measuring.prober import Prober, computed_format
from helmsman.executor.system.machine import Machine
from helmsman.schemas.plan import Plan
from helmsman.schemas.trace import Probe

BESIDE = (512, 1024)
"""(rows, columns) of a product beside a run: a millisecond, which the run's own thread does not interrupt."""
BESIDE_REPEATS = 3
PERIOD_S = 0.5
TURNS = 7
"""The number of probes of each device and link before a run, and after it, and of comparisons of the short product with
a probe's."""


class Speeds:
    """Probes of what a plan serves with, `resources` of its hardware, as often as asked."""

    def __init__(self, plan: Plan, resources: Sequence[str]) -> None:
        self._plan, self._resources = plan, resources
        self._machine = Machine.this()
        self._prober, self._format = Prober(plan, self._machine), computed_format(plan)
        self._beside = random_matrix(self._format, BESIDE)

    def now(self) -> list[Probe]:
        """Probes of all. Devices are open only meanwhile."""
        opened = open_devices(self._plan.hardware, self._resources, self._machine)
        return self._prober.probe(opened, 0, TURNS)

    @contextmanager
    def beside(self) -> Iterator[dict[str, list[float]]]:
        """FLOP/s of every device while the block runs, twice a second, where they are filled in; the run loses some
        0.5 % by that. What a core computes in a second changes by a third within seconds, as probes before and after a
        run of a minute do not show.

        A product short enough to stand beside a run has its matrix in a cache and is 4 to 14 % faster than a probe's:
        it counts as so many of the probe's as it was worth just before."""
        opened, ended = open_devices(self._plan.hardware, self._resources, self._machine), Event()
        found: dict[str, list[float]] = {name: [] for name in opened.by_name}
        worth = {name: self._worth(device) for name, device in opened.by_name.items()}

        def sample() -> None:
            while not ended.wait(PERIOD_S):
                for name, device in opened.by_name.items():
                    found[name].append(worth[name] * self._short(device))

        thread = Thread(target=sample)
        thread.start()
        try:
            yield found
        finally:
            ended.set()
            thread.join()

    def _worth(self, device: base.ExecutorDevice) -> float:
        """The ratio of a probe's FLOP/s to those of the short product, the median of several measured in turns."""
        return median(self._product(device) / self._short(device) for _ in range(TURNS))

    def _product(self, device: base.ExecutorDevice) -> float:
        """FLOP/s of a probe, after a read of as much as empties the caches."""
        device.read_rate(self._prober.noise)
        return self._prober.product(device, 0).value

    def _short(self, device: base.ExecutorDevice) -> float:
        """FLOP/s of the product beside a run: the best of a few, which others did not interrupt."""
        times = time_linear(pool_of(device), self._format, [self._beside], *BESIDE, PRODUCT_TOKENS, BESIDE_REPEATS)
        return 2 * PRODUCT_TOKENS * BESIDE[0] * BESIDE[1] / min(times)


def pool_of(device: base.ExecutorDevice) -> Pool:
    """Its threads."""
    assert isinstance(device, CpuDevice), "what serves is native"
    return device.pool


def computing(probes: Sequence[Probe], beside: dict[str, list[float]]) -> list[Probe]:
    """The probes, with arithmetic as it was on average beside a run: of what takes time, so a harmonic mean."""
    return [
        each.model_copy(update={"value": harmonic_mean(beside[each.name])})
        if each.what == "compute" and beside.get(each.name)
        else each
        for each in probes
    ]


def at_speeds(plan: Plan, probes: Sequence[Probe]) -> tuple[Plan, dict[str, float]]:
    """The plan on its machine as fast as it was when probed, and by probe the rate over that of the record.

    Joint arithmetic stays that of the record: FLOP/s that were probed beside a run contain what the other device
    took."""
    rates = [each for each in probes if each.what != "joint_compute"]
    now = plan.model_copy(update={"hardware": at_probed_rates(plan.hardware, rates)})
    return now, Scaling(plan.hardware, probes).factors()
