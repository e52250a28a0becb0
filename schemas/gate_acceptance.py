"""GateAcceptance: the measurements that became the baselines of a suite's cases."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Document, Frozen, Name, NonNegative, Words, version


class AcceptedCase(Frozen):
    """A case whose newest entry is its baseline from now on. `medians_s`: seconds of the median run by figure;
    `already`: whether it was the baseline before."""

    case: Name
    entry: Name
    measured: Words
    machine: Words
    medians_s: dict[Name, NonNegative]
    already: bool


class GateAcceptance(Document):
    """The answer of `helm-check accept`."""

    schema_id: Literal["helm.gate-acceptance/1"] = version("helm.gate-acceptance/1")
    suite: Words
    cases: Annotated[tuple[AcceptedCase, ...], Field(max_length=100_000)]
