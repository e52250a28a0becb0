"""Holds the ranges of the numbers that describe a model."""

from typing import Annotated

from pydantic import Field

Dimension = Annotated[int, Field(ge=1, le=2**24)]
HeadCount = Annotated[int, Field(ge=1, le=4096)]
Context = Annotated[int, Field(ge=1, le=2**28)]
ExpertCount = Annotated[int, Field(ge=1, le=2**16)]
Scale = Annotated[float, Field(ge=-1e24, le=1e24)]
