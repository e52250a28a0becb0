"""Numbers of Park & Egger (2026) that studies compare with: where they stand, what they are, value, unit.

`derived`: computed from the published tables, not printed; lists and ranges have an entry per member, `.0`, `.1`."""

PUBLISHED: dict[str, tuple[str, str, float, str]] = {
    "PARK-F103": ("2.3", "FlexGen generation: seconds with transfers, at least", 70, "%"),
    "PARK-F104": ("2.3", "FlexGen multi-batch: accelerator idle, at least", 15, "%"),
    "PARK-F117": ("Fig 14a", "latency of the best single split below GPU-only, 1x50", 30, "%"),
    "PARK-F119": ("Fig 14b", "further, with Scores in 8 chunks", 7, "%"),
    "PARK-F122.0": ("5.3", "most throughput over FlexGen, single batch", 105, "%"),
    "PARK-F122.1": ("5.3", "the same, compressed", 80, "%"),
    "PARK-F122.2": ("5.3", "the same, multi-batch", 55, "%"),
    "PARK-F122.3": ("5.3", "the same, multi-batch compressed", 95, "%"),
    "PARK-F125": ("5.4", "most sequences per batch of four, FlexGen", 100, ""),
    "PARK-F126": ("5.4", "most sequences per batch of four, paper", 60, ""),
    "PARK-F128": ("Fig 18b", "share of a layer in which the CPU works, multi-batch, up to", 70, "%"),
    "PARK-F131": ("Fig 20", "latency below GPU-only with InfiniGen or ASC", 50, "%"),
    "PARK-F132": ("Fig 20", "the same, compressed", 20, "%"),
    "PARK-F133": ("abstract", "throughput over GPU-only, up to", 30, "%"),
    "PARK-F134": ("7", "speed-up over FlexGen, up to", 2, "x"),
    "PARK-F137": ("derived, Fig 6a", "GPU-only L", 81.258, "ms"),
    "PARK-F138": ("derived, Fig 6a", "best single split L", 68.615, "ms"),
    "PARK-F139": ("derived, Fig 6a", "best of all splits L", 47.546, "ms"),
    "PARK-F140": ("derived, Fig 6a", "best single split L, Scores in 8 chunks", 60.943, "ms"),
    "PARK-F145": ("derived, Fig 6a+8a", "compressed GPU-only L", 72.392, "ms"),
    "PARK-F146": ("derived, Fig 6a+8a", "compressed best of all splits L", 44.105, "ms"),
}
