"""Settings that a plan's own are compared with: what the engine does by itself, and Helm's second choice."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from helmsman.analysis.ask_settings import ranked, settings_of, settings_plan
from helmsman.engines.llama_command import LlamaCommand
from helmsman.planner.prediction.speed import planned
from helmsman.planner.request import PlanRequest
from helmsman.planner.settings.registry import engine_format
from helmsman.schemas.engine_contest import Contender, ContestAbsence, OwnChoice
from helmsman.schemas.engine_names import EngineName
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.plan import Plan
from helmsman.schemas.predicted import Interval

LONGEST_REASON = 1000
"""Characters of a reason that are kept."""


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


def contestants(
    plan: Plan, request: PlanRequest[Any], engine: EngineName, own_choice: OwnChoice = "default"
) -> tuple[list[Contestant], list[ContestAbsence]]:
    """Return the plan's settings, the engine's own choice, and the runner-up where that is neither; and its own choice
    where its layers do not fit, with the reason. `request`: for plans like it on the machine at hand, by which all are
    predicted.

    The default has all layers on accelerators, as llama-cpp-python and llama-bench do where nothing is said
    (llama_model_default_params, and llama-bench's own table, of llama-cpp-python 0.3.36)."""
    own = settings_of(plan, engine, request).text.strip()
    sides = [_contestant("plan", own, request, engine)]
    absent = list[ContestAbsence]()
    text = f"llama-server -c {plan.workload.context} -np 1 --fit {'on' if own_choice == 'fit' else 'off'}"
    try:
        sides.append(Contestant(own_choice, text, _seconds(text, request, engine)))
    except InfeasibleError as error:
        absent.append(absence(own_choice, text, f"its layers do not fit: {error}"))
    except UsageError as error:
        sides.append(Contestant(own_choice, text, None, str(error)))
    others = (text for _, text in ranked(own, request, engine) if not any(_alike(text, side) for side in sides))
    second = next(others, None)
    return [*sides, *([] if second is None else [_contestant("runner-up", second, request, engine)])], absent


def absence(name: Contender, settings: str, reason: str) -> ContestAbsence:
    """Return settings that take no part, with one line that says why."""
    return ContestAbsence(name=name, settings=settings, reason=reason[:LONGEST_REASON])


def _contestant(name: Contender, text: str, request: PlanRequest[Any], engine: EngineName) -> Contestant:
    try:
        return Contestant(name, text, _seconds(text, request, engine))
    except (InfeasibleError, UsageError) as error:
        return Contestant(name, text, None, str(error))


def _seconds(text: str, request: PlanRequest[Any], engine: EngineName) -> Interval:
    """Return the seconds of the request with settings. Raises InfeasibleError, UsageError."""
    return planned(settings_plan(text, request, engine_format(engine))).speed.request


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
