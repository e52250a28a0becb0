"""What runs on a machine said of an engine's constants there: factors, how certain they are, and the runs."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from helmsman.schemas.base import Count, Frozen, Index, Name, Positive, mistake

Finite = Annotated[float, Field(ge=-1e3, le=1e3)]
"""A logarithm of a factor, or a covariance of two."""


class CalibratingRun(Frozen):
    """A measured figure that factors were moved to. `of`: decode steps or prompts, tokens/s of all sequences together;
    requests: seconds of a whole one; `where`: the file, or by hand."""

    of: Literal["decode", "prefill", "request"]
    value: Positive
    model: Name
    format: Name
    prompt_tokens: Count
    output_tokens: Count
    prefix_tokens: Index = 0
    batch: Count = 1
    where: Name


class EngineCalibration(Frozen):
    """Factors of an engine's constants on a machine: logarithms `mean` by `names`, such as `RTX 4090:share.4`, and the
    lower triangle of their covariance, row by row. `strategy`: that plans for the engine; `era`, `backend`, `flash`: of
    the build that ran, None where nobody said; `constants`: which table of the package they multiply, None: figures of
    the record; `runs`: that they come from."""

    engine: Name
    strategy: Name
    era: Literal["2023", "2024", "2025"] | None = None
    backend: Literal["cuda", "rocm", "vulkan", "metal", "sycl", "opencl", "cpu"] | None = None
    flash: bool | None = None
    constants: Name | None = None
    names: Annotated[tuple[Name, ...], Field(min_length=1, max_length=256)]
    mean: Annotated[tuple[Finite, ...], Field(min_length=1, max_length=256)]
    covariance: Annotated[tuple[Finite, ...], Field(min_length=1, max_length=33_000)]
    runs: Annotated[tuple[CalibratingRun, ...], Field(min_length=1, max_length=4096)]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        count = len(self.names)
        if len(self.mean) != count or len(set(self.names)) != count:
            raise mistake("every name has one mean", "run helm-calibrate again", "mean", len(self.mean))
        if len(self.covariance) != count * (count + 1) // 2:
            raise mistake("not a lower triangle", "run helm-calibrate again", "covariance", len(self.covariance))
        return self
