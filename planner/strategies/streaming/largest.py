"""The largest batch that fits: what to ask for instead of one that does not."""

from collections.abc import Callable

from helmsman.schemas.workload import Workload


def largest_batch(workload: Workload, fits: Callable[[Workload], bool]) -> int:
    """The most sequences per batch, fewer than those of `workload`, that fit; 0 if not even one does.

    As many batches as asked for. No memory needs less for more sequences, so `fits` is asked about log2(batch)."""
    low, high = 0, workload.batch
    while high - low > 1:
        middle = (low + high) // 2
        if fits(workload.model_copy(update={"batch": middle})):
            low = middle
        else:
            high = middle
    return low
