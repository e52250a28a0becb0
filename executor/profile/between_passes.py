"""What passes between the passes of a run: choosing a token, and handing the next pass to lanes piece by piece.

A model so small that its operations take next to nothing is run twice, for real: once by the host alone, in one piece,
and once with its operations in turns on both devices, in as many pieces as there are operations and moves."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.generation import Generation
from helmsman.executor.machine import Machine
from helmsman.executor.profile.samples import BetweenPassesSamples
from helmsman.lowering.lower import lower
from helmsman.lowering.placement import Placement
from helmsman.planner.costs import CostModel
from helmsman.planner.decide import plan_document
from helmsman.planner.handovers import submissions
from helmsman.planner.predict import mean_step, predict
from helmsman.schemas.hardware import Device, Hardware
from helmsman.schemas.model import Model, Rope
from helmsman.schemas.plan import ComputeRule, KvRule, Plan, Residence, Schedule, Select, Strategy
from helmsman.schemas.workload import Workload

MODEL = Model(
    name="profile-passes",
    family="qwen3",
    layers=24,
    hidden=128,
    heads=2,
    kv_heads=1,
    head_dim=64,
    ffn=128,
    vocab=131072,
    max_context=256,
    activation="silu",
    gated=True,
    norm="rms",
    norm_eps=1e-6,
    position=Rope(theta=1e4, rotary_dim=64),
    qk_norm=True,
)
"""With as many tokens to choose from as current models have: choosing is most of the time that is always there."""
WORK = Workload(prompt_tokens=8, output_tokens=40, context=64)
SETTLED = 8
"""Steps before those that count."""
THERE = ("q", "o", "up")
"""Operations of blocks on the second device: no two of them follow each other."""


def measure_between_passes(hardware: Hardware, machine: Machine) -> BetweenPassesSamples:
    """Seconds from the end of a decode step to the start of the next, by the pieces of a pass, on the host of
    `hardware` and the loopback accelerator, if it has one."""
    host = hardware.devices[0]
    other = next((device for device in hardware.devices if device.kind == "loopback"), None)
    found: BetweenPassesSamples = {}
    with TemporaryDirectory(prefix="helm-profile-") as folder:
        checkpoint = Path(folder) / "checkpoint"
        write_checkpoint(MODEL, checkpoint, fmt="bf16")
        for there in ((), THERE) if other is not None else ((),):
            plan = _plan(hardware, host, other, there)
            found[submissions(lower(plan, mean_step(WORK)))] = _run(plan, checkpoint, machine)
    return found


def _run(plan: Plan, checkpoint: Path, machine: Machine) -> list[float]:
    tokens = np.arange(WORK.prompt_tokens, dtype=np.int32)[None]
    with Engine.load(plan, checkpoint, machine) as engine:
        return list(_pauses(engine.generate(tokens, WORK.output_tokens, ignore_eos=True)))


def _pauses(made: Generation) -> Iterator[float]:
    """From the last end of a decode step to the first start of the next."""
    steps = next(each for each in reversed(made.recorded) if len(each.passes) > 1)
    starts, ends = steps.starts.min(axis=1), steps.ends.max(axis=1)
    yield from (starts[SETTLED:] - ends[SETTLED - 1 : -1]).tolist()


def _plan(hardware: Hardware, host: Device, other: Device | None, there: tuple[str, ...]) -> Plan:
    far = other or host
    placed = Placement(
        model=MODEL,
        hardware=hardware,
        workload=WORK,
        residence=(
            *(Residence(select=Select(names=f"{op}.*"), memory=far.memory, format="bf16") for op in there),
            Residence(select=Select(), memory=host.memory, format="bf16"),
        ),
        kv=(KvRule(select=Select(), memory=host.memory, format="bf16"),),
        compute=(
            *(ComputeRule(select=Select(names=op), device=far.name) for op in there),
            ComputeRule(select=Select(), device=host.name),
        ),
        activations="f32",
        schedule=Schedule(),
    )
    return plan_document(placed, "passes", Strategy(name="profile"), predict(placed, CostModel(hardware)))
