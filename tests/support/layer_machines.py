"""A record of the machine at hand with a loopback accelerator, as a profile makes it, and a layer to ask about."""

from helmsman.executor.measuring.host_facts import host_facts
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.fit import exact, figure
from helmsman.schemas.blocks.positions import LearnedPositions, Rope
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.described import described
from helmsman.schemas.figures import Source
from helmsman.schemas.hardware import Compute, Device, Hardware, Link, Memory

RATE, LATENCY, READ = 1e9, 20e-6, 8e9

_SHAPE = DenseModel(
    name="a-layer",
    family="qwen3",
    layers=4,
    hidden=512,
    heads=8,
    kv_heads=4,
    head_dim=64,
    ffn=1536,
    vocab=1024,
    max_context=4096,
    activation="silu",
    gated=True,
    norm="rms",
    norm_eps=1e-6,
    position=Rope(theta=1e4, rotary_dim=64),
    qk_norm=True,
)
LAYER = described(_SHAPE)
OPT_LAYER = described(
    _SHAPE.model_copy(
        update={
            "family": "opt",
            "gated": False,
            "activation": "relu",
            "norm": "layer",
            "qkv_bias": True,
            "out_bias": True,
            "ffn_bias": True,
            "qk_norm": False,
            "kv_heads": 8,
            "position": LearnedPositions(offset=2),
        }
    )
)


def two_cpus(cores: int = 2) -> Machine:
    """This machine with `cores` CPUs, whatever it has, and a small cache."""
    found = Machine.this()
    return Machine((found.cpus * cores)[:cores], found.memory, 2 << 20)


def loopback_record(machine: Machine, rate: float = RATE) -> Hardware:
    """All CPUs but one for the host, that one for the accelerator."""
    return Hardware(
        name="this",
        memories=(
            _memory("dram", "dram"),
            _memory("vram", "loopback", shares="dram"),
        ),
        devices=(
            _device("cpu", "dram", len(machine.cpus) - 1),
            _device("loopback", "vram", 1),
        ),
        links=(_link("h2d", "dram", "vram", rate), _link("d2h", "vram", "dram", rate)),
        sources={"test": Source(kind="measured", where="a test")},
        host=host_facts(machine),
    )


def _memory(name: str, kind: str, shares: str | None = None) -> Memory:
    size = 1 << 32
    content = {"name": name, "kind": kind, "capacity": size, "available": size, "source": "test", "shares": shares}
    return Memory.model_validate({**content, "bandwidth": exact(READ, "test")})


def _device(name: str, memory: str, cores: int) -> Device:
    compute = tuple(Compute(phase=phase, flops=figure([5e10], "test")) for phase in ("prefill", "decode"))
    kind = "loopback" if name == "loopback" else "cpu"
    return Device.model_validate(
        {
            "name": name,
            "kind": kind,
            "memory": memory,
            "cores": cores,
            "read": exact(READ, "test"),
            "compute": compute,
        }
    )


def _link(name: str, source: str, target: str, rate: float) -> Link:
    return Link(
        name=name,
        source_memory=source,
        target_memory=target,
        kind="loopback",
        bandwidth=exact(rate, "test"),
        latency=exact(LATENCY, "test"),
    )
