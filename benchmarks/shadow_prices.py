"""Shadow prices against finite differences: `python -m benchmarks.shadow_prices [--instances 50]`.

Each instance is a model, a machine whose accelerator has room for a part of its weights, a batch and an objective. What
one unit more and one less of everything is worth (memory, bandwidths, arithmetic) is compared with a question about a
machine that has so much more or less, answered from nothing. A price agrees within 5 %, or where both are so small that
twice as much would change the seconds by less than 0.01 %. Exits 4 where one does not."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from time import process_time

from benchmarks.machine import print_machine
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.tensors import tensors
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.strategies.optimal.explain.divisible import (
    DivisibleQuestion,
    NearbyQuestion,
    OneSide,
    divisible_blocks,
    on_machine,
)
from helmsman.planner.strategies.optimal.explain.explanation import near_to
from helmsman.planner.strategies.optimal.explain.quantities import Quantity, quantities
from helmsman.planner.strategies.optimal.explain.shadow_prices import Slope, priced
from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.question import Question
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

MODELS = ("opt-1.3b", "opt-6.7b", "opt-30b", "Qwen3-0.6B", "Qwen3-8B", "Llama-3.1-8B", "Llama-2-13b-hf", "phi-4")
MACHINES = (
    "rtx4060-laptop",
    "a10-xeon6342",
    "rtx3090-5950x",
    "rtx2080ti-i9-10900k",
    "rtx3060-5600x",
    "a4000-7950x",
    "p40-xeon-e5-2696v3",
    "gh200-96gb",
    "m1max-64gb",
    "epyc9554-cpu",
)
SEVERAL = ("rtx3090x2-5950x", "rtx3090x2-threadripper3960x", "a40x2-2xeon6330", "a100x2-dgx", "h100x2-hgx")
AIMS = (
    Aim("decode step", {"decode": 1.0}),
    Aim("request", {"prefill": 1.0, "decode": 127.0}),
    Aim("prompt pass", {"prefill": 1.0, "decode": 1e-3}),
)
_BAR, _NOTHING = 0.05, 1e-4


@dataclass(frozen=True)
class Checked:
    """A slope beside the finite difference of questions answered from nothing, both as shares of the seconds when
    there is twice as much."""

    quantity: Quantity
    side: str
    price: float
    difference: float

    @property
    def off(self) -> float:
        """How far the price is off, as a share of the larger; 0 where both are nothing."""
        largest = max(abs(self.price), abs(self.difference))
        return 0.0 if largest < _NOTHING else abs(self.price - self.difference) / largest


def main() -> int:
    """Draw instances, check every price, print a line for each instance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--several", action="store_true", help="machines with several accelerators")
    args = parser.parse_args()
    print_machine()
    machines, seeds = SEVERAL if args.several else MACHINES, range(args.first, args.first + args.instances)
    found = [each for seed in seeds for each in _instance(seed, machines)]
    off = sorted(each.off for each in found)
    within = sum(each <= _BAR for each in off)
    print(f"{within} of {len(off)} prices within {_BAR:.0%} of the finite difference; at most {off[-1]:.2%} off")
    return 0 if within == len(off) else 4


def _instance(seed: int, machines: Sequence[str]) -> list[Checked]:
    began = process_time()
    question, aim, text = drawn(seed, machines)
    optimal = Optimal(question, aim)
    if not optimal.finalists:
        print(f"{seed:>3} {text}: nothing fits")
        return []
    near = near_to(optimal, optimal.finalists[0])
    found = list(checked(near))
    worst = max(found, key=lambda each: each.off)
    name = f"{worst.quantity.what} of {worst.quantity.name}, {worst.side}"
    took = process_time() - began
    print(f"{seed:>3} {text}: {len(found)} prices, at most {worst.off:.2%} off ({name}), {took:.1f} s", flush=True)
    return found


def drawn(seed: int, machines: Sequence[str] = MACHINES) -> tuple[Question, Aim, str]:
    """A question, its aim, and both in words."""
    rng = Random(seed)
    model, machine, aim = load_model(rng.choice(MODELS)), rng.choice(machines), rng.choice(AIMS)
    batch, part = rng.choice((1, 4, 16)), rng.uniform(0.1, 1.1)
    hardware = _with_room(load_hardware(machine, None), model, part)
    workload = Workload(prompt_tokens=128, output_tokens=128, context=256, batch=batch)
    question = Question(Frame(model, roles(hardware), workload, fused=True), CostOptions())
    return question, aim, f"{model.name} on {machine}, room for {part:.0%}, batch {batch}, {aim.name}"


def _with_room(hardware: Hardware, model: Model, part: float) -> Hardware:
    """The machine with room for a `part` of the weights in the accelerators' own memories, and all on the host."""
    found = roles(hardware)
    need = sum(tensor.size("f16") for tensor in tensors(model) if tensor.tied_to is None)
    sizes = {found.host.memory: 2 * need + 8 * 10**9}
    for each in found.accelerators if found.separate else ():
        sizes[each.memory] = round(part * need / len(found.accelerators)) + 10**9
    memories = tuple(
        memory.model_copy(update={"available": sizes[memory.name], "capacity": sizes[memory.name]})
        if memory.name in sizes
        else memory
        for memory in hardware.memories
    )
    return hardware.model_copy(update={"memories": memories})


def checked(near: NearbyQuestion) -> Iterator[Checked]:
    """Every price of a question near its plan."""
    assert isinstance(near, DivisibleQuestion | OneSide)
    solved, now = near.solved(), _seconds(near, near.question)
    assert solved is not None
    for quantity in quantities(near.question.frame.roles):
        found = priced(near, solved, quantity)
        for side, sign, slope in (("more", 1, found.more), ("less", -1, found.less)):
            if slope is not None:
                unit = quantity.size / solved.seconds
                difference = _difference(near, now, quantity, sign, slope)
                yield Checked(quantity, side, slope.price * unit, difference * unit)


def _difference(near: DivisibleQuestion | OneSide, now: float, quantity: Quantity, sign: int, slope: Slope) -> float:
    """Seconds saved by a base unit, of a question about another machine; both are answered from nothing, `now` is the
    seconds of the one about this."""
    again = _seconds(near, on_machine(near.question, quantity, 1 + sign * slope.step))
    return (now - again) / (sign * slope.step * quantity.size)


def _seconds(near: DivisibleQuestion | OneSide, question: Question) -> float:
    solved = _afresh(near, question).solved()
    assert solved is not None
    return solved.seconds


def _afresh(near: DivisibleQuestion | OneSide, question: Question) -> NearbyQuestion:
    if isinstance(near, OneSide):
        return replace(near, question=question)
    blocks = divisible_blocks(question, near.blocks)
    return DivisibleQuestion(blocks, question, near.aim, near.among)


if __name__ == "__main__":
    sys.exit(main())
