"""The planner service's answer to a question: the plan, its speed, and what people are told about it."""

from typing import ClassVar, Literal

from helmsman.schemas.base import Count, Derived, Document, Frozen, Index, Name, Total, version
from helmsman.schemas.comparison import Speed
from helmsman.schemas.plan import Plan
from helmsman.schemas.routing import Eviction


class ExpertGroup(Frozen):
    """Routed experts of a layer that are placed alike: how many, the `place` where they compute, and whether their
    weights are `resident` there or `streamed` to it when they are used."""

    count: Count
    place: Name
    how: Literal["resident", "streamed"]


class CachedExperts(Frozen):
    """Experts of a layer that are kept beside their home, in an accelerator's memory: how many, the `place` that
    computes them, and whether they are those used last (`least-recent`) or the most popular ones."""

    count: Count
    place: Name
    eviction: Eviction


class BlockRun(Frozen):
    """Neighbouring blocks of a model that are placed alike: `layers` first to last, a `letter` for them as in the strip
    that helm-plan prints, the `place` where they compute, and `how`: `resident`, `streamed` to where they compute,
    `shared` by several devices, or with all but `experts` there. `experts`: where the routed experts of a layer are, in
    order; empty where it has none. `cached`: those that are kept beside their home as well."""

    letter: str
    place: Name
    how: Literal["resident", "streamed", "shared", "experts"]
    layers: tuple[Index, Index]
    experts: tuple[ExpertGroup, ...] = ()
    cached: CachedExperts | None = None


class RunnerUp(Frozen):
    """A candidate that fits and is slower, with the seconds of its objective."""

    label: str
    seconds: Derived


class Rejected(Frozen):
    """A candidate that does not fit, with the seconds of its objective if it did, and the bytes that memories lack."""

    label: str
    seconds: Derived
    lacks: dict[Name, Total]


class EngineSetting(Frozen):
    """The command, or the content of the file, with which another engine does what the plan says."""

    engine: Name
    command: str


class PlanAnswer(Document):
    """A plan and what is known about it.

    `text`: what helm-plan prints; `in_short`: its sentence; `blocks`: the strip of blocks in decode steps,
    `prompt_blocks` in prompts where that differs; `memory_names`: what people call the machine's memories, by their
    names in its record; `unused`: devices that the plan has no use for, and why; `settings`: what makes another
    engine do the same, where the plan is of its strategy."""

    byte_limit: ClassVar[int] = 32 * 2**20
    schema_id: Literal["helm.plan-answer/1"] = version("helm.plan-answer/1")
    plan: Plan
    speed: Speed
    text: str
    in_short: str
    blocks: tuple[BlockRun, ...]
    prompt_blocks: tuple[BlockRun, ...] = ()
    memory_names: dict[Name, str]
    runner_ups: tuple[RunnerUp, ...]
    rejected: tuple[Rejected, ...]
    unused: tuple[str, ...]
    warnings: tuple[str, ...]
    settings: tuple[EngineSetting, ...]
