"""Key and value caches: one contiguous buffer each per block, as large as the workload's context."""

from helmsman.executor._kernels import Buffer
from helmsman.executor.devices.memory import BoundedMemory
from helmsman.executor.formats import computing_format
from helmsman.executor.partition import Part
from helmsman.lowering.rules import kv_rule
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import Format, size_of
from helmsman.schemas.plan import Plan


def kv_format(plan: Plan, part: Part) -> Format:
    """The format of a part's caches. Raises UsageError when its blocks differ."""
    formats = {computing_format(kv_rule(plan, layer).format, "the cache") for layer in part.blocks}
    if len(formats) > 1:
        raise UsageError(
            f"the caches of one device must share a format, those of {part.device} differ",
            field="kv",
            value=sorted(formats),
            remedy="give every block of a device the same KV format",
        )
    return next(iter(formats), "f32")


def allocate_cache(plan: Plan, layer: int, memory: BoundedMemory) -> tuple[Buffer, Buffer]:
    """Keys and values of one block: (batch, kv_heads, context, head_dim) each."""
    model, workload = plan.model, plan.workload
    elements = workload.batch * model.kv_heads * workload.context * model.head_dim
    size = size_of(elements, kv_rule(plan, layer).format)
    return memory.alloc(size, f"keys of block {layer}"), memory.alloc(size, f"values of block {layer}")
