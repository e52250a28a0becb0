"""Applying a plan's rule lists: the first rule that matches a tensor, cache or operation decides."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Protocol, TypeVar

from helmsman.lowering.tensors import Tensor
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import Format
from helmsman.schemas.plan import KvRule, Plan, Select


class _Rule(Protocol):
    @property
    def select(self) -> Select: ...


RuleT = TypeVar("RuleT", bound=_Rule)


@lru_cache(maxsize=4096)
def _named(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern)


def matches(select: Select, name: str, layer: int | None) -> bool:
    """Whether `select` covers the thing called `name` in block `layer`."""
    if not _named(select.names, name):
        return False
    if select.layers is None:
        return True
    return layer is not None and select.layers.start <= layer < select.layers.stop


def residence(plan: Plan, tensor: Tensor) -> tuple[str, Format]:
    """(memory, format) of a weight tensor."""
    rule = _first(plan.residence, "residence", tensor.name, tensor.layer)
    return rule.memory, rule.format


def kv_rule(plan: Plan, layer: int) -> KvRule:
    """Where and how the cache of block `layer` is kept."""
    return _first(plan.kv, "kv", "kv", layer)


def device_of(plan: Plan, op: str, layer: int | None, phase: Phase) -> str:
    """The device that runs operation `op` of block `layer` in `phase`."""
    return _first(plan.compute, "compute", op, layer, lambda rule: rule.phase in (None, phase)).device


def _first(
    rules: Sequence[RuleT],
    where: str,
    name: str,
    layer: int | None,
    allowed: Callable[[RuleT], bool] = lambda _: True,
) -> RuleT:
    for rule in rules:
        if allowed(rule) and matches(rule.select, name, layer):
            return rule
    place = name if layer is None else f"{name} of block {layer}"
    raise BadInputError(f"no rule covers {place}", field=where, remedy="add a last rule that selects *")
