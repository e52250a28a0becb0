"""Every study of the paper's evaluation, by the figure that it is about."""

from collections.abc import Callable, Mapping

from benchmarks.park_egger import (
    ablation,
    limits,
    numerics,
    overlap,
    preparation,
    sensitivity,
    splits,
    storage,
    throughput,
    turning,
)
from benchmarks.park_egger.study import Study

STUDIES: Mapping[str, Callable[[], Study]] = {
    "13": turning.study,
    "14": splits.study,
    "15": throughput.study,
    "16": throughput.others,
    "17": storage.study,
    "18": overlap.study,
    "19": ablation.study,
    "20": ablation.variants,
    "table2": preparation.study,
    "limits": limits.study,
    "sensitivity": sensitivity.study,
    "numerics": numerics.study,
}
