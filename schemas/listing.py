"""The names that there are: models, machines, parts, strategies, policies and formats, each with a line about it."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Document, Frozen, Name, version

Kind = Literal["models", "machines", "gpus", "cpus", "engines", "strategies", "policies", "formats"]


class Entry(Frozen):
    """A name as options take it, and what it is."""

    name: Name
    about: Annotated[str, Field(max_length=1000)]


class Listing(Document):
    """All names of a kind, in the order in which they are known."""

    schema_id: Literal["helm.listing/1"] = version("helm.listing/1")
    kind: Kind
    entries: Annotated[tuple[Entry, ...], Field(max_length=10_000)]
