"""Strategies by name. A strategy is a file with a `STRATEGY`; other packages add theirs by an entry point of the group
`helmsman.strategies` that names such an object. Fields of its options are made by `planner.options.option`."""

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from helmsman.planner.options import all_known
from helmsman.schemas.entry_points import added, loaded, refusal
from helmsman.schemas.errors import UsageError
from helmsman.schemas.near_names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.metadata import EntryPoint

    from helmsman.planner.decision import Decision
    from helmsman.planner.request import PlanRequest
    from helmsman.schemas.hardware import Hardware

OptionsT = TypeVar("OptionsT")

GROUP = "helmsman.strategies"

_HERE = "helmsman.planner.strategies"
_FILES = {
    "optimal": f"{_HERE}.optimal.entry",
    "layer-split": f"{_HERE}.layer_entry",
    "op-split": f"{_HERE}.op_split.entry",
    "expert-split": f"{_HERE}.expert_split.strategy",
    "flexgen": f"{_HERE}.flexgen",
    "flexgen-lp": f"{_HERE}.flexgen_lp",
    "layerwise-map": f"{_HERE}.layerwise_map",
    "weights-on-host": f"{_HERE}.weights_on_host",
    "cpu-only": f"{_HERE}.cpu_only",
    "hetegen": f"{_HERE}.hetegen",
    "twinpilots": f"{_HERE}.twinpilots",
    "accelerate": f"{_HERE}.accelerate",
    "zero-inference": f"{_HERE}.zero_inference",
    "vllm": f"{_HERE}.vllm",
    "llama-cpp": f"{_HERE}.llama_cpp",
    "ktransformers": f"{_HERE}.ktransformers",
    "freetoken": f"{_HERE}.freetoken",
}
"""Helm's own methods, in the order in which they are listed; each is imported when it is asked for."""

FORMER = {"all-cpu": "weights-on-host"}
"""Names that methods had before, by which they are still known: everybody took `all-cpu` for the CPU alone."""

OWN = tuple(_FILES)
"""Names of Helm's own methods."""

OF_EXPERTS = frozenset({"expert-split", "ktransformers", "freetoken"})
"""Strategies that are for models with routed experts alone."""

OF_DENSE = tuple(name for name in OWN if name not in OF_EXPERTS)
"""Names of Helm's own methods that plan models of equal dense blocks."""

RECOMMENDED = "best"
"""The strategy that chooses among others' plans."""


OURS = "ours"
"""The name of Helm's own executor among engines."""

ENGINES = {
    OURS: RECOMMENDED,
    "llama.cpp": "llama-cpp",
    "vllm": "vllm",
    "accelerate": "accelerate",
    "zero-inference": "zero-inference",
    "ktransformers": "ktransformers",
    "freetoken": "freetoken",
}
"""Engines whose speed can be predicted, and the strategy that plans what each of them can express."""


_WITHOUT_SPEED = {
    "ollama": "it runs llama.cpp's kernels: use llama.cpp",
    "lm-studio": "it runs llama.cpp's kernels: use llama.cpp",
    "ik_llama.cpp": "llama.cpp is as fast in steps, and slower in prompts on processors: use that",
    "sglang": "nobody's figures of it are at hand; vllm plans the same placements",
    "deepspeed": "use zero-inference, which is what it does with models that are too large",
    "exllamav3": "nobody's figures of it are at hand; `emit` writes settings for it",
}
"""Engines that people ask about and whose speed is not known, with what is known of each."""


def strategy_of(engine: str | None, strategy: str) -> str:
    """Return the strategy that plans for an engine: that of the engine where none is named, else the same one.

    Raises UsageError for an engine that is not known, and for a strategy that is another engine's."""
    if engine is None or engine == OURS:
        return strategy
    if engine in _WITHOUT_SPEED:
        raise UsageError("its speed is not predicted", field="engine", value=engine, remedy=_WITHOUT_SPEED[engine])
    if engine not in ENGINES:
        remedy = did_you_mean(engine, tuple(ENGINES))
        raise UsageError("no engine whose speed is known", field="engine", value=engine, remedy=remedy)
    own = ENGINES[engine]
    if FORMER.get(strategy, strategy) not in (RECOMMENDED, own):
        remedy = f"leave `strategy` out, or use {own}"
        raise UsageError(f"{engine} cannot carry out such plans", field="strategy", value=strategy, remedy=remedy)
    return own


