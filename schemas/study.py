"""Studies: questions about many models, machines and settings at once, and what is to be known of the answers."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from helmsman.schemas.base import Count, Document, Fraction, Frozen, Index, Name, NonNegative, Positive, Words, version
from helmsman.schemas.formats import KvFormat, WeightsFormat, format_named
from helmsman.schemas.objective import DEFAULT_OBJECTIVE, Objective
from helmsman.schemas.plan_question import MachinePlace, Place, Value
from helmsman.schemas.serving_question import MAX_USERS, POLICY, Rate

MOST_LISTED = 10_000
"""The number of entries of one list of a study."""

RangeText = Annotated[str, Field(max_length=200, pattern=r"^[0-9 .]+\.\.[0-9 ./]+$")]
"""`1..64`, which doubles, or `512..8192/512`, in steps."""


def _format(value: object) -> object:
    return format_named(value) if isinstance(value, str) else value


WeightFormat = Annotated[Literal[WeightsFormat, "native"], BeforeValidator(_format)]
CacheFormat = Annotated[KvFormat, BeforeValidator(_format)]
OptionValues = Value | Annotated[tuple[Value, ...], Field(min_length=1, max_length=MOST_LISTED)]
"""The value of an option, or several."""
Users = Annotated[Count, Field(le=MAX_USERS)]
Counts = Annotated[tuple[Count | RangeText, ...], Field(min_length=1, max_length=MOST_LISTED)]
"""Whole numbers, and ranges of them."""


class StudyServing(Frozen):
    """Describes the load that every machine serves: each of `requests`, a file or `synthetic:n=2000,input=1000,..`,
    under each of `policies`.

    `think`: times such as `10s` that a user thinks between an answer and the next request: then the number of users is
    asked too; `rate`: requests a second, or `users` who think, for which the number of replicas is asked; `seed`: of
    what is drawn."""

    requests: Annotated[tuple[Place, ...], Field(min_length=1, max_length=64)]
    policies: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)] = (POLICY,)
    think: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    rate: Annotated[tuple[Rate | RangeText, ...], Field(max_length=64)] = ()
    users: Annotated[tuple[Users | RangeText, ...], Field(max_length=64)] = ()
    arrivals: Name | None = None
    limit: Annotated[Count, Field(le=10**9)] | None = None
    seed: Annotated[Index, Field(lt=2**31)] = 0


class StudyPrices(Frozen):
    """The prices of machines and of changes, in one `currency`, and the power that machines draw; `name`: of these
    prices, where a study has several.

    `machines`: by name, as in the study; `changes`: what each adds; `watts`: by machine, while it serves; `energy`: of
    a kWh; `years` over which a machine is written off, in which it serves a share `used` of the time."""

    name: Name = "prices"
    currency: Name = "USD"
    machines: dict[Name, NonNegative] = Field(default_factory=dict)
    changes: dict[Name, NonNegative] = Field(default_factory=dict)
    watts: dict[Name, NonNegative] = Field(default_factory=dict)
    energy: NonNegative = 0.0
    years: Positive = 3.0
    used: Fraction = 1.0


class Study(Document):
    """A grid of questions: one for every combination of the entries of its lists.

    `machines`: names, records' files, or parts; `changes` of each, as `vram=8..24GB/4GB`, `link=pcie4x8,dram_bw=x1.5`,
    `+1 gpu` or `as it is`; `formats` of weights, none: as a plan has them by default; `engines`: whose speed is
    predicted, none: our own, whose strategies are `strategies`, where others have their own; `contexts`, none: prompt
    and output; `options` of strategies, by strategy and name, each one value or several; `slo`: `ttft=2s,tpot=100ms`,
    or known names, which plans, or what is served, are to keep; `serving`: asks what machines can serve, too;
    `sensitivity`: the number of the best answers that are asked again with what is uncertain at either end of its
    interval.

    Lengths, SLOs, requests, rates, thinking times and prices are circumstances: answers are compared for each of their
    combinations. Everything else is a choice, of which the best is sought."""

    schema_id: Literal["helm.study/1"] = version("helm.study/1")
    name: Name = "study"
    models: Annotated[tuple[Place, ...], Field(min_length=1, max_length=MOST_LISTED)]
    machines: Annotated[tuple[MachinePlace, ...], Field(min_length=1, max_length=MOST_LISTED)]
    changes: Annotated[tuple[Words, ...], Field(min_length=1, max_length=MOST_LISTED)] = ("as it is",)
    formats: Annotated[tuple[WeightFormat, ...], Field(max_length=64)] = ()
    kv_formats: Annotated[tuple[CacheFormat, ...], Field(min_length=1, max_length=16)] = ("f16",)
    engines: Annotated[tuple[Name, ...], Field(max_length=16)] = ()
    strategies: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)] = ("best",)
    options: dict[Name, dict[Name, OptionValues]] = Field(default_factory=dict)
    objectives: Annotated[tuple[Objective, ...], Field(min_length=1, max_length=8)] = (DEFAULT_OBJECTIVE,)
    prompt_tokens: Counts = (128,)
    output_tokens: Counts = (128,)
    contexts: Annotated[tuple[Count | RangeText, ...], Field(max_length=MOST_LISTED)] = ()
    batches: Counts = (1,)
    slo: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    serving: StudyServing | None = None
    prices: Annotated[tuple[StudyPrices, ...], Field(min_length=1, max_length=64)] = (StudyPrices(),)
    sensitivity: Annotated[Index, Field(le=100)] = 1
