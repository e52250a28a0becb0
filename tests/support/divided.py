"""Random plans in which devices share the halves of blocks: rows, heads and whole operations, kept or streamed."""

from collections.abc import Iterator
from random import Random

from plans import make_plan
from shapes import small_model

from helmsman.lowering.operation import DIVIDED, PANEL
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Part, Plan, Residence, Schedule, Select
from helmsman.schemas.workload import Workload

DEVICES, MEMORIES = ("cpu", "loopback"), ("dram", "vram")
ATTENTION = ("norm1", "q", "k", "v", "append", "scores", "softmax", "wv", "o")
FFN = ("norm2", "gate", "up", "down")


def rows_of(model: Model) -> dict[str, int]:
    """Rows of every operation that has any."""
    q, kv = model.dense.q_width, model.dense.kv_width
    return {
        "q": q,
        "k": kv,
        "v": kv,
        "o": model.hidden,
        "gate": model.dense.ffn,
        "up": model.dense.ffn,
        "down": model.hidden,
    }


def divided_plan(source: Random, family: str, work: Workload, *, heads: bool) -> Plan:
    """Every operation of prompts somewhere, most matrices on both devices; `heads`: attention in its parts, on both.

    Decode steps are divided alike in some blocks; weights are in one of the memories, caches in one or, by heads or by
    keys and values, in both."""
    model = small_model(family)
    cut = source.choice(range(model.layers + 1))
    ranges = [LayerRange(start=a, stop=b) for a, b in ((0, cut), (cut, model.layers)) if a < b]
    compute = [
        rule for phase in ("prefill", "decode") for at in ranges for rule in _block(source, model, phase, at, heads)
    ]
    ends = [
        ComputeRule(select=Select(names=n), device=source.choice(DEVICES)) for n in ("embedding", "final_norm", "head")
    ]
    return make_plan(model, workload=work).model_copy(
        update={
            "residence": tuple(_weights(source)),
            "kv": tuple(_caches(source, model)),
            "compute": (*compute, *ends, ComputeRule(select=Select(), device="cpu")),
            "schedule": _schedule(source, work, heads),
        }
    )


def _block(source: Random, model: Model, phase: str, layers: LayerRange, heads: bool) -> Iterator[ComputeRule]:
    if phase == "decode" and source.random() < 0.5:
        yield ComputeRule(select=Select(layers=layers), device=source.choice(DEVICES), phase=phase)
        return
    together = source.choice(DEVICES)
    for op in (*ATTENTION, *(FFN if model.dense.gated else ("norm2", "up", "down"))):
        if op in rows_of(model) and source.random() < 0.55:
            yield from _shared(
                source, op, phase, layers, "rows", source.choice(range(PANEL, rows_of(model)[op], PANEL))
            )
        elif op in ("scores", "wv") and heads and source.random() < 0.55:
            yield from _shared(source, op, phase, layers, "heads", source.choice(range(1, model.dense.kv_heads)))
        else:
            device = together if op in DIVIDED and not heads else source.choice(DEVICES)
            yield ComputeRule(select=Select(names=op, layers=layers), device=device, phase=phase)


def _shared(
    source: Random, op: str, phase: str, layers: LayerRange, axis: str, stop: int
) -> tuple[ComputeRule, ComputeRule]:
    one, other = source.sample(DEVICES, 2)
    first = Select(names=op, layers=layers, part=Part(axis=axis, start=0, stop=stop))
    return (
        ComputeRule(select=first, device=one, phase=phase),
        ComputeRule(select=Select(names=op, layers=layers), device=other, phase=phase),
    )


def _weights(source: Random) -> Iterator[Residence]:
    """Vectors and tables in both memories, matrices in one of them."""
    for names in ("embedding*", "positions*", "final_norm*", "head*", "*norm*", "*.bias"):
        yield Residence(select=Select(names=names), memory="dram", format="f32", replicas=("vram",))
    home = source.choice(MEMORIES)
    pins = home == "dram" and source.random() < 0.2
    yield Residence(select=Select(), memory=home, format="f32", path="pin-on-transfer" if pins else "pinned")


def _caches(source: Random, model: Model) -> Iterator[KvRule]:
    one, other = source.sample(MEMORIES, 2)
    first = source.choice(
        (Select(part=Part(axis="heads", start=0, stop=1)), Select(names="keys"), Select(names="values"), None)
    )
    if first is not None:
        yield KvRule(select=first, memory=one, format="f32")
    yield KvRule(select=Select(), memory=other, format="f32")


def _schedule(source: Random, work: Workload, heads: bool) -> Schedule:
    ahead = source.random() < 0.6
    return Schedule(
        order="layer-major" if work.batches > 1 else "token-major",
        overlap="next-layer" if ahead else "none",
        prefetch=source.choice((1, 2)) if ahead or work.batches > 1 else 0,
        attention="divided" if heads else "whole",
        reshape=source.random() < 0.15,
        barrier=source.random() < 0.2,
        stage=source.choice(("block", "half")),
    )
