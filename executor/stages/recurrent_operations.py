"""The operations of mixers that keep a state per sequence: gated delta rules, state spaces, short convolutions."""

from collections.abc import Iterator

from helmsman.executor.devices.mixer_operations import ConvolutionOperation, GatedNormOperation
from helmsman.executor.devices.operations import AnyOperation
from helmsman.executor.stages.block_part import BlockPart, Runs
from helmsman.schemas.blocks.recurrent import DeltaRule, ShortConvolution, StateSpace


def delta_rule(hidden: int, body: DeltaRule, block: BlockPart) -> Iterator[AnyOperation]:
    """Yield projections, the convolution over queries, keys and values, the recurrence, the gated norm, the output."""
    inner, layer, part = body.value_heads * body.value_dim, block.layer, block.part
    keyed, decays = body.key_heads * body.key_dim, body.value_heads
    yield block.product("delta_in", ["normed"], "delta_in", (body.channels, hidden))
    gate, decay, columns = "normed", "normed", hidden
    if body.rank is not None:
        columns, decays = body.rank, keyed
        for name in ("delta_gate_a", "delta_decay_a"):
            yield block.product(name, ["normed"], name, (body.rank, hidden))
        gate, decay = "delta_gate_a", "delta_decay_a"
    yield block.product("delta_gate", [gate], "delta_gate", (inner, columns))
    yield block.product("delta_decay", [decay], "delta_decay", (decays, columns))
    yield block.product("delta_beta", ["normed"], "delta_beta", (body.value_heads, hidden))
    yield _convolution("delta_conv", "delta_in", "delta_in", body.channels, body.channels, body.taps, block)
    yield {
        "kind": "recurrence",
        "name": "delta",
        "block": block.number,
        "inputs": ["delta_in", "delta_decay", "delta_beta"],
        "output": "delta",
        "decays": None,
        "width": body.channels,
        "key_heads": body.key_heads,
        "value_heads": body.value_heads,
        "tiled": part.tiled(),
        "key_dim": body.key_dim,
        "value_dim": body.value_dim,
        "queries": 0,
        "keys": keyed,
        "values": 2 * keyed,
        "steps": None,
        "corrects": True,
        "normalised": True,
        "per_dimension": body.decay == "dimension",
        "query_scale": body.key_dim**-0.5,
        "longest": None,
        "offsets": part.vector("delta", "delta_offset", layer),
        "rates": part.vector("delta", "delta_rate", layer),
        "passing": None,
        "states": part.states("delta", layer, body.state_elements),
        "snapshots": part.snapshots(),
    }
    yield {
        **_gated_norm("delta_norm", "delta", "delta_gate", inner, inner, block),
        "groups": body.value_heads,
        "eps": body.norm.eps,
        "weights": part.vector("delta_norm", "delta_norm", layer),
        "gate": body.gate,
    }
    yield block.product("delta_out", ["delta"], "hidden", (hidden, inner))


def state_space(hidden: int, body: StateSpace, block: BlockPart) -> Iterator[AnyOperation]:
    """Yield the projection, the convolution over values, inputs and outputs, the scan, the gated norm, the output."""
    width, layer, part = body.inner + body.channels + body.heads, block.layer, block.part
    shared = body.groups * body.state
    yield block.product("scan_in", ["normed"], "scan_in", (width, hidden))
    yield {
        **_convolution("scan_conv", "scan_in", "scan_in", width, body.channels, body.taps, block),
        "at": body.inner,
        "factors": None if body.scales is None else part.constants(_runs(body, body.scales)),
    }
    yield {
        "kind": "recurrence",
        "name": "scan",
        "block": block.number,
        "inputs": ["scan_in"],
        "output": "scan",
        "decays": "scan_decay",
        "width": width,
        "key_heads": body.groups,
        "value_heads": body.heads,
        "tiled": False,
        "key_dim": body.state,
        "value_dim": body.head_dim,
        "values": body.inner,
        "keys": 2 * body.inner,
        "queries": 2 * body.inner + shared,
        "steps": 2 * body.inner + 2 * shared,
        "corrects": False,
        "normalised": False,
        "per_dimension": False,
        "query_scale": 1.0,
        "longest": body.longest_step,
        "offsets": part.vector("scan", "scan_offset", layer),
        "rates": part.vector("scan", "scan_rate", layer),
        "passing": part.vector("scan", "scan_pass", layer),
        "states": part.states("scan", layer, body.state_elements),
        "snapshots": part.snapshots(),
    }
    yield {
        **_gated_norm("scan_norm", "scan", "scan_in", body.inner, width, block),
        "groups": body.groups,
        "eps": None if body.norm is None else body.norm.eps,
        "weights": None if body.norm is None else part.vector("scan_norm", "scan_norm", layer),
        "own_weights": True,
        "gate_first": not body.norm_first,
    }
    yield block.product("scan_out", ["scan"], "hidden", (hidden, body.inner))


def _runs(body: StateSpace, scales: tuple[float, ...]) -> Runs:
    """Return by what gate, input, B, C and time step are multiplied, in the order of the projection."""
    shared = body.groups * body.state
    return tuple(zip((body.inner, body.inner, shared, shared, body.heads), scales, strict=True))


def short_convolution(hidden: int, body: ShortConvolution, block: BlockPart) -> Iterator[AnyOperation]:
    """Yield the projection to two gates and a value, the convolution between them, and the output."""
    yield block.product("conv_in", ["normed"], "conv_in", (3 * hidden, hidden))
    made = _convolution("conv", "conv_in", "conv", 3 * hidden, hidden, body.taps, block)
    yield {**made, "gates": True, "silu": False}
    yield block.product("conv_out", ["conv"], "hidden", (hidden, hidden))


def _convolution(
    name: str, value: str, output: str, width: int, channels: int, taps: int, block: BlockPart
) -> ConvolutionOperation:
    stored = block.part.norm(name, block.layer)
    return {
        "kind": "convolution",
        "name": name,
        "block": block.number,
        "inputs": [value],
        "output": output,
        "width": width,
        "channels": channels,
        "at": 0,
        "taps": taps,
        "silu": True,
        "gates": False,
        "weights": None if stored is None else stored["weight"],
        "bias": None if stored is None else stored["bias"],
        "factors": None,
        "states": block.part.states(name, block.layer, (taps - 1) * channels),
        "snapshots": block.part.snapshots(),
    }


def _gated_norm(name: str, value: str, gate: str, width: int, gate_width: int, block: BlockPart) -> GatedNormOperation:
    return {
        "kind": "gated-norm",
        "name": name,
        "block": block.number,
        "inputs": [value, gate],
        "output": value,
        "width": width,
        "gate_width": gate_width,
        "at": 0,
        "groups": 1,
        "eps": None,
        "weights": None,
        "own_weights": False,
        "gate_first": False,
        "gate": "silu",
    }
