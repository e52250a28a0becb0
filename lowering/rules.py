"""Applying a plan's rule lists: the first rule that matches a tensor, cache or operation decides."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Protocol, TypeVar

from helmsman.lowering.tensors import Tensor
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import Format
from helmsman.schemas.plan import ComputeRule, KvRule, Residence, Select


class Rules(Protocol):
    """The rule lists of a Plan, or of a placement that is not a Plan yet."""

    @property
    def residence(self) -> tuple[Residence, ...]:
        """Homes of weights."""

    @property
    def kv(self) -> tuple[KvRule, ...]:
        """Homes of caches."""

    @property
    def compute(self) -> tuple[ComputeRule, ...]:
        """Places of operations."""


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


def residence(rules: Rules, tensor: Tensor) -> tuple[str, Format]:
    """(memory, format) of a weight tensor."""
    rule = _first(rules.residence, "residence", tensor.name, tensor.layer)
    return rule.memory, rule.format


def kv_rule(rules: Rules, layer: int) -> KvRule:
    """Where and how the cache of block `layer` is kept."""
    return _first(rules.kv, "kv", "kv", layer)


def device_of(rules: Rules, op: str, layer: int | None, phase: Phase) -> str:
    """The device that runs operation `op` of block `layer` in `phase`."""
    return _first(rules.compute, "compute", op, layer, lambda rule: rule.phase in (None, phase)).device


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
