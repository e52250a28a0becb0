"""Where a stage's activations are in its workspace: as native stages have them, so that either kind can send rows to
the other."""

from collections.abc import Iterator
from dataclasses import dataclass

from helmsman.executor.devices.operations import AnyOperation
from helmsman.executor.devices.parts import Region
from helmsman.executor.devices.specs import AnySpec, StageSpec
from helmsman.executor.devices.tensors import Linear
from helmsman.executor.devices.torch.values import area_of, round_up, values_of
from helmsman.executor.devices.value_sizes import F32_BYTES
from helmsman.lowering.buffers import CHUNK_ROWS, expanded_values
from helmsman.schemas.formats import is_plain


@dataclass(frozen=True)
class StageRegions:
    """`at`: by name, and by layer and name where a block has a value elsewhere than the first; `rows`: sequences x
    tokens that pass at a time, `outputs`: of them with logits; offsets and `size` in bytes.

    `expanded`: where values of quantised matrices are before they are read, up to the end; native stages have none."""

    at: dict[str, Region]
    rows: int
    outputs: int
    logits: int
    expanded: int
    size: int


@dataclass(frozen=True)
class PlacedValue:
    """A value of an operation: so many `values` of a row before it, in its part of the workspace."""

    spec: AnyOperation
    name: str
    width: int
    begin: int


def regions_of(spec: AnySpec, first_layer: int = 0) -> StageRegions:
    """The layout of csrc/stage/layout.cpp, then room for expanded values. Ragged passes go through in one piece, and
    have as many logits as sequences."""
    batch, room, placed = spec["batch"], spec["room"], list(_placed(spec))
    if "sequences" in spec:
        rows, outputs = spec["max_tokens"], spec["sequences"]
    else:
        rows, outputs = batch * min(spec["max_tokens"], max(1, spec.get("chunk_rows", CHUNK_ROWS) // batch)), batch

    def most(area: str, least: int) -> int:
        ends = (value.begin + value.width for value in placed if area_of(value.name) == area)
        return max(least, *ends, 0)

    linear = [op["columns"] for op in spec["operations"] if op["kind"] == "linear"]
    wide = round_up(rows * spec["hidden"])
    inner = wide + round_up(rows * most("wide", max(spec["hidden"], room["wide"])))
    packed = inner + round_up(rows * most("inner", room["inner"]))
    logits = packed + round_up(rows * max(spec["hidden"], room["columns"], *linear))
    scores = logits + round_up(outputs * spec["vocab"])
    expanded = scores + round_up(rows * most("scores", room["scores"]))
    starts = {"hidden": 0, "wide": wide, "inner": inner, "logits": logits, "scores": scores}
    at = {"hidden": _region(0, spec["hidden"]), "normed": _region(wide, spec["hidden"])}
    for value in placed:
        region = _region(starts[area_of(value.name)] + rows * value.begin, value.width)
        if at.setdefault(value.name, region) != region:
            at.setdefault(f"{first_layer + (value.spec['block'] or 0)}.{value.name}", region)
    space = max((expanded_values(*shape) for shape in _quantised(spec)), default=0)
    return StageRegions(at, rows, outputs, F32_BYTES * logits, F32_BYTES * expanded, F32_BYTES * (expanded + space))


def _placed(spec: StageSpec) -> Iterator[PlacedValue]:
    """Yield all values but logits. Those of a body follow each other; a norm of hidden states begins one."""
    block, body, width = -1, dict[str, int](), 0
    for op in spec["operations"]:
        number = -1 if op["block"] is None else op["block"]
        begins = op["kind"] == "norm" and op["output"] == "normed" and not op.get("continues", False)
        if begins or number != block:
            block, body, width = number, {}, 0
        for name, values in values_of(spec, op):
            area = area_of(name)
            if area == "inner" and name not in body:
                body[name], width = width, width + values
            if area != "logits":
                yield PlacedValue(op, name, values, body[name] if area == "inner" else 0)


def _quantised(spec: StageSpec) -> Iterator[tuple[int, int]]:
    """Yield rows and columns of the quantised matrices of a stage."""
    for op in spec["operations"]:
        if op["kind"] == "experts":
            width = op.get("width", spec["hidden"])
            shapes = ((op["rows"], width), (op["rows"], width), (width, op["rows"]))
            for matrices, shape in zip((op["gate"], op["up"], op["down"]), shapes, strict=True):
                if matrices is not None and not is_plain(matrices["format"]):
                    yield shape
            continue
        if op["kind"] in ("embedding", "layer-table"):
            linear: Linear | None = op["table"]
        elif op["kind"] in ("linear", "head", "router", "row-gate", "grouped"):
            linear = op["matrix"]
        else:
            linear = None
        if linear is not None and not is_plain(linear["format"]):
            yield linear["rows"], linear["columns"]


def _region(start: int, width: int) -> Region:
    return {"offset": F32_BYTES * start, "row_bytes": F32_BYTES * width, "stride": F32_BYTES * width}
