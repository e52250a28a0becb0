"""The choices of an `op-split` question: parts of operations, compression, storage."""

from dataclasses import dataclass, field
from typing import Literal

from helmsman.schemas.plan import Path

Compression = Literal["none", "weights", "kv", "all", "best"]
"""The transfers that carry 4-bit groups: of weights, of caches, of both; `best`: the search chooses among these."""


@dataclass(frozen=True)
class SplitRules:
    """Every choice that the ablations of the paper switch.

    `chunks`: into how many parts an operation may be divided; `compress`: 4-bit groups for what is streamed (`best`:
    the search decides); `storage`: memories of NVMe devices that may hold streamed weights, in balanced shares;
    `offload` off: nothing is computed by the host (the paper's GPU-only mode)."""

    chunks: dict[str, int] = field(default_factory=dict)
    compress: Compression = "none"
    storage: tuple[str, ...] = ()
    path: Literal["direct", "bounce"] = "direct"
    pinning: Path = "pinned"
    offload: bool = True
    printed: bool = False
