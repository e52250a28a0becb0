"""A decoder's pass as one flat graph of static shapes, through torch.export (HELM-47, Alg 2 line 1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export.graph_signature import InputKind, InputSpec

from helmsman.executor.graph.decoder import Decoder
from helmsman.executor.graph.static_cache import cache_argument, static_cache
from helmsman.executor.graph.units import Units
from helmsman.schemas.errors import BadInputError

_INNER = "inner."


@dataclass(frozen=True, slots=True)
class Shape:
    """`batch` sequences advance by `tokens`; caches hold `context` tokens of `kv_heads` heads in type `kv`.

    `whole`: the pass is a whole prompt; otherwise it follows what is cached."""

    batch: int
    tokens: int
    context: int
    kv_heads: int
    head_dim: int
    kv: torch.dtype
    whole: bool

    @property
    def cache(self) -> tuple[int, int, int, int]:
        """The shape of one block's keys, or values."""
        return self.batch, self.kv_heads, self.context, self.head_dim


@dataclass(frozen=True)
class CapturedGraph:
    """`graph`: placeholders `tokens` (batch, tokens) int64, `past` () int64 unless `shape.whole`, and the caches
    `keys_i`, `values_i` of every block, which it writes in place; it returns the last position's logits (batch,
    vocab) f32. Attributes are the `weights` (no values) and `constants`, by the module's own names.

    Every node's `meta` has `val` (a fake tensor), `module` (the path of its module) and `unit`."""

    graph: fx.Graph
    shape: Shape
    units: Units
    weights: Mapping[str, Tensor]
    constants: Mapping[str, Tensor]
    file: str


def capture(decoder: Decoder, shape: Shape) -> CapturedGraph:
    """Trace one pass. Raises BadInputError where shapes depend on values, or the module's code cannot be traced."""
    hook = _last_position_only(decoder)
    try:
        program = _exported(decoder, shape)
    except BadInputError:  # some modules insist on as many positions after the blocks as before (GPT-2)
        hook.remove()
        program = _exported(decoder, shape)
    finally:
        hook.remove()
    return _Flattener(decoder, shape, program).result()


def _exported(decoder: Decoder, shape: Shape) -> torch.export.ExportedProgram:
    try:
        with torch.no_grad():
            return torch.export.export(_TracedPass(decoder.module, shape.whole), _inputs(decoder, shape), strict=False)
    except Exception as error:  # torch.export has no common base class for what it refuses
        raise _untraceable(decoder, f"{type(error).__name__}: {error}") from None


class _TracedPass(nn.Module):
    """The module that is traced: caches are inputs, and only the last position reaches the head."""

    def __init__(self, inner: Any, whole: bool) -> None:
        super().__init__()
        self.inner = inner
        self._whole = whole
        self._takes, self._cache = signature(inner.forward).parameters, cache_argument(inner)

    def forward(self, tokens: Tensor, past: Tensor | None, keys: list[Tensor], values: list[Tensor]) -> Tensor:
        options: dict[str, Any] = {self._cache: static_cache(keys, values, past), "use_cache": True}
        if "position_ids" in self._takes:
            positions = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
            options["position_ids"] = positions if past is None else positions + past
        if "logits_to_keep" in self._takes:
            options["logits_to_keep"] = 1
        logits: Tensor = self.inner(input_ids=tokens, **options).logits
        return logits[:, -1].float()


def _inputs(decoder: Decoder, shape: Shape) -> tuple[Any, ...]:
    with decoder.mode:
        tokens = torch.zeros(shape.batch, shape.tokens, dtype=torch.int64)
        past = None if shape.whole else torch.zeros((), dtype=torch.int64)
        caches = [[torch.zeros(shape.cache, dtype=shape.kv) for _ in range(decoder.layers)] for _ in range(2)]
    return tokens, past, *caches


