"""Says how a model's released files store weights that are no plain numbers of its native format."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Count, Frozen, Name

QuantisationMethod = Literal["awq", "compressed-tensors", "fp8", "gptq", "modelopt", "mxfp4"]
"""Who wrote the files, which tells how their bytes lie."""

Modules = Annotated[tuple[Name, ...], Field(max_length=1024)]


class StoredModules(Frozen):
    """Says how some modules' weights are stored: numbers of `bits`, of which `group` in a row, in each of `rows` rows,
    share a scale.

    `group` absent: a whole row, or a whole matrix. `modules`: their names, `*` for any layer; none: all linear layers
    that are not kept."""

    values: Literal["int", "float"]
    bits: Annotated[int, Field(ge=2, le=8)]
    group: Count | None = None
    rows: Count = 1
    modules: Modules = ()


class NativeQuantisation(Frozen):
    """Says which of a released model's weights are quantised and how; all others have its native format.

    `kept`: modules that are not quantised, by names with `*` for any layer, or as the files' writer has them."""

    method: QuantisationMethod
    stored: Annotated[tuple[StoredModules, ...], Field(min_length=1, max_length=64)]
    kept: Modules = ()
