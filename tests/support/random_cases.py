"""Random but valid models, machines and workloads for property tests."""

from dataclasses import replace
from random import Random

from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.schemas.between_passes import BetweenPasses
from helmsman.schemas.blocks.positions import LearnedPositions, Rope
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.described import described
from helmsman.schemas.hardware import (
    Compute,
    Device,
    Efficiency,
    Figure,
    Hardware,
    Link,
    Memory,
    Source,
)
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

SOURCE = "test"


def figure(value: float, spread: float = 0.0) -> Figure:
    return Figure(value=value, p10=value * (1 - spread), p90=value * (1 + spread), n=5, source=SOURCE)


def random_model(rng: Random) -> Model:
    gated = rng.random() < 0.7
    heads = rng.choice([2, 4, 8, 12])
    head_dim = rng.choice([16, 32, 64, 80])
    dense = DenseModel(
        name="random",
        family="qwen3" if gated else "opt",
        layers=rng.randint(1, 12),
        hidden=rng.choice([64, 128, 192, 512]),
        heads=heads,
        kv_heads=rng.choice([n for n in (1, 2, 4, heads) if heads % n == 0]),
        head_dim=head_dim,
        ffn=rng.choice([128, 320, 1024]),
        vocab=rng.choice([256, 1000, 5000]),
        max_context=4096,
        activation="silu" if gated else "relu",
        gated=gated,
        norm="rms" if gated else "layer",
        norm_eps=1e-6,
        position=Rope(theta=1e4, rotary_dim=head_dim) if gated else LearnedPositions(),
        qkv_bias=rng.random() < 0.5,
        out_bias=not gated,
        ffn_bias=not gated,
        qk_norm=gated and rng.random() < 0.5,
        tied_embeddings=rng.random() < 0.5,
    )
    return described(dense)


def random_device(rng: Random, name: str, kind: str, memory: str, **more) -> Device:
    shares = sorted(rng.uniform(0.2, 1.0) for _ in range(3))
    curve = Efficiency(
        bound="memory",
        op=rng.choice(["*", "linear"]),
        at=(1e3, 1e5, 1e7),
        share=tuple(figure(share, 0.1) for share in shares),
    )
    spread = rng.uniform(0.0, 0.3)
    return Device(
        name=name,
        kind=kind,
        memory=memory,
        read=figure(rng.uniform(5e9, 1e12), spread),
        compute=(
            Compute(phase="decode", flops=figure(rng.uniform(1e10, 1e13), spread)),
            Compute(phase="prefill", flops=figure(rng.uniform(1e11, 1e14), spread)),
        ),
        efficiency=(curve,) if rng.random() < 0.7 else (),
        launch=figure(rng.uniform(1e-7, 1e-5)) if rng.random() < 0.5 else None,
        overhead=figure(rng.uniform(1e-7, 1e-5)) if rng.random() < 0.5 else None,
        elementwise=figure(rng.uniform(1e9, 1e11)) if rng.random() < 0.5 else None,
        cache_bytes=rng.choice([None, 2**20, 2**25]),
        **more,
    )


def random_hardware(rng: Random, dram: int = 2**34, vram: int = 2**34) -> Hardware:
    """A CPU with `dram` bytes and an accelerator with `vram` bytes, joined both ways."""
    memories = (
        Memory(name="dram", kind="dram", capacity=dram, available=dram, bandwidth=figure(2e12), source=SOURCE),
        Memory(name="vram", kind="vram", capacity=vram, available=vram, bandwidth=figure(2e12), source=SOURCE),
    )
    devices = [random_device(rng, "cpu", "cpu", "dram", cores=4), random_device(rng, "cuda", "cuda", "vram")]
    if rng.random() < 0.3:
        devices.append(random_device(rng, "cpu-all", "cpu", "dram", cores=8, excludes=("cpu", "cuda")))
    links = tuple(
        Link(
            name=name,
            source_memory=source,
            target_memory=target,
            kind="pcie",
            bandwidth=figure(rng.uniform(1e9, 5e10), 0.1),
            latency=figure(rng.uniform(1e-6, 1e-4)),
        )
        for name, source, target in (("h2d", "dram", "vram"), ("d2h", "vram", "dram"))
    )
    return Hardware(
        name="random",
        memories=memories,
        devices=tuple(devices),
        links=links,
        sources={SOURCE: Source(kind="assumed", where="a test")},
    )


def random_workload(rng: Random) -> Workload:
    prompt, output = rng.randint(1, 600), rng.randint(1, 200)
    return Workload(
        prompt_tokens=prompt,
        output_tokens=output,
        batch=rng.choice([1, 1, 2, 5]),
        context=prompt + output + rng.randint(0, 100),
    )


def random_split(seed: int, **options) -> LayerSplit:
    """A random question whose accelerator often, and whose host sometimes, is too small."""
    rng = Random(seed)
    model, workload = random_model(rng), random_workload(rng)
    chosen = SplitQuestion(
        weights=rng.choice(["f32", "f16", "bf16"]),
        kv=rng.choice(["f32", "f16", "bf16"]),
        objective=rng.choice(["latency", "throughput", "ttft"]),
        **options,
    )
    whole = LayerSplit(model, roles(random_hardware(rng)), workload, chosen, None)
    need = sum(size for _, size in whole._needs(0))
    rng = Random(seed)
    hardware = random_hardware(
        rng, dram=int(need * rng.choice([0.4, 1.5, 3.0])) + 1, vram=int(need * rng.uniform(0.1, 1.3)) + 1
    )
    costs = CostModel(hardware, CostOptions(corrections=rng.random() < 0.8, l3_blend=rng.random() < 0.3))
    return LayerSplit(model, roles(hardware), workload, chosen, costs)


def with_time_between(split: LayerSplit, seed: int) -> LayerSplit:
    """The question on a machine whose hand-overs, joins and time between passes were measured: microseconds to
    milliseconds, others by device and by direction."""
    rng = Random(seed)

    def seconds() -> Figure:
        return figure(10 ** rng.uniform(-6, -3))

    hardware = split.roles.hardware
    devices = tuple(each.model_copy(update={"join": seconds()}) for each in hardware.devices)
    links = tuple(each.model_copy(update={"handover": seconds()}) for each in hardware.links)
    passes = BetweenPasses(begin={device.name: seconds() for device in devices}, submission=seconds())
    slow = hardware.model_copy(update={"devices": devices, "links": links, "between_passes": passes})
    return replace(split, roles=roles(slow), costs=CostModel(slow, split.costs.options))
