"""Known tokens of prompts in a store beside the caches, as LMCache keeps them (HELM-90)."""

from helmsman.lowering.rules import PREFIX
from helmsman.planner.strategies.common_options import memory_named
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import KvRule, Path, Select
from helmsman.schemas.storage import STORAGE


def store_rules(frame: Frame, store: str | None) -> tuple[KvRule, ...]:
    """The rule of memory `store`, to come before those of the caches on the accelerator; None: no store.

    From storage straight to the accelerator where a link does that, else through host memory. Raises UsageError where
    nothing leads from the store to the accelerator."""
    if store is None:
        return ()
    memory, hardware = frame.accelerator.memory, frame.roles.hardware
    straight, host = hardware.link(store, memory) is not None, frame.roles.host.memory
    if not straight and (hardware.link(store, host) is None or hardware.link(host, memory) is None):
        remedy = f"name {host}, or another memory with a link to {memory}"
        raise UsageError(f"no way from there to {memory}", field="kv_store", value=store, remedy=remedy)
    path: Path = "pinned" if hardware.memory(store).kind != STORAGE else "direct" if straight else "bounce"
    return (KvRule(select=Select(names=PREFIX), memory=store, format=frame.kv, path=path),)


def store_label(frame: Frame, store: str | None) -> list[str]:
    """`lmcache dram 384`: the store and the known tokens of a prompt."""
    return [] if store is None else [f"lmcache {store} {frame.workload.prefix_tokens}"]


def kv_store(frame: Frame, rule: str | None, store: str | None) -> str | None:
    """Return the memory in which known tokens of prompts wait, with rule lmcache: `store`, or the host's.

    Raises UsageError for a store without that rule, and for the rule where no tokens are known."""
    if rule != "lmcache":
        if store is not None:
            remedy = "add it, or leave `kv_store` out"
            raise UsageError("goes with `kv_rule` lmcache", field="kv_store", value=store, remedy=remedy)
        return None
    if not frame.workload.prefix_tokens:
        problem, remedy = "a store needs prompts that are known in part", "add `prefix_tokens` N"
        raise UsageError(problem, field="kv_rule", value="lmcache", remedy=remedy)
    return memory_named(store, frame.roles.host.memory, "kv_store", frame.roles.hardware)
