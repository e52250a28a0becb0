"""Settings that a plan's own are compared with: what the engine does by itself, and Helm's second choice."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from helmsman.analysis.ask_settings import ranked, settings_of, settings_plan
from helmsman.engines.llama_command import LlamaCommand
from helmsman.planner.prediction.speed import planned
from helmsman.planner.request import PlanRequest
from helmsman.planner.settings.registry import engine_format
from helmsman.schemas.engine_contest import Contender
from helmsman.schemas.engine_names import EngineName
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.plan import Plan
from helmsman.schemas.predicted import Interval


@dataclass(frozen=True, slots=True)
class Contestant:
    """Settings with the seconds of the request that Helm predicts for them; `unpredicted`: why there are none."""

    name: Contender
    settings: str
    predicted: Interval | None
    unpredicted: str | None = None

    @property
    def command(self) -> LlamaCommand:
        """Return the flags."""
        return LlamaCommand.of(self.settings)


def contestants(plan: Plan, request: PlanRequest[Any], engine: EngineName) -> tuple[Contestant, ...]:
    """Return the plan's settings, the engine's default, and the runner-up where that is neither; `request`: for plans
    like it on the machine at hand, by which all are predicted.

    The default has all layers on accelerators, as llama-cpp-python and llama-bench do where nothing is said
    (llama_model_default_params, and llama-bench's own table, of llama-cpp-python 0.3.36)."""
    own = settings_of(plan, engine, request).text.strip()
    default = f"llama-server -c {plan.workload.context} -np 1 --fit off"
    sides = [_contestant("plan", own, request, engine), _contestant("default", default, request, engine)]
    others = (text for _, text in ranked(own, request, engine) if not any(_alike(text, side) for side in sides))
    second = next(others, None)
    return tuple(sides if second is None else [*sides, _contestant("runner-up", second, request, engine)])


def _contestant(name: Contender, text: str, request: PlanRequest[Any], engine: EngineName) -> Contestant:
    try:
        found = planned(settings_plan(text, request, engine_format(engine)))
    except (InfeasibleError, UsageError) as error:
        return Contestant(name, text, None, str(error))
    return Contestant(name, text, found.speed.request)


def _alike(text: str, side: Contestant) -> bool:
    """Whether settings do what those of a side do."""
    return dict(_done(LlamaCommand.of(text))) == dict(_done(side.command))


def _done(command: LlamaCommand) -> Iterator[tuple[str, object]]:
    """Yield what flags do, less those whose values are llama.cpp's own."""
    usual = {"--flash-attn": "on", "--batch-size": "2048", "--ubatch-size": "512", "--n-gpu-layers": "0"}
    usual |= {"--cache-type-k": "f16", "--cache-type-v": "f16"}
    for flag in command.flags:
        value = command.flash if flag.name == "--flash-attn" else " ".join(flag.values)
        value = "on" if value == "auto" else value
        if flag.name not in ("--model", "--threads", "--threads-batch", "--fit") and usual.get(flag.name) != value:
            yield flag.name, value
