"""Plans whose accelerator keeps a window of its caches, for tests."""

from typing import Any

from plans import make_plan

from helmsman.schemas.model import Model
from helmsman.schemas.page_cache import PageCache
from helmsman.schemas.plan import Plan, Schedule


def with_window(plan: Plan, home: str = "dram", memory: str = "vram", **cache: Any) -> Plan:
    """`plan` with the caches of `memory` at home elsewhere, and a window in `memory`."""
    window = PageCache(memory=memory, **cache)
    rules = (
        rule.model_copy(update={"memory": home, "cache": window}) if rule.memory == memory else rule for rule in plan.kv
    )
    return plan.model_copy(update={"kv": tuple(rules), "schedule": Schedule(overlap="next-layer", prefetch=1)})


def make_paged_plan(
    model: Model, on_cpu: int = 0, *, page: int = 32, window: int = 96, mark: float = 0.8, **rest: Any
) -> Plan:
    """`make_plan` with a window."""
    return with_window(make_plan(model, on_cpu, **rest), page_tokens=page, window_tokens=window, watermark=mark)
