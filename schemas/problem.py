"""Problem: why a request to the planner service has no other answer (RFC 9457, `application/problem+json`)."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Document, Total, version

Text = Annotated[str, Field(max_length=4000)]


class Problem(Document):
    """Says why a request to the service was refused, or failed.

    `type`: a URN that ends with `code`; `instance`: the path that was asked; `code`: the library's (`usage`,
    `infeasible`, `bad-input`, ...) or the service's; `field`, `value`: what is at fault in the question; `remedy`: what
    would help; `lacks`: bytes that are missing, by memory, where nothing fits."""

    schema_id: Literal["helm.problem/1"] = version("helm.problem/1")
    type: Text
    title: Text
    status: Annotated[int, Field(ge=400, le=599)]
    detail: Text
    instance: Text | None = None
    code: Text
    field: Text | None = None
    value: Text | int | float | bool | None = None
    remedy: Text | None = None
    lacks: dict[str, Total] | None = None
