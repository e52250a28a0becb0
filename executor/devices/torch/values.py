"""The values that operations of a stage read and leave, with their widths: what csrc/bindings makes of them too."""

from collections.abc import Iterator
from typing import Literal

from helmsman.executor.devices.operations import AnyOperation, HeadShape
from helmsman.executor.devices.specs import StageSpec

Area = Literal["hidden", "wide", "inner", "logits", "scores"]
_AREAS: dict[str, Area] = {
    "hidden": "hidden",
    "normed": "wide",
    "attended": "wide",
    "logits": "logits",
    "scores": "scores",
}
LINE = 16
"""Values to whose multiples regions are rounded: 64 bytes."""


def area_of(name: str) -> Area:
    """Return the part of the workspace in which a value lies."""
    return _AREAS.get(name, "inner")


def round_up(values: int) -> int:
    """Return the next multiple of LINE."""
    return -(-values // LINE) * LINE


def values_of(spec: StageSpec, op: AnyOperation) -> Iterator[tuple[str, int]]:
    """Yield name and width of what an operation reads, in order, then of what it leaves."""
    *reads, left = _widths(spec, op)
    yield from zip(op["inputs"], reads, strict=True)
    if op["kind"] not in ("append", "member", "layer-table", "layer-inputs") or op.get("gated"):
        yield op["output"], left
    if op["kind"] == "recurrence" and op["decays"] is not None:
        yield op["decays"], op["value_heads"]
    if op["kind"] == "router":
        yield op["choice"], op["chosen"]
        yield op["shares"], op["chosen"]
        if message := op.get("message"):
            yield message, spec["hidden"] + 2 * op["chosen"]
        if "input_norm" in op:
            yield "router_input", spec["hidden"]
    if op["kind"] == "experts" and (arrived := op.get("sum")):
        yield arrived, spec["hidden"]


def _widths(spec: StageSpec, op: AnyOperation) -> list[int]:
    match op["kind"]:
        case "embedding":
            return [spec["hidden"]]
        case "layer-table":
            return [0]
        case "layer-inputs":
            return [op["width"], 0]
        case "norm" | "norm-sum":
            return [spec["hidden"], spec["hidden"]]
        case "linear":
            return [op["columns"], *[op["rows"]] * (len(op["inputs"]) - 1), op["rows"]]
        case "head":
            return [spec["hidden"], spec["vocab"]]
        case "append":
            q, kv = _projections(op)
            return [q * (1 + op.get("gated", False)), *[kv] * (len(op["inputs"]) - 1), q]
        case "router":
            return [spec["hidden"], op["experts"]]
        case "experts":
            choice, width = [op["chosen"], op["chosen"]], op.get("width", spec["hidden"])
            return [width + sum(choice), width] if len(op["inputs"]) == 1 else [width, *choice, width]
        case "combine":
            return [spec["hidden"], spec["hidden"]]
        case "member":
            return [0]
        case "row-gate":
            return [spec["hidden"], op["rows"], 1]
        case "value-norm":
            return [op["width"], op["width"]]
        case "latent-append":
            return [op["heads"] * (op["plain"] + op["rotated"]), op["head_dim"], _projections(op)[0]]
        case "grouped":
            return [op["groups"] * op["taken"], op["groups"] * op["given"]]
        case "convolution":
            return [op["width"], op["channels"] if op["gates"] else op["width"]]
        case "recurrence":
            decays = op["value_heads"] * (op["key_dim"] if op["per_dimension"] else 1)
            own = [decays, op["value_heads"]] if op["corrects"] else []
            return [op["width"], *own, op["value_heads"] * op["value_dim"]]
        case "gated-norm":
            return [op["width"], op["gate_width"], op["width"]]
        case "attention":
            q = _projections(op)[0]
            return [q, *[2 * q] * (len(op["inputs"]) - 1), q]
        case _:
            q, line = _projections(op)[0], op["heads"] * round_up(spec["capacity"])
            return [q if op["kind"] == "scores" else line, q if op["kind"] == "weighted" else line]


def _projections(op: HeadShape) -> tuple[int, int]:
    return op["heads"] * op["head_dim"], op["kv_heads"] * op["head_dim"]
