"""Where offloading strategies keep keys and values: by whole blocks or by heads in host memory, the rest on the
accelerator (HELM-90)."""

from collections.abc import Callable
from itertools import pairwise
from typing import Literal

from helmsman.planner.batches.largest import most
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Part, Select

CacheRule = Literal["accelerator", "host", "layerkv", "headinfer"]
"""layerkv: of some blocks in host memory, at equal distances, so that what comes hides behind the blocks between
(LayerKV, Xiong et al. 2024); headinfer: of some heads of every block (HeadInfer, Luo et al. 2025)."""


def divisions(model: Model, rule: CacheRule) -> int:
    """Into how many parts a rule divides all caches: blocks, heads, or nothing."""
    return {"layerkv": model.layers, "headinfer": model.dense.kv_heads}.get(rule, 0)


def least_away(model: Model, rule: CacheRule, fits: Callable[[int], bool]) -> int:
    """The fewest parts in host memory that fit; all of them if nothing does."""
    parts = divisions(model, rule)
    return 0 if not parts or fits(0) else parts - most(parts - 1, lambda kept: fits(parts - kept))


def interleaved(layers: int, away: int) -> tuple[LayerRange, ...]:
    """`away` of the blocks, at equal distances, as runs of neighbours."""
    chosen = [layer for layer in range(layers) if (layer + 1) * away // layers > layer * away // layers]
    starts = [layer for before, layer in pairwise([-2, *chosen]) if layer > before + 1]
    stops = [layer + 1 for layer, after in pairwise([*chosen, layers + 1]) if after > layer + 1]
    return tuple(LayerRange(start=start, stop=stop) for start, stop in zip(starts, stops, strict=True))


def cache_rules(frame: Frame, rule: CacheRule, away: int, host: str) -> tuple[KvRule, ...]:
    """Caches of `away` parts in memory `host`, the others on the accelerator; all in one place without parts."""
    here = KvRule(select=Select(), memory=frame.accelerator.memory, format=frame.kv)
    if rule == "host":
        return (here.model_copy(update={"memory": host}),)
    selects = _away(frame.model, rule, away)
    return (*(KvRule(select=select, memory=host, format=frame.kv) for select in selects), here)


def delegated(frame: Frame, rule: CacheRule, away: int) -> tuple[ComputeRule, ...]:
    """Attention of decode steps on the host, for blocks whose caches are there."""
    every = (LayerRange(start=0, stop=frame.model.layers),)
    runs = every if rule == "host" else interleaved(frame.model.layers, away) if rule == "layerkv" else ()
    selects = (Select(names="attention", layers=run) for run in runs)
    return tuple(ComputeRule(select=select, device=frame.roles.host.name, phase="decode") for select in selects)


def _away(model: Model, rule: CacheRule, away: int) -> tuple[Select, ...]:
    if rule == "headinfer" and away:
        return (Select(part=Part(axis="heads", start=0, stop=away)),)
    return tuple(Select(layers=run) for run in interleaved(model.layers, away)) if rule == "layerkv" else ()


def cache_label(model: Model, rule: CacheRule, away: int) -> list[str]:
    """`host KV`, `layerkv 12 of 48`, or nothing where all caches are on the accelerator."""
    return {"accelerator": [], "host": ["host KV"]}.get(rule, [f"{rule} {away} of {divisions(model, rule)}"])
