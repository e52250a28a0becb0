"""Plans for tests, made by hand: a machine of two memories and a split of a model's units between them."""

from helmsman.lowering.stages import beginnings
from helmsman.schemas.formats import KvFormat, StoredFormat
from helmsman.schemas.hardware import (
    Compute,
    Device,
    Figure,
    Hardware,
    Interrupts,
    JointProducts,
    Link,
    Memory,
    Source,
)
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Plan, Residence, Select, Strategy
from helmsman.schemas.predicted import Interval, MemoryUse, PhasePrediction, Predicted, Seconds
from helmsman.schemas.read import digest
from helmsman.schemas.workload import Workload

GIB = 1 << 30


def figure(value: float) -> Figure:
    return Figure(value=value, p10=value, p90=value, n=1, source="test")


def make_hardware(
    ram: int = 8 * GIB,
    vram: int = GIB,
    bandwidth: float = 4e9,
    latency: float = 20e-6,
    kind: str = "loopback",
    cores: int = 1,
) -> Hardware:
    """Devices `cpu` on one core, `loopback` of `kind` on `cores`, and `cpu-all` on two."""

    def device(name: str, kind: str, memory: str, cores: int, excludes: tuple[str, ...]) -> Device:
        facts = {"name": name, "kind": kind, "memory": memory, "cores": cores, "excludes": excludes}
        return Device(read=figure(1e10), compute=(Compute(phase="prefill", flops=figure(1e11)),), **facts)

    dram = Memory(name="dram", kind="dram", capacity=ram, available=ram, bandwidth=figure(1e10), source="test")
    video = Memory(name="vram", kind="loopback", capacity=vram, available=vram, bandwidth=figure(1e10), source="test")
    shared = {"kind": "throttled", "bandwidth": figure(bandwidth), "latency": figure(latency)}
    return Hardware(
        name="test machine",
        memories=(dram, video),
        devices=(
            device("cpu", "cpu", "dram", 1, ("cpu-all",)),
            device("loopback", kind, "vram", cores, ("cpu-all",)),
            device("cpu-all", "cpu", "dram", 2, ("cpu", "loopback")),
        ),
        links=(
            Link(name="h2d", source_memory="dram", target_memory="vram", **shared),
            Link(name="d2h", source_memory="vram", target_memory="dram", **shared),
        ),
        sources={"test": Source(kind="assumed", where="tests")},
    )


def make_plan(
    model: Model,
    on_cpu: int | None = None,
    *,
    weights: StoredFormat = "f32",
    kv: KvFormat = "f32",
    workload: Workload | None = None,
    hardware: Hardware | None = None,
) -> Plan:
    """The first `on_cpu` units on the CPU, the others on the loopback accelerator; all-CPU by default."""
    split = model.units if on_cpu is None else on_cpu
    hardware = hardware or make_hardware()
    workload = workload or Workload(prompt_tokens=8, output_tokens=8, context=32)
    whole = split == model.units
    host, rest = "cpu-all" if whole else "cpu", ("dram", "cpu-all") if whole else ("vram", "loopback")
    blocks = [Select(layers=LayerRange(start=0, stop=split - 1))] if 1 < split < model.units else []
    ends = [Select(names=names) for names in beginnings(model)] if 0 < split < model.units else []
    first = [*ends, *blocks]
    return Plan(
        label=f"cpu({split})->loopback({model.units - split})",
        model=model,
        model_sha256=digest(model),
        hardware=hardware,
        hardware_sha256=digest(hardware),
        workload=workload,
        workload_sha256=digest(workload),
        strategy=Strategy(name="layer-split"),
        residence=(
            *(Residence(select=select, memory="dram", format=weights) for select in first),
            Residence(select=Select(), memory=rest[0], format=weights),
        ),
        kv=(
            *(KvRule(select=select, memory="dram", format=kv) for select in blocks),
            KvRule(select=Select(), memory=rest[0], format=kv),
        ),
        compute=(
            *(ComputeRule(select=select, device=host) for select in first),
            ComputeRule(select=Select(), device=rest[1]),
        ),
        activations="f32",
        predicted=predicted(workload),
    )


def predicted(workload: Workload) -> Predicted:
    second = Interval(low=1.0, mid=1.0, high=1.0)
    phase = PhasePrediction(
        context=workload.context, seconds=second, terms=(), bottleneck="cpu", lower_bound=0.5, gap=1.0
    )
    use = MemoryUse(memory="dram", weights=0, kv=0, buffers=0, available=GIB)
    return Predicted(
        prefill=phase,
        decode=phase,
        ttft=Seconds(seconds=second),
        tokens_per_second=second,
        memory=(use,),
    )


def sharing_hardware(joint: float = 1.2e10) -> Hardware:
    """`make_hardware` whose accelerator computes from a part of the host's memory, with all that a profile measures of
    two devices on one memory: `joint` bytes/s of reads by both, what products reach of them, what each keeps of its
    arithmetic while the other computes, what requests add to attention, and time between tasks."""
    made = make_hardware(ram=64 * GIB, vram=12 * GIB)
    dram, vram = made.memories
    both = {
        "joint": figure(joint),
        "joint_products": (JointProducts(format="bf16", share=figure(0.9)),),
        "joint_compute": figure(0.9),
    }
    waits = {"join": figure(2e-6), "request": figure(5e-6)}
    devices = tuple(device.model_copy(update=waits) for device in made.devices)
    moves = {"handover": figure(4e-6), "interrupts": {"cpu": Interrupts(small=figure(0.05), large=figure(0.2))}}
    return made.model_copy(
        update={
            "memories": (dram.model_copy(update=both), vram.model_copy(update={"shares": "dram"})),
            "devices": devices,
            "links": tuple(link.model_copy(update=moves) for link in made.links),
        }
    )
