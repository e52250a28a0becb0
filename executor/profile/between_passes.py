"""The time between the passes of a run: waking who waits, and handing the next pass to lanes piece by piece.

A model of few and small operations is run for real, by every device alone, in one piece, and by two with the operations
in turns, in as many pieces as there are operations and moves. Its head is many times what the caches hold: a run's
weights drive what the next pass begins with out of them, and so does this one's."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.passes.generation import Generation
from helmsman.executor.profile.gpu_steps import gpu_steps
from helmsman.executor.profile.samples import BetweenPassesSamples, GpuSteps
from helmsman.executor.system.machine import Machine, beyond_caches
from helmsman.lowering.lower import lower
from helmsman.lowering.placement import Placement
from helmsman.planner.cost.model import CostModel
from helmsman.planner.decision import plan_document
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.prediction.predict import mean_step, predict
from helmsman.schemas.blocks.positions import Rope
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.described import described
from helmsman.schemas.hardware import Device, Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, KvRule, Plan, Residence, Schedule, Select, Strategy
from helmsman.schemas.workload import Workload
from helmsman.timing.works import apart

_SMALL = DenseModel(
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
WARM_UP_STEPS = 8
"""The number of steps before those that count."""
SHORT_RUN_TOKENS = 4
SHORT_RUNS = 5
"""The number of runs of SHORT_RUN_TOKENS."""
MAX_HIDDEN = 1024
"""The widest that a model is made so that its head is beyond the caches. Of 32 MiB, none, three
times and eight times as much took 70, 190 and 225 us on two cores of an AMD EPYC (Zen 5)."""
THERE = ("q", "o", "up")
"""Operations of blocks on the second device: no two of them follow each other."""


def measure_between_passes(hardware: Hardware, machine: Machine) -> BetweenPassesSamples:
    """Seconds from the end of a decode step to the start of the next, by the device that ends a pass and the pieces
    of one, on the devices of `hardware`, of those plans that fit their memories; and what a GPU's steps take."""
    host, model = hardware.devices[0], _model(machine)
    there = [device for device in hardware.devices if device.kind != "cuda" or machine.accelerators.get("cuda")]
    alone = {device.name: _plan(model, hardware, device, device, ()) for device in there}
    far = [device for device in there if device.kind in ("loopback", "cuda")]
    divided = {device.name: _plan(model, hardware, host, device, THERE) for device in far}
    pauses, made = dict[tuple[str, int], list[float]](), dict[str, list[Generation]]()
    with TemporaryDirectory(prefix="helm-profile-") as folder:
        checkpoint = Path(folder) / "checkpoint"
        write_checkpoint(model, checkpoint, fmt="bf16")
        for plan in (*alone.values(), *divided.values()):
            if not shortages(memory_use(plan)):
                works = apart(lower(plan, mean_step(WORK)))
                made[plan.label] = _run(plan, checkpoint, machine)
                pauses[works.ends_on, works.submissions] = list(_pauses(made[plan.label][0]))
    return BetweenPassesSamples(pauses, next(_gpu(hardware, alone, divided, made), None))


def _gpu(
    hardware: Hardware, alone: Mapping[str, Plan], divided: Mapping[str, Plan], made: Mapping[str, list[Generation]]
) -> Iterator[GpuSteps]:
    """Of the GPU, if its plans were run."""
    for name in (device.name for device in hardware.devices if device.kind == "cuda" and device.name in divided):
        labels = [alone[name].label, divided[name].label]
        if all(label in made for label in labels):
            there, both = (made[label] for label in labels)
            yield gpu_steps(alone[name], divided[name], there, both[0], WARM_UP_STEPS)


def _model(machine: Machine) -> Model:
    """The small model, so wide that its head is beyond the caches, if `MAX_HIDDEN` lets it."""
    heads = -(-beyond_caches(machine.cache_bytes) // (_SMALL.vocab * 2 * _SMALL.head_dim))
    heads = max(_SMALL.heads, min(heads, MAX_HIDDEN // _SMALL.head_dim))
    return described(_SMALL.model_copy(update={"hidden": heads * _SMALL.head_dim, "heads": heads}))


def _run(plan: Plan, checkpoint: Path, machine: Machine) -> list[Generation]:
    """A long run; with a GPU also short ones for their prompts, after one that warms up."""
    tokens = np.arange(WORK.prompt_tokens, dtype=np.int32)[None]
    with Engine.load(plan, checkpoint, machine) as engine:
        if not engine.devices.accelerators.devices:
            return [engine.generate(tokens, WORK.output_tokens, ignore_eos=True)]
        for device in engine.devices.by_name.values():
            device.time_operations(timed=True)
        lengths = (SHORT_RUN_TOKENS, WORK.output_tokens, *[SHORT_RUN_TOKENS] * SHORT_RUNS)
        return [engine.generate(tokens, length, ignore_eos=True) for length in lengths][1:]


def _pauses(made: Generation) -> Iterator[float]:
    """From the last end of a decode step to the first start of the next."""
    steps = next(record for record in reversed(made.recorded) if len(record.passes) > 1)
    starts, ends = steps.starts.min(axis=1), steps.ends.max(axis=1)
    yield from (starts[WARM_UP_STEPS:] - ends[WARM_UP_STEPS - 1 : -1]).tolist()


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
    label = f"passes of {host.name}" + (f" and {far.name}" if there else "")
    return plan_document(placed, label, Strategy(name="profile"), predict(placed, CostModel(hardware)))
