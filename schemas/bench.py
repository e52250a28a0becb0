"""Bench: how fast a plan processes prompts and makes tokens here, in llama-bench's terms."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Count, Document, Frozen, Index, Name, NonNegative, Positive, Sha256, version

Samples = Annotated[tuple[Positive, ...], Field(min_length=1, max_length=10_000)]


class BenchTest(Frozen):
    """`n_prompt` tokens of prompt, or `n_gen` decode steps, on top of `n_depth` cached tokens; fields are called as
    llama-bench calls them: nanoseconds, tokens/s of all sequences together, and standard deviations of samples."""

    n_prompt: Index
    n_gen: Index
    n_depth: Index
    avg_ns: Positive
    stddev_ns: NonNegative
    avg_ts: Positive
    stddev_ts: NonNegative
    samples_ns: Samples
    samples_ts: Samples


class Bench(Document):
    """The tests of one plan on one checkpoint. `machine`: the line that figures begin with, with instruction sets and
    how fast it read just before; `model_size`: bytes of the weights as the plan keeps them; `type_k`,
    `type_v`: formats of the cache; `n_batch`: sequences that advance together."""

    schema_id: Literal["helm.bench/1"] = version("helm.bench/1")
    version: Name
    cpu_info: Name
    machine: Name
    model_filename: Name
    model_type: Name
    model_size: Annotated[int, Field(ge=1)]
    model_n_params: Annotated[int, Field(ge=1)]
    backends: Name
    n_threads: Count
    n_batch: Count
    type_k: Name
    type_v: Name
    label: Name
    plan_sha256: Sha256
    results: Annotated[tuple[BenchTest, ...], Field(min_length=1, max_length=10_000)]
