"""How much must GPUDirect storage slow a GPU so that it loses beside 4-bit groups: `python -m benchmarks.contention`.

Park & Egger's eq 10 predicts that OPT-30B with 4-bit groups gains from weights in NVMe devices; they measured a loss,
because arriving weights, host transfers and the GPU's work contend (5.4, PARK-43, E-PARK-17). Both plans of the printed
equations, with and without storage, are simulated for every factor by which all devices together slow the GPU; where
they take equally long is the least factor that agrees with the measurement. The record's factor lies above it. Then
what the search chooses: storage must still help without compression."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.lower import lower
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.op_split.split_rules import Compression, SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.streaming.place import Frame, Layout, label, place
from helmsman.schemas.figures import scaled_figure
from helmsman.schemas.hardware import Hardware, Link
from helmsman.schemas.workload import Workload
from helmsman.simulator.replay import replay

MACHINE, MODEL = "a4000-7950x", "opt-30b"
NVME = ("nvme0", "nvme1", "nvme2", "nvme3")
WORK = Workload(prompt_tokens=512, output_tokens=32, batch=50, context=544)
LAYERS = (8, 14)
"""The time of a layer is the slope between these numbers of layers."""
FACTORS = (0.0, 0.1, 0.2, 0.3, 0.54, 1.0)
MOST = 4.0
STEPS = 20


def machine(factor: float) -> Hardware:
    """The paper's machine, its storage devices together slowing the GPU by `factor`."""
    hardware = load_hardware(MACHINE, None)
    total = recorded(hardware)
    return hardware.model_copy(update={"links": tuple(_scaled(link, factor / total) for link in hardware.links)})


def recorded(hardware: Hardware) -> float:
    """The factor of all storage devices in the record."""
    return sum(figure.value for link in hardware.links for figure in (link.slows or {}).values())


def _scaled(link: Link, by: float) -> Link:
    if link.slows is None:
        return link
    slows = {device: scaled_figure(figure, by) for device, figure in link.slows.items()}
    return link.model_copy(update={"slows": slows})


def question(hardware: Hardware, compress: Compression, stored: bool, printed: bool = False) -> OpSplit:
    """OPT-30B, one batch of 50 (Fig 6a, 8a)."""
    options = SplitRules(compress=compress, storage=NVME if stored else (), printed=printed)
    return OpSplit(Frame(load_model(MODEL), roles(hardware), WORK), options, CostOptions(), "latency")


def layer_seconds(asked: OpSplit, layout: Layout, hardware: Hardware) -> float:
    """Simulated seconds per layer of `layout` on `hardware`."""
    ends = []
    for layers in LAYERS:
        frame = replace(asked.frame, model=asked.frame.model.with_layers(layers))
        graph = lower(place(frame, layout), mean_step(WORK))
        done = replay(graph, lambda task: asked.costs.price(task).mid, hardware, between=asked.costs.between())
        ends.append(done.makespan)
    return (ends[1] - ends[0]) / (LAYERS[1] - LAYERS[0])


def break_even() -> float:
    """The least factor for which the printed equations' plan with storage is no faster than the one without.

    Raises SystemExit where it is faster at every factor up to MOST."""
    base, stored = (question(machine(0.0), "all", storage, printed=True) for storage in (False, True))
    target = layer_seconds(base, base.layout(base.every_split.best), machine(0.0))
    layout, low, high = stored.layout(stored.every_split.best), 0.0, MOST
    for _ in range(STEPS):
        middle = (low + high) / 2
        faster = layer_seconds(stored, layout, machine(middle)) < target
        low, high = (middle, high) if faster else (low, middle)
    if high == MOST:
        raise SystemExit(f"storage helps at every factor up to {MOST}")
    return high


def choices() -> Iterator[dict[str, object]]:
    """What the search chooses with storage allowed, per factor: predicted and simulated seconds per layer."""
    for factor in FACTORS:
        hardware = machine(factor)
        for compress in ("none", "all", "best"):
            asked = question(hardware, compress, stored=True)
            best = asked.every_split.best
            layout = asked.layout(best)
            yield {
                "factor": factor,
                "compress": compress,
                "predicted": best.seconds,
                "simulated": layer_seconds(asked, layout, hardware),
                "plan": label(asked.frame, layout),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    least, own = break_even(), recorded(load_hardware(MACHINE, None))
    print(f"break-even factor of all storage devices together: {least:.3f}; in the record: {own:.3f}")
    rows = list(choices())
    for row in rows:
        seconds = [f"{1e3 * row[name]:7.2f} ms" for name in ("predicted", "simulated") if isinstance(row[name], float)]
        print(f"{row['factor']:<5} {row['compress']:<5} {' '.join(seconds)}  {row['plan']}")
    if options.json:
        options.json.write_text(json.dumps({"break_even": least, "recorded": own, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
