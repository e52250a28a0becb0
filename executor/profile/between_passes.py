"""The time between the passes of a run: waking who waits, and handing the next pass to lanes piece by piece.

A model of few and small operations is run for real, by every device alone, in one piece, and by two with the operations
in turns, in as many pieces as there are operations and moves. Its head is many times what the caches hold: a run's
weights drive what the next pass begins with out of them, and so does this one's."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.generation import Generation
from helmsman.executor.machine import Machine, beyond_caches
from helmsman.executor.profile.samples import BetweenPassesSamples
from helmsman.lowering.lower import lower
from helmsman.lowering.placement import Placement
from helmsman.planner.costs import CostModel
from helmsman.planner.decision import plan_document
from helmsman.planner.handovers import ends_on, submissions
from helmsman.planner.memory import memory_use, shortages
from helmsman.planner.predict import mean_step, predict
from helmsman.schemas.hardware import Device, Hardware
from helmsman.schemas.model import Model, Rope
from helmsman.schemas.plan import ComputeRule, KvRule, Plan, Residence, Schedule, Select, Strategy
from helmsman.schemas.workload import Workload

_SMALL = Model(
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
    tied_embeddings=True,
)
"""With as many tokens to choose from as current models have: choosing is most of the time that is always there."""
WORK = Workload(prompt_tokens=8, output_tokens=40, context=64)
SETTLED = 8
"""Steps before those that count."""
MOST_HIDDEN = 1024
"""The widest that a model is made so that its head is beyond the caches. Of 32 MiB, none, three
times and eight times as much took 70, 190 and 225 us on two cores of an AMD EPYC (Zen 5)."""
THERE = ("q", "o", "up")
"""Operations of blocks on the second device: no two of them follow each other."""


def measure_between_passes(hardware: Hardware, machine: Machine) -> BetweenPassesSamples:
    """Seconds from the end of a decode step to the start of the next, by the device that ends a pass and the pieces
    of one, on the processors of `hardware` and the loopback accelerator, of those plans that fit their memories."""
    host, *others = (device for device in hardware.devices if device.kind != "cuda")
    other = next((device for device in others if device.kind == "loopback"), None)
    model, pauses = _model(machine), dict[tuple[str, int], list[float]]()
    alone = [_plan(model, hardware, device, device, ()) for device in (host, *others)]
    divided = [_plan(model, hardware, host, other, THERE)] if other is not None else []
    with TemporaryDirectory(prefix="helm-profile-") as folder:
        checkpoint = Path(folder) / "checkpoint"
        write_checkpoint(model, checkpoint, fmt="bf16")
        for plan in (plan for plan in (*alone, *divided) if not shortages(memory_use(plan))):
            graph = lower(plan, mean_step(WORK))
            pauses[ends_on(graph), submissions(graph)] = _run(plan, checkpoint, machine)
    return BetweenPassesSamples(pauses)


def _model(machine: Machine) -> Model:
    """The small model, so wide that its head is beyond the caches, if `MOST_HIDDEN` lets it."""
    heads = -(-beyond_caches(machine.cache_bytes) // (_SMALL.vocab * 2 * _SMALL.head_dim))
    heads = max(_SMALL.heads, min(heads, MOST_HIDDEN // _SMALL.head_dim))
    return _SMALL.model_copy(update={"hidden": heads * _SMALL.head_dim, "heads": heads})


def _run(plan: Plan, checkpoint: Path, machine: Machine) -> list[float]:
    tokens = np.arange(WORK.prompt_tokens, dtype=np.int32)[None]
    with Engine.load(plan, checkpoint, machine) as engine:
        return list(_pauses(engine.generate(tokens, WORK.output_tokens, ignore_eos=True)))


def _pauses(made: Generation) -> Iterator[float]:
    """From the last end of a decode step to the first start of the next."""
    steps = next(each for each in reversed(made.recorded) if len(each.passes) > 1)
    starts, ends = steps.starts.min(axis=1), steps.ends.max(axis=1)
    yield from (starts[SETTLED:] - ends[SETTLED - 1 : -1]).tolist()


def _plan(model: Model, hardware: Hardware, host: Device, far: Device, there: tuple[str, ...]) -> Plan:
    placed = Placement(
        model=model,
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
