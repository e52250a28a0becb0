"""Places a drafter beside a plan: on the device that computes the model's head, from that device's memory."""

from typing import NamedTuple

from helmsman.lowering.placement import Placed
from helmsman.lowering.rules import device_of, homes, kv_rule
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import output_tensors
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, KvRule, Residence, Select


class DrafterRules(NamedTuple):
    """The rules of all of a drafter: weights in the format of the model's head, caches in that of its last block."""

    residence: tuple[Residence, ...]
    kv: tuple[KvRule, ...]
    compute: tuple[ComputeRule, ...]


def drafter_rules(plan: Placed) -> DrafterRules:
    """Return where a drafter's weights and caches are, and what computes it, in decode steps of `plan`."""
    device = device_of(plan, "head", None, "decode")
    memory = plan.hardware.device(device).memory
    table = homes(plan, head_table(plan.model))[0].rule
    cache = kv_rule(plan, plan.model.layers - 1)
    return DrafterRules(
        (Residence(select=Select(), memory=memory, format=table.format),),
        (KvRule(select=Select(), memory=memory, format=cache.used),),
        (ComputeRule(select=Select(), device=device),),
    )


def shares_head(plan: Placed) -> bool:
    """Whether all rows of the model's head are in the memory of the device that computes it, where a draft head reads
    them too."""
    memory = drafter_rules(plan).residence[0].memory
    pieces = homes(plan, head_table(plan.model))
    return len(pieces) == 1 and memory in (pieces[0].rule.memory, *pieces[0].rule.replicas)


def head_table(model: Model) -> Tensor:
    """Return the matrix of a model's head."""
    return next(tensor for tensor in output_tensors(model) if tensor.name == "head.weight")
