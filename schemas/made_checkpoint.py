"""MadeCheckpoint: the checkpoint of random weights that was written."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Bytes, Document, FilePath, Name, version


class MadeCheckpoint(Document):
    """The answer of `helm-make-checkpoint`. `format`: of the weights; `weight_bytes`: of tensors, without headers."""

    schema_id: Literal["helm.made-checkpoint/1"] = version("helm.made-checkpoint/1")
    model: Name
    directory: FilePath
    seed: Annotated[int, Field(ge=0, lt=2**64)]
    format: Name
    parameters: Annotated[int, Field(ge=1)]
    weight_bytes: Bytes
    files: tuple[FilePath, ...]
