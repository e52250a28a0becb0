"""The rules of a layer split: the first k units on the CPU, the others on the accelerator, with their caches."""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from helmsman.lowering.placement import Placement
from helmsman.lowering.stages import beginnings
from helmsman.planner.machine import Roles
from helmsman.planner.strategies.layer_windows import Window, with_window
from helmsman.planner.tensor_formats import Formats, with_own_formats
from helmsman.schemas.formats import KvFormat, StoredFormat
from helmsman.schemas.model import Model
from helmsman.schemas.objective import DEFAULT_OBJECTIVE, Objective
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Residence, Schedule, Select
from helmsman.schemas.workload import Workload


@dataclass(frozen=True, slots=True)
class SplitQuestion:
    """Formats, where the accelerator's KV lives, and what is minimised; `window`: what of that KV is on the accelerator
    where host memory is its home; `undivided`: only plans of one device; `formats`: of tensors that are not kept in
    that of the other `weights`."""

    weights: StoredFormat = "f16"
    kv: KvFormat = "f16"
    kv_offload: bool = False
    objective: Objective = DEFAULT_OBJECTIVE
    window: Window | None = None
    undivided: bool = False
    formats: Formats = field(default_factory=dict, hash=False)


def place(model: Model, roles: Roles, workload: Workload, options: SplitQuestion, k: int) -> Placement:
    """Return the rules that put the first `k` units on the CPU and the rest on the accelerator."""
    if options.window is not None and has_window(model, roles, options, k):
        assert roles.accelerator is not None
        offloaded = place(model, roles, workload, replace(options, window=None, kv_offload=True), k)
        return with_window(offloaded, roles.accelerator.memory, options.window)
    host = roles.solo if k == model.units else roles.host
    accelerator = roles.accelerator or host
    rest = host if k == model.units else accelerator
    kv_rest = host.memory if options.kv_offload else rest.memory
    ends = (host.name, host.memory), (rest.name, rest.memory)
    rules = _rules(model, *ends, kv_rest, options.weights, options.kv, k)
    placement = Placement(
        model=model,
        hardware=roles.hardware,
        workload=workload,
        residence=rules.residence,
        kv=rules.kv,
        compute=rules.compute,
        activations=roles.activations,
        schedule=rules.schedule,
    )
    return with_own_formats(placement, options.formats)


class _SplitRules(NamedTuple):
    """The rule lists of a split, and how a pass is ordered."""

    residence: tuple[Residence, ...]
    kv: tuple[KvRule, ...]
    compute: tuple[ComputeRule, ...]
    schedule: Schedule


_SPLITS = 256
"""The number of splits whose rules are kept at most."""


@lru_cache(maxsize=_SPLITS)
def _rules(
    model: Model,
    host: tuple[str, str],
    rest: tuple[str, str],
    kv_rest: str,
    weights: StoredFormat,
    kv: KvFormat,
    k: int,
) -> _SplitRules:
    """Return the rules of a split between two devices, each with its memory, made once for all prompts; `kv_rest`:
    where the second one's caches live."""
    on_host = _host_selectors(model, k)
    (host_device, host_memory), (device, memory) = host, rest
    blocks = [select for select in on_host if select.layers]
    streams = kv_rest != memory and max(k - 1, 0) < model.layers
    return _SplitRules(
        residence=(
            *(Residence(select=select, memory=host_memory, format=weights) for select in on_host),
            Residence(select=Select(), memory=memory, format=weights),
        ),
        kv=(
            *(KvRule(select=select, memory=host_memory, format=kv) for select in blocks),
            KvRule(select=Select(), memory=kv_rest, format=kv),
        ),
        compute=(
            *(ComputeRule(select=select, device=host_device) for select in on_host),
            ComputeRule(select=Select(), device=device),
        ),
        schedule=Schedule(overlap="next-layer", prefetch=1) if streams else Schedule(),
    )


def has_window(model: Model, roles: Roles, options: SplitQuestion, k: int) -> bool:
    """Whether any block of candidate `k` attends through a window."""
    return options.window is not None and roles.separate and k <= model.layers


def _host_selectors(model: Model, k: int) -> list[Select]:
    """Return what a split keeps on the host: the embedding, then k - 1 blocks; nothing for single-device plans."""
    if k in (0, model.units):
        return []
    ends = [Select(names=names) for names in beginnings(model)]
    return [*ends, Select(layers=LayerRange(start=0, stop=k - 1))] if k > 1 else ends