def _last_position_only(decoder: Decoder) -> Any:
    """Let the last block hand on its last position: final norm and head work on nothing else (HELM-04)."""
    last = decoder.module.get_submodule(f"{decoder.blocks}.{decoder.layers - 1}")

    def cut(_: nn.Module, __: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (output[0][:, -1:], *output[1:])
        return output[:, -1:]

    return last.register_forward_hook(cut)


class _Flattener:
    """Copies an exported program to a graph whose parameters are attributes and whose checks are gone."""

    def __init__(self, decoder: Decoder, shape: Shape, program: Any) -> None:
        self._decoder, self._shape, self._program = decoder, shape, program
        self._units = Units(decoder.blocks, decoder.layers)
        self._graph = fx.Graph()
        self._of: dict[fx.Node, fx.Node] = {}
        self._weights: dict[str, Tensor] = {}
        self._constants: dict[str, Tensor] = {}
        caches = [f"{what}_{layer}" for what in ("keys", "values") for layer in range(decoder.layers)]
        self._names = iter(["tokens", *([] if shape.whole else ["past"]), *caches])

    def result(self) -> CapturedGraph:
        specs = iter(self._program.graph_signature.input_specs)
        unit, used = 0, _used(self._program.graph)
        for node in self._program.graph.nodes:
            if node.op == "placeholder":
                self._enter(node, next(specs))
            elif node.op == "output":
                self._graph.output(self._of[node.args[0][0]])
            elif node in used:
                unit = self._copy(node, unit)
        return CapturedGraph(self._graph, self._shape, self._units, self._weights, self._constants, self._decoder.file)

    def _enter(self, node: fx.Node, spec: InputSpec) -> None:
        if spec.kind == InputKind.USER_INPUT:
            if node.meta.get("val") is None:
                return
            name = next(self._names)
            made = self._graph.placeholder(name)
        else:
            name = str(spec.target).removeprefix(_INNER)
            made = self._graph.create_node("get_attr", name, name=name.replace(".", "_"))
            self._keep(name, str(spec.target), node, spec)
        made.meta = {"val": node.meta["val"], "module": name.rpartition(".")[0], "unit": 0}
        self._of[node] = made

    def _keep(self, name: str, target: str, node: fx.Node, spec: InputSpec) -> None:
        """A parameter, a buffer that files hold, or a value."""
        if spec.kind == InputKind.PARAMETER or (spec.kind == InputKind.BUFFER and spec.persistent):
            self._weights[name] = node.meta["val"]
        else:
            self._constants[name] = self._program.constants[target]

    def _copy(self, node: fx.Node, unit: int) -> int:
        """Copy a node; the unit it belongs to, which never is an earlier one than that of the node before."""
        if not isinstance(node.meta.get("val"), Tensor | tuple | list):
            raise _untraceable(self._decoder, f"{node.target} makes a number that shapes depend on")
        path = _module_of(node)
        result = self._units.of(path, unit)
        if result < unit:
            raise _untraceable(self._decoder, f"{path} runs again after later blocks")
        made = self._graph.node_copy(node, self._of.__getitem__)
        made.meta = {"val": node.meta["val"], "module": path, "unit": result, "kind": _class_of(node)}
        self._of[node] = made
        return result


def _used(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes that the result needs or that write caches; assertions and what only they read are left out."""
    open_ones = [node for node in graph.nodes if node.op == "output" or _writes(node)]
    used = set(open_ones)
    while open_ones:
        for operand in open_ones.pop().all_input_nodes:
            if operand not in used:
                used.add(operand)
                open_ones.append(operand)
    return used


def _writes(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and bool(node.target._schema.is_mutable)


def _stack(node: fx.Node) -> list[tuple[str, Any]]:
    return list(node.meta.get("nn_module_stack", {}).values())


def _module_of(node: fx.Node) -> str:
    """The path of the innermost module that made a node; empty for the model itself."""
    stack = _stack(node)
    return stack[-1][0].removeprefix(_INNER.rstrip(".")).removeprefix(".") if stack else ""


def _class_of(node: fx.Node) -> str:
    """The class of that module, without its package."""
    stack = _stack(node)
    return str(stack[-1][1]).rpartition(".")[2] if stack else ""


def _untraceable(decoder: Decoder, reason: str) -> BadInputError:
    lines = reason.strip().splitlines() or [""]
    return BadInputError(
        f"{type(decoder.module).__name__} cannot be captured as a static graph: {lines[0][:200]}",
        file=decoder.file,
        field="model_type",
        remedy="choose a decoder whose shapes depend on its config alone",
    )
