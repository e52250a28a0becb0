"""Windows of caches that could not do what they say, each named by its rule."""

from collections.abc import Iterator

from helmsman.lowering.caches import pieces_of
from helmsman.lowering.layer_cache import read_cache
from helmsman.lowering.paging import window_of
from helmsman.lowering.rules import PREFIX, kv_rule, places
from helmsman.planner.memory.devices_used import memories_of
from helmsman.scheduler.iteration import PHASES
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.page_cache import PageCache
from helmsman.schemas.plan import KvRule, Plan
from helmsman.schemas.storage import STORAGE


def check_windows(plan: Plan) -> None:
    """Raise BadInputError for a window of a part of a cache, of no block, without links to its home, where nothing
    attends, or in a pass that leaves no time for pages to come."""
    for index, rule in enumerate(plan.kv):
        if rule.cache is not None:
            _check_rule(plan, f"kv.{index}", rule, rule.cache)
    if any(rule.cache is not None for rule in plan.kv):
        _check_used(plan)
        _check_pass(plan)
        for layer in range(plan.model.layers):
            _check_whole(plan, layer)
            _check_place(plan, layer)
        _check_alike(plan)


def _check_rule(plan: Plan, field: str, rule: KvRule, cache: PageCache) -> None:
    if rule.select.names == PREFIX or rule.select.part is not None:
        raise BadInputError("only whole caches have a window", field=f"{field}.cache", remedy="leave it out")
    if rule.format == "q4":
        message, remedy = "what a window attends to is kept as attention reads it", "write another format"
        raise BadInputError(message, field=f"{field}.format", value=rule.format, remedy=remedy)
    if rule.path not in ("pinned", "pageable") or plan.hardware.memory(rule.memory).kind == STORAGE:
        message, remedy = "pages leave host memory, and nothing stops on its way", "write pinned or pageable"
        raise BadInputError(message, field=f"{field}.path", value=rule.path, remedy=remedy)
    for ends in ((rule.memory, cache.memory), (cache.memory, rule.memory)):
        if plan.hardware.link(*ends) is None:
            message, remedy = f"no link from {ends[0]} to {ends[1]} for pages", "join home and window both ways"
            raise BadInputError(message, field=f"{field}.cache.memory", value=cache.memory, remedy=remedy)


def _check_used(plan: Plan) -> None:
    """Every window is that of a block's cache."""
    used = [kv_rule(plan, layer) for layer in range(plan.model.layers)]
    for index, rule in enumerate(plan.kv):
        if rule.cache is not None and rule not in used:
            message, remedy = "no block has its cache by this rule", "leave it out, or put it before those that win"
            raise BadInputError(message, field=f"kv.{index}.cache", remedy=remedy)


def _check_pass(plan: Plan) -> None:
    schedule = plan.schedule
    faults = {
        "schedule.attention": schedule.attention != "whole",
        "schedule.reshape": schedule.reshape,
        "schedule.barrier": schedule.barrier,
        "schedule.cache": not schedule.cache.plain,
        "workload.batches": plan.workload.batches > 1,
        "workload.prefix_tokens": plan.workload.prefix_tokens > 0,
    }
    for field, wrong in faults.items():
        if wrong:
            message, remedy = "does not go with windows of caches", "leave it out, or the windows"
            raise BadInputError(message, field=field, remedy=remedy)
    if schedule.overlap != "next-layer":
        message, remedy = "pages come while what was there before is read", "write next-layer and a prefetch of 1"
        raise BadInputError(message, field="schedule.overlap", value=schedule.overlap, remedy=remedy)


def _check_whole(plan: Plan, layer: int) -> None:
    rules = {piece.rule for piece in pieces_of(plan, layer)}
    if len(rules) > 1 and any(rule.cache is not None for rule in rules):
        message, remedy = f"the cache of block {layer} has a window in part", "write one rule for keys and values"
        raise BadInputError(message, field="kv", remedy=remedy)


def _check_place(plan: Plan, layer: int) -> None:
    """Attention runs undivided where the window is, and new keys and values are made there, in both phases."""
    cache = window_of(plan, layer)
    if cache is None:
        return
    for phase in PHASES:
        divided = len(places(plan, "scores", layer, phase, _heads(plan, layer), "heads")) > 1
        memories = {
            memory for op in ("append", "scores", "softmax", "wv") for memory in memories_of(plan, op, layer, phase)
        }
        if divided or memories != {cache.memory}:
            raise BadInputError(
                f"attention of block {layer} runs elsewhere than its window is, or in parts",
                field=f"kv.{plan.kv.index(kv_rule(plan, layer))}.cache.memory",
                value=cache.memory,
                remedy="put the window in the memory of the device that attends, or leave it out",
            )


def _heads(plan: Plan, layer: int) -> int:
    """Return the heads of the cache that a block reads."""
    cache = read_cache(plan.model, layer)
    return 1 if cache is None else cache.heads


def _check_alike(plan: Plan) -> None:
    """A device has one ring and one kind of page."""
    for device in plan.hardware.devices:
        kinds = dict.fromkeys(_kinds(plan, device.name))
        if len(kinds) > 1:
            message, remedy = f"blocks of {device.name} have different windows or formats", "give all of them the same"
            raise BadInputError(message, field="kv", remedy=remedy)


def _kinds(plan: Plan, device: str) -> Iterator[tuple[PageCache | None, str, str, str]]:
    for layer in range(plan.model.layers):
        place = places(plan, "scores", layer, "decode", _heads(plan, layer), "heads")[0]
        if place.rule.device == device:
            rule = kv_rule(plan, layer)
            yield rule.cache, rule.format, *((rule.memory, rule.path) if rule.cache else ("", ""))
