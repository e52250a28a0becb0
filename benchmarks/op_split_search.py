"""How long the search of operation splits takes: `python -m benchmarks.op_split_search`.

OPT-30B on the paper's machine: 8 of 11 operations in 8 chunks (LN and softmax cannot be divided: 67 units), 4 NVMe
devices, compressed or not. CPU milliseconds, the median of several searches in one process:

- equations: the closed form over the layer's table (bar: 50 ms);
- lanes: with what crosses at the boundaries, memories and links that lanes share, and links that delay work;
- memory: with the bytes of every candidate too, as `helm-plan` searches;

and 200 operations without chunks (bar: 50 ms). Exits 4 where a bar is missed."""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from benchmarks.machine import print_machine
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.strategies.op_split.layer_table import LayerTable, layer_table
from helmsman.planner.strategies.op_split.options import SearchOptions
from helmsman.planner.strategies.op_split.search import search
from helmsman.planner.strategies.op_split.split_rules import SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.workload import Workload

MACHINE, MODEL = "a4000-7950x", "opt-30b"
DIVIDED = ("q", "k", "v", "scores", "wv", "o", "up", "down")
NVME = ("nvme0", "nvme1", "nvme2", "nvme3")
BAR_MS = 50.0


def main() -> int:
    """Search, print, compare with the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    print_machine()
    missed = False
    for name, barred, run in _cases():
        run()
        milliseconds = statistics.median(_timed(run) for _ in range(rounds))
        missed |= barred and milliseconds >= BAR_MS
        print(f"{name:<44} {milliseconds:7.1f} ms{f' (bar {BAR_MS:.0f} ms)' if barred else ''}")
    return 4 if missed else 0


def _cases() -> Iterator[tuple[str, bool, Callable[[], object]]]:
    """(name, whether there is a bar, a search)."""
    for batches in (1, 4):
        asked = _asked(batches)
        table, lanes = asked.table, asked.search_options
        equations = replace(lanes, flow=None, pools=(), delays=None)
        for name, options in (("equations", equations), ("lanes", lanes), ("memory", asked.fitting_options)):
            yield f"{len(asked.units)} units, {batches} batches, {name}", name == "equations", _search(table, options)
    many = [f"op{number}" for number in range(200)]
    columns = {name: [1.0 + number % 7 for number in range(200)] for name in ("host", "accelerator", "weights")}
    yield "200 operations", True, _search(layer_table(many, columns), SearchOptions())


def _search(table: LayerTable, options: SearchOptions) -> Callable[[], object]:
    return lambda: search(table, options)


def _timed(run: Callable[[], object]) -> float:
    """Milliseconds of CPU time."""
    begun = time.process_time()
    run()
    return 1e3 * (time.process_time() - begun)


def _asked(batches: int) -> OpSplit:
    work = Workload(prompt_tokens=512, output_tokens=32, batch=50 // batches, batches=batches, context=544)
    options = SplitRules(chunks=dict.fromkeys(DIVIDED, 8), compress="best", storage=NVME)
    return OpSplit(
        Frame(load_model(MODEL), roles(load_hardware(MACHINE, None)), work), options, CostOptions(), "latency"
    )


if __name__ == "__main__":
    sys.exit(main())
