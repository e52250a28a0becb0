"""APEX Fig 1: linear layers over tokens, and decode attention on both sides over batches."""

from benchmarks.papers.figure import Drawing, Found, Series, Traces
from benchmarks.papers.sites import APEX_A10, replica, replica_on
from helmsman.hwdb.compose import compose
from helmsman.planner.serving.replica import ReplicaOptions

TOKENS = tuple(2**power for power in range(13))
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXT = 1024
HIDDEN_2048 = "opt-1.3b"
"""32 heads of 64 on both sides of attention: the shape of Fig 1b."""


def linear(traces: Traces) -> Drawing:
    """Fig 1a: T_linear is flat while weights are what takes time (APEX-03)."""
    cost = replica(APEX_A10).cost
    values = tuple(1e3 * cost.linear(tokens) for tokens in TOKENS)
    at_128, one = cost.linear(128), cost.linear(1)
    note = f"128 tokens take {at_128 / one:.2f} times as long as one, 256 {cost.linear(256) / one:.2f} times."
    series = (Series("linear", tuple(float(tokens) for tokens in TOKENS), values),)
    return Drawing("Llama-3.1-8B, one layer, A10; q, k, v, o and FFN", series, notes=(note,))


def attention(traces: Traces) -> Drawing:
    """Fig 1b: by memory bandwidth the host is far less behind than the kernels that were measured."""
    hardware = compose("V100 PCIe 16GB", "2x AMD EPYC 7251", 128 * 2**30, None)
    cost = replica_on(hardware, HIDDEN_2048, ReplicaOptions()).cost
    sides = {"two EPYC 7251": cost.cpu_attention, "V100": cost.gpu_attention}
    batches = tuple(float(batch) for batch in BATCHES)
    series = tuple(
        Series(name, batches, tuple(1e6 * line(CONTEXT * batch) for batch in BATCHES)) for name, line in sides.items()
    )
    ours = [1e6 * line(CONTEXT * 4) for line in sides.values()]
    found = (Found("APEX-F008", ours[0], 4.0, "two EPYC 7251"), Found("APEX-F009", ours[1], 4.0, "V100"))
    note = (
        "33.6 MB of keys and values at batch 4: 3,031 us are 11 GB/s of the host, 170 us 197 GB/s of the GPU. Both are "
        "what those kernels reached, not the memories (E-APEX-07); records price streaming kernels."
    )
    return Drawing("one layer, hidden size 2048, 1024 tokens each, f16", series, found, (note,))
