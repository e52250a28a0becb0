"""Bytes that page-locked caches take beyond their sizes (PARK-53, 67, 75)."""

from collections.abc import Iterator

from helmsman.lowering.layer_cache import cache_of
from helmsman.lowering.placement import KnownPlan
from helmsman.lowering.rules import Cached, Slice, kv_homes
from helmsman.lowering.variants import cached_elements
from helmsman.planner.memory.alike_blocks import alike
from helmsman.planner.memory.devices_used import memories_of
from helmsman.schemas.formats import StoredFormat, size_of
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import KvRule
from helmsman.schemas.workload import Workload


def pinned_bytes(size: int) -> int:
    """Bytes that a page-locked allocation of `size` takes: PyTorch's host allocator rounds up to a power of two.

    So pinned regions take less than twice their size here (the caches of 544 tokens of 1 x 50 sequences of OPT-30B:
    1.38 times). The paper says more than twice (PARK-53, 75; Fig 11); the rest is not explained, and not modelled."""
    return 1 << (size - 1).bit_length() if size else 0


def page_locks(hardware: Hardware) -> bool:
    """Whether a driver of the machine page-locks memory: those of GPUs do."""
    return any(device.kind in ("cuda", "rocm", "xpu") for device in hardware.devices)


def pinned_extra(workload: Workload, width: int, kv_format: StoredFormat) -> int:
    """Return what a block's page-locked keys, or values, of `width` elements per token take beyond their size: one
    allocation per batch."""
    size = size_of(workload.batch * workload.context * width, kv_format)
    return workload.batches * (pinned_bytes(size) - size)


def pinned_by_memory(placed: KnownPlan) -> dict[str, int]:
    """Return what page-locked caches take beyond their sizes, where drivers of GPUs page-lock: every batch's keys, and
    values, of a block that another memory's devices use are an allocation of their own (PARK-53, 67, 75).

    Weights are taken to be page-locked in place (assumed: rounded up matrix by matrix, OPT-30B beside a batch of 50
    would not fit the machine on which the paper runs it).

    This limits plans that also compute on the host to 4 x 61, the paper's 4 x 60 is just below (PARK-67): 4-bit keys
    of 544 tokens of 61 sequences of OPT-30B just stay below 2^27 bytes, one more takes 2^28, and 103 GB of caches leave
    no room for the uncompressed weights of a host that computes (22 GB are missing). Its search does not see memory. A
    search that does falls back to streaming everything, which lacks nothing up to 4 x 122. FlexGen's caches are
    pageable: the published 4 x 100 fits, as do 22 sequences more, for which no rule of the text accounts."""
    total: dict[str, int] = {}
    if not page_locks(placed.hardware):
        return total
    for count, piece, width in placed.fact("page-locked caches", lambda: tuple(_streamed_pinned(placed))):
        width = cached_elements(placed.model, placed.schedule.cache, (piece.stop - piece.start) * width)
        extra = pinned_extra(placed.workload, width, piece.rule.format)
        total[piece.rule.memory] = total.get(piece.rule.memory, 0) + count * extra
    return total


def _streamed_pinned(placed: KnownPlan) -> Iterator[tuple[int, Slice[KvRule], int]]:
    """Yield page-locked keys and values that come to another memory in decode steps: the number of blocks that have
    them so, and the values of a token's head of them."""
    for layer, count in alike(placed).items():
        yield from ((count, *piece) for piece in _of_block(placed, layer))


def _of_block(placed: KnownPlan, layer: int) -> Iterator[tuple[Slice[KvRule], int]]:
    cache = cache_of(placed.model, layer)
    if cache is None:
        return
    for what, op in _CACHES:
        for piece in kv_homes(placed, what, layer, cache.heads) if cache.width(what) else ():
            away = memories_of(placed, op, layer, "decode") - {piece.rule.memory}
            if piece.rule.path == "pinned" and away:
                yield piece, cache.width(what)


_CACHES: tuple[tuple[Cached, str], ...] = (("keys", "scores"), ("values", "wv"))
