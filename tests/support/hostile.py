"""Run a command while other work wants the same cores: a busy loop on each of them, and one core throttled.

    python tests/support/hostile.py pytest -n 2 tests/executor

The throttled core is taken away for half of every 0.1 s, as a hypervisor does it: by a thread before all others where
that is permitted, else by one of higher priority, else by as many more busy loops as leave about as little. What is
started here ends with this process, however that ends. The exit status is the command's."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.process import BaseProcess

PERIOD_S = 0.1
TAKEN_S = 0.05
"""Of every period, on the throttled core."""
NICE = -15
PEERS = 2
"""Busy loops that stand for a throttle where no priority may be raised: with the core's own, the command gets a quarter
of it."""


def burn(parent: int, core: int) -> None:
    """Use a core until `parent` is gone."""
    os.sched_setaffinity(0, {core})
    while os.getppid() == parent:
        _busy(PERIOD_S)


def throttle(parent: int, core: int) -> None:
    """Use a core, before all others where that is permitted, for a part of every period until `parent` is gone."""
    os.sched_setaffinity(0, {core})
    raised = _real_time() or _nice()
    while os.getppid() == parent:
        _busy(TAKEN_S if raised else PERIOD_S)
        time.sleep(PERIOD_S - TAKEN_S if raised else 0)


def throttled_by() -> str:
    """How the core is throttled here, tried in a process of its own: this one keeps its priority."""
    with get_context("fork").Pool(1) as pool:
        return pool.apply(_permitted)


def _permitted() -> str:
    share = f"{TAKEN_S / PERIOD_S:.0%} of its time is taken"
    if _real_time():
        return f"{share} by a real-time thread"
    if _nice():
        return f"{share} by a thread of nice {NICE} (real-time threads are not permitted)"
    return f"{PEERS} more busy loops share it (no higher priority is permitted)"


def _real_time() -> bool:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_max(os.SCHED_FIFO)))
    except (OSError, AttributeError):
        return False
    return True


def _nice() -> bool:
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    except OSError:
        return False
    return True


def _busy(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def start(cores: Sequence[int], peers: int) -> list[BaseProcess]:
    """A busy loop on each core, and what throttles the last of them: `peers` processes."""
    work: list[tuple[Callable[[int, int], None], int]] = [(burn, core) for core in cores]
    work += [(throttle, cores[-1])] * peers
    made = [get_context("fork").Process(target=what, args=(os.getpid(), core), daemon=True) for what, core in work]
    for each in made:
        each.start()
    return made


def main(words: Sequence[str]) -> int:
    """Run the command `words`; its exit status."""
    cores, how = sorted(os.sched_getaffinity(0)), throttled_by()
    sys.stderr.write(f"hostile: a busy loop on each of CPUs {cores}; CPU {cores[-1]} is throttled: {how}\n")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = start(cores, PEERS if "busy loops" in how else 1)
    try:
        return subprocess.run(words, check=False).returncode
    except KeyboardInterrupt:
        return 130
    finally:
        for each in started:
            each.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
