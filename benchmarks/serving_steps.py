"""Steps of the serving engine: beside the uniform batch that `helm-run` decodes, and by kind of iteration.

    python -m benchmarks.serving_steps PLAN --checkpoint DIR --sequences 1 8 32
    python -m benchmarks.serving_steps PLAN --checkpoint DIR --on-host 12 --depth 1024

PLAN: one device computes it all, for `--on-host` a loopback accelerator. First, for every number of sequences, decode
steps of both engines in turns, and the median of the ratios. With `--on-host`: two requests on the accelerator, at a
quarter of the depth, and as many on the host; median seconds of every kind of iteration in turns, and of its parts.
Runs beside which others took much of the processors mean little: their share is printed."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.machine import print_machine
from helmsman.cli.isa import select_from_environment
from helmsman.executor.engine import Engine
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.serving.request import RequestOptions
from helmsman.executor.serving.runner import IterationSeconds
from helmsman.executor.system.interference import cpu_times, others_share
from helmsman.executor.system.machine import Machine
from helmsman.scheduler.decision import Home, SchedulingDecision
from helmsman.scheduler.limits import Limits
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import read_document

PROMPT, ON_ACCELERATOR, BLOCK = 16, 2, 16


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--sequences", type=int, nargs="*", default=[])
    parser.add_argument("--on-host", type=int, default=0)
    parser.add_argument("--depth", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    select_from_environment()
    print_machine()
    plan = read_document(Plan, args.plan)
    before = cpu_times()
    for sequences in args.sequences:
        print(_beside_uniform(plan, args, sequences), flush=True)
    for line in _by_kind(plan, args) if args.on_host else ():
        print(line, flush=True)
    share = others_share(before, cpu_times())
    print(f"others took {'an unknown share' if share is None else f'{share:.0%}'} of the processors")


def with_workload(plan: Plan, **changes: int) -> Plan:
    """The plan for another batch or context."""
    return plan.model_copy(update={"workload": plan.workload.model_copy(update=changes)})


def _beside_uniform(plan: Plan, args: argparse.Namespace, sequences: int) -> str:
    machine, context = Machine.this(), PROMPT + args.rounds + 2
    limits = Limits(sequences * -(-context // BLOCK) * BLOCK, 0, sequences * PROMPT, sequences)
    theirs = with_workload(plan, batch=sequences, prompt_tokens=PROMPT, context=context)
    prompts = np.random.default_rng(0).integers(0, plan.model.vocab, (sequences, PROMPT)).astype(np.int32)
    served = tuple(range(sequences))
    with (
        ServingEngine.load(with_workload(plan, batch=1, context=context), args.checkpoint, machine, limits) as ours,
        Engine.load(theirs, args.checkpoint, machine, prompt_tokens=PROMPT) as uniform,
    ):
        for request in served:
            ours.add(request, RequestOptions(prompts[request].tolist(), args.rounds + 2))
        ours.assume(dict.fromkeys(served, "gpu"))
        uniform.generate(prompts, 1, ignore_eos=True)
        pairs = []
        for step in range(args.rounds + 1):
            run = uniform.generate(prompts[:, :1], 1, past=PROMPT + step, ignore_eos=True)
            pairs.append((float(run.moments[-1] - run.moments[0]), _total(ours, served)))
    theirs_s, ours_s = (median(side) for side in zip(*pairs[1:], strict=True))
    ratios = sorted(our / their for their, our in pairs[1:])
    between = f"[{ratios[0]:.3f} .. {ratios[-1]:.3f}]"
    steps = f"uniform {theirs_s * 1e3:.1f} ms, serving {ours_s * 1e3:.1f} ms"
    return f"{sequences} sequences: {steps}, ratio {median(ratios):.3f} {between}, n {len(ratios)}"


def _total(engine: ServingEngine, requests: tuple[int, ...]) -> float:
    return engine.step(SchedulingDecision("gpu-only", decode0_gpu=requests)).seconds.total


def _by_kind(plan: Plan, args: argparse.Namespace) -> list[str]:
    rounds, steps = args.rounds + 1, 6 * (args.rounds + 1)
    context, total = args.depth + steps, ON_ACCELERATOR + args.on_host
    room = -(-context // BLOCK) * BLOCK
    limits = Limits(ON_ACCELERATOR * room, args.on_host * room, 2 * total + PROMPT, total)
    homes: Mapping[int, Home] = {number: "gpu" if number < ON_ACCELERATOR else "cpu" for number in range(total)}
    machine, smaller = Machine.this(), with_workload(plan, batch=1, context=context)
    taken: dict[str, list[IterationSeconds]] = {}
    with ServingEngine.load(smaller, args.checkpoint, machine, limits) as engine:
        for number, home in homes.items():
            depth = args.depth // 4 if home == "gpu" else args.depth
            engine.add(number, RequestOptions([1] * depth, steps))
        engine.assume(homes)
        for _ in range(rounds):
            for name, decision in _kinds(total).items():
                taken.setdefault(name, []).append(engine.step(decision).seconds)
    return [f"{name:16} {_parts(each[1:])}" for name, each in taken.items()]


def _kinds(total: int) -> dict[str, SchedulingDecision]:
    """Iterations of all requests, but for the first two."""
    gpu, cpu = tuple(range(ON_ACCELERATOR)), tuple(range(ON_ACCELERATOR, total))
    half = len(cpu) // 2
    return {
        "gpu-only": SchedulingDecision("gpu-only", decode0_gpu=gpu),
        "deferred": SchedulingDecision("deferred", decode0_gpu=gpu, decode0_cpu=cpu),
        "simple": SchedulingDecision("simple", decode0_gpu=gpu, decode0_cpu=cpu),
        "pipelined": SchedulingDecision("pipelined", decode0_gpu=gpu, decode0_cpu=cpu[:half], decode1_cpu=cpu[half:]),
    }


def _parts(taken: list[IterationSeconds]) -> str:
    parts = {
        "total": [each.total for each in taken],
        "linear": [each.linear[0] for each in taken],
        "second linear": [each.linear[1] for each in taken],
        "ends": [each.ends for each in taken],
        "gpu attention": [each.gpu_attention for each in taken],
        "cpu attention": [each.cpu_attention for each in taken],
        "to host": [each.to_host for each in taken],
        "to device": [each.to_device for each in taken],
        "weights": [each.weights for each in taken],
    }
    return ", ".join(f"{name} {median(values) * 1e3:.1f} ms" for name, values in parts.items())


if __name__ == "__main__":
    main()
