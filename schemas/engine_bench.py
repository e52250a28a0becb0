"""EngineBench: engines side by side on one model file, in llama-bench's terms, beside what Helm had predicted."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Count, Document, Frozen, Index, Name, NonNegative, Positive, Words, version
from helmsman.schemas.predicted import Interval


class EngineTest(Frozen):
    """`n_prompt` tokens of prompt, or `n_gen` decode steps, on top of `n_depth` cached tokens; fields are called as
    llama-bench calls them: nanoseconds, tokens/s and standard deviations of samples, one of every fresh process.
    `predicted_ts`: tokens/s that Helm had predicted, None where it predicts nothing."""

    n_prompt: Index
    n_gen: Index
    n_depth: Index
    avg_ns: Positive
    stddev_ns: NonNegative
    avg_ts: Positive
    stddev_ts: NonNegative
    samples_ns: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=1000)]
    predicted_ts: Interval | None = None


class BenchedEngine(Frozen):
    """An engine with its tests. `program`: what ran it; `settings`: the command that it was driven as, empty where it
    was left to itself; `n_threads`: of its processors."""

    engine: Name
    program: Name
    settings: Annotated[str, Field(max_length=2**16)]
    backends: Name
    n_threads: Count
    results: Annotated[tuple[EngineTest, ...], Field(min_length=1, max_length=10_000)]


class EngineBench(Document):
    """The answer of `helm-bench --engine`: tests of one file by several engines, in fresh processes that took turns.
    `machine`: the line that figures begin with; `model_size`: bytes of the weights; `others_cpu_share`: the median
    share of processor time that others took during a process, None where the system does not tell."""

    schema_id: Literal["helm.engine-bench/1"] = version("helm.engine-bench/1")
    machine: Words
    model_filename: Name
    model_type: Name
    model_size: Annotated[int, Field(ge=1)]
    model_n_params: Annotated[int, Field(ge=1)]
    repetitions: Count
    engines: Annotated[tuple[BenchedEngine, ...], Field(min_length=1, max_length=10)]
    others_cpu_share: float | None = None