def check_no_engine(engine: str | None) -> None:
    """Raise UsageError for a question about one engine where several strategies are compared."""
    if engine not in (None, OURS):
        problem, remedy = "several strategies are compared, each as itself", "leave `engine` out, or ask for its plan"
        raise UsageError(problem, field="engine", value=engine, remedy=remedy)


def engine_strategies(engine: str | None, strategies: "Sequence[str]") -> tuple[str, ...]:
    """Return the strategies, of several that are asked, that plan for an engine: of another engine than ours those that
    are its own, or its own where none of them is. Raises UsageError for an engine that is not known.

    >>> engine_strategies("llama.cpp", ["best", "op-split"]), engine_strategies("llama.cpp", ["op-split"])
    (('llama-cpp',), ('llama-cpp',))
    >>> engine_strategies("ours", ["best", "op-split"])
    ('best', 'op-split')
    """
    own = strategy_of(engine, RECOMMENDED)
    return tuple(strategies) if own == RECOMMENDED else (own,)


@dataclass(frozen=True, slots=True)
class Method(Generic[OptionsT]):
    """`options`: a frozen dataclass (`planner.options`); `decide`: the plan for a request whose `options` are of it,
    raising InfeasibleError where nothing fits, UsageError where the method does not apply; `summary`: one line;
    `streams`: whether weights stream by definition, however much memory there is; `fits`: whether a request has a plan,
    where that is known in less time than the plan takes, raising UsageError as `decide` does; `slow`: whether a plan
    takes seconds, so that a refusal does not ask for many, `quick`: milliseconds, so that studies answer many in a row;
    `propose`: the same plan for who predicts it otherwise, where choosing it is quicker without its prediction;
    `own_formats`: whether it places tensors by the formats that they have of their own, and not by one for all;
    `driven`: the machine that predictions of a request rest on, of methods whose software drives it in another way than
    its record says."""

    name: str
    summary: str
    options: type[OptionsT]
    decide: "Callable[[PlanRequest[OptionsT]], Decision]"
    streams: bool = False
    fits: "Callable[[PlanRequest[OptionsT]], bool] | None" = None
    slow: bool = False
    quick: bool = False
    propose: "Callable[[PlanRequest[OptionsT]], Decision] | None" = None
    own_formats: bool = False
    driven: "Callable[[PlanRequest[OptionsT]], Hardware] | None" = None


def method(name: str) -> Method[Any]:
    """Return the strategy of that name. Raises UsageError where there is none."""
    if name == RECOMMENDED:
        return _imported(f"{_HERE}.recommended")
    name = FORMER.get(name, name)
    if name in _FILES:
        return _imported(_FILES[name])
    if name in added(GROUP):
        return _loaded(added(GROUP)[name])
    remedy = did_you_mean(name, (RECOMMENDED, *names()))
    raise UsageError("no such strategy", field="strategy", value=name, remedy=remedy)


def names() -> tuple[str, ...]:
    """Names of the strategies that are methods by themselves, Helm's own first."""
    return (*OWN, *(name for name in added(GROUP) if name not in OWN))


def known(name: str) -> bool:
    """Whether there is a strategy of that name."""
    return name == RECOMMENDED or name in OWN or name in FORMER or name in added(GROUP)


def _loaded(point: "EntryPoint") -> Method[Any]:
    """The strategy of another package. Raises UsageError where its entry point leads to none."""
    result = loaded(point, "strategy")
    if not isinstance(result, Method) or not is_dataclass(result.options) or not all_known(result.options):
        problem = "is no Method whose options are fields made by planner.options.option"
        raise refusal(point, "strategy", problem)
    return result


def _imported(module: str) -> Method[Any]:
    result: Any = import_module(module).STRATEGY
    assert isinstance(result, Method), module
    return result
