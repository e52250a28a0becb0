"""EngineContest: settings of an engine that ran in turns, which were faster, and whether Helm had called it."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Count, Frozen, Index, Name, Positive, Report, Sha256, Words, version
from helmsman.schemas.engine_names import EngineName
from helmsman.schemas.predicted import Interval

OwnChoice = Literal["default", "fit"]
"""default: what the engine does where nothing is said, all layers on accelerators; fit: layers and experts where it
puts them itself (llama.cpp's `--fit`)."""

Contender = Literal["plan", "default", "fit", "runner-up"]
"""plan: Helm's settings for it; default, fit: the engine's own choice; runner-up: the settings that Helm predicts to be
second."""

Pace = Literal["faster", "same", "slower"]
"""The plan's settings beside others."""

ContestVerdict = Literal["right", "wrong", "disturbed"]
"""right: every difference had been called; disturbed: others took so much of the processors that nobody can tell."""

Command = Annotated[str, Field(min_length=1, max_length=2**16)]
"""A command of an engine, which may name hundreds of tensors."""

_Samples = Annotated[tuple[Positive, ...], Field(min_length=1, max_length=1000)]


class ContestSide(Frozen):
    """Settings that took part. `predicted_s`: seconds of the request, None where Helm cannot predict them, as
    `unpredicted` says; `prompt_s`, `step_s`, `request_s`: seconds of a prompt, of a decode step and of the request that
    they make together, by run."""

    name: Contender
    settings: Command
    predicted_s: Interval | None = None
    unpredicted: Words | None = None
    prompt_s: _Samples
    step_s: Annotated[tuple[Positive, ...], Field(max_length=1000)] = ()
    request_s: _Samples


class ContestAbsence(Frozen):
    """Settings that took no part: they do not fit, or the engine did not run with them."""

    name: Contender
    settings: Command
    reason: Words


class ContestCall(Frozen):
    """The plan's settings beside those of `rival`. `relative`: by how much more time the rival's requests took (0.1:
    10 % more), `low`, `high`: the ends of its interval; `p_value`, `noise`, `threshold`: as of `ChangeReport`;
    `predicted`: the same as Helm had it; `called`, `ran`: what that says of the plan's settings; `right`: whether the
    two agree or `predicted` is in the interval, None where Helm made no prediction."""

    rival: Contender
    predicted: float | None
    relative: float
    low: float
    high: float
    p_value: float
    noise: float
    threshold: float
    called: Pace | None
    ran: Pace
    right: bool | None


class EngineContest(Report):
    """The answer of `helm-check --engine`. `program`: what ran the engine; `steps` decode steps were timed after
    `depth` tokens, and a request is its prompt and `output_tokens` - 1 of them; `others_cpu_share`: the median share of
    processor time that others took during a run, None where the system does not tell."""

    schema_id: Literal["helm.engine-contest/1"] = version("helm.engine-contest/1")
    plan: Name
    plan_sha256: Sha256
    engine: EngineName
    program: Name
    machine: Words
    prompt_tokens: Count
    output_tokens: Count
    steps: Index
    depth: Index
    runs: Count
    sides: Annotated[tuple[ContestSide, ...], Field(min_length=2)]
    absent: Annotated[tuple[ContestAbsence, ...], Field(max_length=10)] = ()
    calls: Annotated[tuple[ContestCall, ...], Field(min_length=1)]
    verdict: ContestVerdict
    others_cpu_share: float | None = None
