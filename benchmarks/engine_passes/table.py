"""The table of constants, as `hwdb/engines/vllm.json` has it: of every device, class, kind and backend of profiles."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.engine_passes.fit import PassFit
from benchmarks.engine_passes.predict import constants_from
from benchmarks.engine_passes.questions import MeasuredPass
from benchmarks.engine_passes.report import outcomes, spread
from helmsman.hwdb.pass_constants import PassConstants, ProductConstants

SOURCE = {
    "kind": "fitted",
    "where": "fitted: passes of vLLM's operators (aiconfigurator@095f58a, vLLM 0.14 and 0.19; LLMServingSim@5daddb2; "
    "vidur@7d47513, products alone) on nine GPUs",
    "tool": "benchmarks.engine_passes",
}

_LEAST = 0.05
"""The least standard deviation that is stated of a pass."""


def table_of(rows: Sequence[MeasuredPass], fit: PassFit) -> dict[str, Any]:
    """Return the table of constants fitted to all passes."""
    whole = fit.fitted()
    within, without = outcomes(rows, fit, left_out=False), outcomes(rows, fit, left_out=True)
    lineages = {row.nodes for row in rows}
    depths = {node: nodes[nodes.index(node) :] for nodes in sorted(lineages) for node in nodes}
    table: dict[str, Any] = {"engine": "vllm", "source": SOURCE, "nodes": {}}
    for node, nodes in sorted(depths.items(), key=lambda item: (len(item[1]), item[0])):
        mine = [row for row in rows if node in row.nodes]
        judged = [o for o in (within if len(nodes) == 4 else without) if node in o.row.nodes and o.whole]
        known = fit.constants(whole, nodes)
        table["halved"] = _short(known["16"]["halved"])
        spreads = {phase: max(_LEAST, spread(judged, of)) for phase, of in (("step", "decode"), ("prompt", "prefill"))}
        table["nodes"][node] = _row(constants_from(known, fit.kernels(nodes)), spreads, len(mine))
    return table


def _row(known: PassConstants, spreads: Mapping[str, float], rows: int) -> dict[str, Any]:
    return {
        **{name: _short(getattr(known, name)) for name in ("attending", "other", "choosing", "cache", "moving")},
        "prompts": [_short(share) for share in known.prompts],
        "products": {kernel: _kernel(of) for kernel, of in known.products.items()},
        "experts": {kernel: _kernel(of) for kernel, of in known.experts.items()},
        "spread": {name: _short(value) for name, value in spreads.items()},
        "rows": rows,
    }


def _kernel(of: ProductConstants) -> dict[str, Any]:
    shares = {name: _short(getattr(of, name)) for name in ("read", "compute", "joined", "rate", "operation", "chunk")}
    return {**shares, "factors": [_short(factor) for factor in of.factors]}


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def written(table: Mapping[str, Any]) -> str:
    """Return the table as JSON, a node a line."""
    nodes = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in table["nodes"].items())
    head = {name: value for name, value in table.items() if name != "nodes"}
    return f'{json.dumps(head)[:-1]},\n "nodes": {{\n{nodes}\n }}}}\n'
