"""A question to several strategies at once, for the planner service."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Count, Document, Name, version
from helmsman.schemas.plan_question import Value
from helmsman.schemas.planner_question import PlannerQuestion

MOST_SEQUENCES = 2**16
"""The largest batch for which plans are compared."""


class ComparisonQuestion(Document):
    """Asks several `strategies` one question, all of Helm's own by default, with those of the `options` that each has;
    `most`: plans for larger batches too, up to this number of sequences."""

    schema_id: Literal["helm.comparison-question/1"] = version("helm.comparison-question/1")
    question: PlannerQuestion
    strategies: Annotated[tuple[Name, ...], Field(min_length=2, max_length=64)] | None = None
    options: Annotated[dict[Name, Value], Field(max_length=64)] = Field(default_factory=dict)
    most: Annotated[Count, Field(le=MOST_SEQUENCES)] | None = None
