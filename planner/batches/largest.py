"""The largest that fits: of a batch, what to ask for instead of one that does not."""

from collections.abc import Callable

from helmsman.schemas.workload import Workload


def largest_batch(workload: Workload, fits: Callable[[Workload], bool]) -> int:
    """The most sequences per batch, fewer than those of `workload`, that fit; 0 if not even one does.

    As many batches as asked for. No memory needs less for more sequences, so `fits` is asked about log2(batch)."""
    return most(workload.batch - 1, lambda batch: fits(workload.model_copy(update={"batch": batch})))


def doubling(limit: int, fits: Callable[[int], bool], known: int = 0) -> int:
    """Return the most that fits, as `most` does, where `known` fit already and few more are likely to: asks about those
    just above first."""
    step = 1
    while known + step <= limit and fits(known + step):
        known, step = known + step, 2 * step
    return known + most(min(step - 1, limit - known), lambda more: fits(known + more))


def most(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest 0 < n <= `limit` that fits, where what fits for n fits for fewer; 0 if not even one does.

    `fits` is asked about log2(limit)."""
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
