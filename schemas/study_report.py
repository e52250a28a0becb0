"""The report of a study: all of its rows, and conclusions about machines, formats, upgrades and robustness."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from helmsman.schemas.base import Count, Document, Frozen, Index, Name, NonNegative, Words, version
from helmsman.schemas.plan_question import Place
from helmsman.schemas.study import Study
from helmsman.schemas.study_row import Status, StudyRow

Measure = Literal["users", "rate", "request_s"]
"""The column by which answers are compared: the most users or requests a second that keep the SLO, or the seconds of a
request."""


class Scenario(Frozen):
    """One combination of a study's circumstances: answers are compared within it."""

    prompt_tokens: Count
    output_tokens: Count
    context: Count
    slo: Name | None = None
    requests: Place | None = None
    target_rate: NonNegative | None = None
    target_users: Count | None = None
    think: Name | None = None
    prices: Name


class BestSetting(Frozen):
    """The best of a model's settings on a machine with a change; `row`: its number in `rows`, none where nothing fits;
    `missing`: why."""

    scenario: Index
    model: Place
    machine: Place
    change: Words
    row: Index | None = None
    missing: Words | None = None


class FormatChoice(Frozen):
    """The most precise weights with which a model keeps the SLO on a machine as it is, or fits where none is given."""

    scenario: Index
    model: Place
    machine: Place
    change: Words
    format: Name
    row: Index


class Upgrade(Frozen):
    """A change of a machine beside the machine as it is: how many times as good its best answer is (`times`; none where
    nothing fitted before), and what it costs. `per_price`: (times - 1) for a unit of the price."""

    scenario: Index
    model: Place
    machine: Place
    change: Words
    times: NonNegative | None = None
    price: NonNegative | None = None
    per_price: float | None = None
    row: Index


class Uncertainty(Frozen):
    """A best answer when figures of its machine are at either end of their interval. `low`, `high`: the measure then;
    `stays_best`: whether no other machine's best answer becomes better than it; none for one that is not the best."""

    scenario: Index
    model: Place
    machine: Place
    change: Words
    figures: Name
    low: float | None = None
    high: float | None = None
    stays_best: bool | None = None


class StudyReport(Document):
    """The answer to a study; the same study gives the same text.

    `measure`: the column by which answers are compared; `scenarios`: all circumstances, by whose numbers the rest says
    which it is about; `best`: the best setting of every model on every machine, the best first; `cheapest`: numbers of
    the rows with the least cost a token that keep the SLO, one for every scenario and model; `front`: numbers of the
    rows that no other row of the same scenario and model beats in both cost and seconds of a request."""

    byte_limit: ClassVar[int] = 2**30
    schema_id: Literal["helm.study-report/1"] = version("helm.study-report/1")
    study: Study
    measure: Measure
    counts: dict[Status, Index]
    scenarios: Annotated[tuple[Scenario, ...], Field(max_length=1_000_000)]
    best: tuple[BestSetting, ...]
    cheapest: tuple[Index, ...]
    formats: tuple[FormatChoice, ...]
    upgrades: tuple[Upgrade, ...]
    sensitivity: tuple[Uncertainty, ...]
    front: tuple[Index, ...]
    rows: Annotated[tuple[StudyRow, ...], Field(max_length=1_000_000)]
