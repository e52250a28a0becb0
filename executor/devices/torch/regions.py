"""Where a stage's activations are in its workspace: as native stages have them, so that either kind can send rows to
the other."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from helmsman.executor.devices.parts import Region
from helmsman.executor.devices.specs import AnySpec, Linear, StageSpec
from helmsman.executor.devices.value_sizes import F32_BYTES
from helmsman.lowering.buffers import chunk_tokens, expanded_values
from helmsman.schemas.formats import is_plain

LinearName = Literal["q", "k", "v", "o", "gate", "up", "down"]
LINEARS: tuple[LinearName, ...] = ("q", "k", "v", "o", "gate", "up", "down")

LINE = 16
"""Values to whose multiples regions are rounded: 64 bytes."""


@dataclass(frozen=True)
class StageRegions:
    """`at`: by name; `rows`: sequences x tokens that pass at a time, `outputs`: of them with logits; offsets and `size`
    in bytes.

    `expanded`: where values of quantised matrices are before they are read, up to the end; native stages have none."""

    at: dict[str, Region]
    rows: int
    outputs: int
    logits: int
    expanded: int
    size: int


def regions_of(spec: AnySpec) -> StageRegions:
    """The closed form of csrc/stage/stage.cpp's workspace, then room for expanded values. Ragged passes go through in
    one piece, and have as many logits as sequences."""
    batch, hidden, ffn = spec["batch"], spec["hidden"], spec["ffn"]
    q, kv = spec["heads"] * spec["head_dim"], spec["kv_heads"] * spec["head_dim"]
    if "sequences" in spec:
        rows, outputs = spec["max_tokens"], spec["sequences"]
    else:
        rows, outputs = batch * min(spec["max_tokens"], chunk_tokens(batch)), batch
    divided = spec.get("attention") == "divided"
    line = spec["heads"] * _up(spec["capacity"])
    wide = _up(rows * hidden)
    inner = wide + _up(rows * max(hidden, q))
    packed = inner + _up(rows * max(q + 2 * kv, 2 * ffn))
    logits = packed + _up(rows * max(hidden, q, ffn))
    scores = logits + _up(outputs * spec["vocab"])
    places = {
        "hidden": (0, hidden),
        "normed": (wide, hidden),
        "attended": (wide, q),
        "q": (inner, q),
        "k": (inner + rows * q, kv),
        "v": (inner + rows * (q + kv), kv),
        "gate": (inner, ffn),
        "up": (inner + rows * ffn, ffn),
    }
    if divided:
        places["scores"] = (scores, line)
    at = {name: _region(start, width) for name, (start, width) in places.items()}
    expanded = scores + (rows * line if divided else 0)
    most = max((expanded_values(linear["rows"], linear["columns"]) for linear in _quantised(spec)), default=0)
    return StageRegions(at, rows, outputs, F32_BYTES * logits, F32_BYTES * expanded, F32_BYTES * (expanded + most))


def _quantised(spec: StageSpec) -> Iterator[Linear]:
    """The quantised matrices of a stage."""
    for linear in (spec["embedding"], spec["head"], *(block[op] for block in spec["blocks"] for op in LINEARS)):
        if linear is not None and not is_plain(linear["format"]):
            yield linear


def _region(start: int, width: int) -> Region:
    return {"offset": F32_BYTES * start, "row_bytes": F32_BYTES * width, "stride": F32_BYTES * width}


def _up(values: int) -> int:
    return -(-values // LINE) * LINE
