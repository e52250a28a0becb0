"""Does it fit: bytes of weights, KV and buffers in every memory of a placement (eq 4.16, both sides)."""

from collections.abc import Iterable, Iterator

from helmsman.lowering.buffers import buffer_bytes
from helmsman.lowering.ops import BLOCK_OPS
from helmsman.lowering.placement import Placed
from helmsman.lowering.rules import device_of, kv_rule, residence
from helmsman.lowering.tensors import tensors
from helmsman.scheduler.iteration import PHASES
from helmsman.schemas.formats import Format, size_of
from helmsman.schemas.model import Model
from helmsman.schemas.plan import MemoryUse
from helmsman.schemas.workload import Workload


def memory_use(placed: Placed) -> tuple[MemoryUse, ...]:
    """What the placement needs in each memory of its hardware, against what it may use."""
    weights, kv, buffers = _weights(placed), _kv(placed), _buffers(placed)
    return tuple(
        MemoryUse(
            memory=memory.name,
            weights=weights.get(memory.name, 0),
            kv=kv.get(memory.name, 0),
            buffers=buffers.get(memory.name, 0),
            available=memory.available,
        )
        for memory in placed.hardware.memories
    )


def shortages(uses: Iterable[MemoryUse]) -> dict[str, int]:
    """Bytes missing per memory; empty when everything fits."""
    return {use.memory: use.used - use.available for use in uses if use.used > use.available}


def kv_block_bytes(model: Model, workload: Workload, kv_format: Format) -> int:
    """Cache bytes of one block for every sequence in flight, at full context (eq 4.12)."""
    sequences = workload.batch * workload.batches
    return size_of(2 * sequences * workload.context * model.kv_width, kv_format)


def staging_bytes(placed: Placed, memory: str) -> int:
    """Buffers of what is streamed into `memory`: prefetch + 1 times the largest operation's weights, and a
    block's KV at full context, where they live elsewhere."""
    depth = placed.schedule.prefetch + 1
    return depth * (_largest_streamed(placed, memory) + _streamed_kv(placed, memory))


def _largest_streamed(placed: Placed, memory: str) -> int:
    sizes: dict[tuple[str, int | None], int] = {}
    for tensor in tensors(placed.model):
        home, fmt = residence(placed, tensor)
        if home != memory and any(_runs_in(placed, memory, tensor.op, tensor.layer)):
            rows = placed.workload.batch * placed.workload.prompt_tokens
            elements = min(rows, tensor.shape[0]) * tensor.shape[1] if tensor.op == "embedding" else tensor.elements
            key = (tensor.op, tensor.layer)
            sizes[key] = sizes.get(key, 0) + size_of(elements, fmt)
    return max(sizes.values(), default=0)


def _streamed_kv(placed: Placed, memory: str) -> int:
    remote = {
        kv_rule(placed, layer).format
        for layer in range(placed.model.layers)
        if kv_rule(placed, layer).memory != memory and any(_runs_in(placed, memory, "attention", layer))
    }
    return max((kv_block_bytes(placed.model, placed.workload, fmt) for fmt in remote), default=0)


def _runs_in(placed: Placed, memory: str, op: str, layer: int | None) -> Iterator[bool]:
    """For each phase, whether the operation runs on a device of `memory`."""
    return (_memory_of(placed, device_of(placed, op, layer, phase)) == memory for phase in PHASES)


def devices_used(placed: Placed) -> tuple[str, ...]:
    """Devices that run at least one operation, in the hardware's order."""
    places = [(op, None) for op in ("embedding", "final_norm", "head")]
    blocks = [(op, layer) for layer in range(placed.model.layers) for op in BLOCK_OPS]
    used = {device_of(placed, op, layer, phase) for op, layer in (*places, *blocks) for phase in PHASES}
    return tuple(device.name for device in placed.hardware.devices if device.name in used)


def _weights(placed: Placed) -> dict[str, int]:
    homes = {tensor.name: residence(placed, tensor)[0] for tensor in tensors(placed.model) if tensor.layer is None}
    total: dict[str, int] = {}
    for tensor in tensors(placed.model):
        home, fmt = residence(placed, tensor)
        if tensor.tied_to is not None and homes[tensor.tied_to] == home:
            continue
        total[home] = total.get(home, 0) + tensor.size(fmt)
    return total


def _kv(placed: Placed) -> dict[str, int]:
    total: dict[str, int] = {}
    for layer in range(placed.model.layers):
        rule = kv_rule(placed, layer)
        size = kv_block_bytes(placed.model, placed.workload, rule.format)
        total[rule.memory] = total.get(rule.memory, 0) + size
    return total


def _buffers(placed: Placed) -> dict[str, int]:
    workload, total = placed.workload, dict[str, int]()
    buffers = buffer_bytes(placed.model, workload)
    for name in devices_used(placed):
        memory = _memory_of(placed, name)
        total[memory] = total.get(memory, 0) + buffers + staging_bytes(placed, memory)
    return total


def _memory_of(placed: Placed, device: str) -> str:
    return placed.hardware.device(device).memory
