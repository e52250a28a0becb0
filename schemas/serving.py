"""Reports of serving runs: what requests waited for, what came in a second, and who was busy (docs/serving.md)."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from helmsman.schemas.base import Count, Document, Fraction, Frozen, Index, Name, NonNegative, Positive, Total, version
from helmsman.schemas.served_table import ServedInfo


class Spread(Frozen):
    """How `count` values are distributed; percentiles linear between neighbouring ranks."""

    count: Total
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


class Counts(Frozen):
    """Requests by how they ended."""

    asked: Total
    finished: Total
    cancelled: Total
    rejected: Total
    failed: Total


class Latency(Frozen):
    """Seconds of finished requests; left out where there is none. `per_token`: E2E / output tokens (NEO-36)."""

    ttft: Spread | None = None
    tpot: Spread | None = None
    itl: Spread | None = None
    e2e: Spread | None = None
    per_token: Spread | None = None


class Throughput(Frozen):
    """Of finished requests a second, and of all tokens that came."""

    requests: NonNegative
    output_tokens: NonNegative
    total_tokens: NonNegative


class Attended(Frozen):
    """Finished requests with attention on one side: on the host for at least one token, or never (E-APEX-05)."""

    requests: Total
    tokens: Total = Field(description="decoded with attention there")
    tpot: Spread | None = None
    itl: Spread | None = None


class Cache(Frozen):
    """How full a home of keys and values was: shares of its tokens, the mean over time and the most."""

    tokens: Total
    mean: NonNegative
    max: NonNegative


class Busy(Frozen):
    """Shares of the duration in which each worked, over all replicas."""

    gpu: NonNegative
    cpu: NonNegative
    link: NonNegative


class Slo(Frozen):
    """Limits in seconds that `share` of the requests must keep, all of them at once."""

    name: Name | None = None
    ttft: Positive | None = None
    tpot: Positive | None = None
    e2e: Positive | None = None
    per_token: Positive | None = None
    share: Fraction = 0.99


class Goodput(Frozen):
    """How many requests kept an SLO; failed and rejected ones did not, cancelled ones do not count."""

    slo: Slo
    good: Total
    share: Annotated[float, Field(ge=0.0, le=1.0)]
    requests: NonNegative = Field(description="good requests a second")
    met: bool


class Activity(Frozen):
    """What the replicas did."""

    busy: Busy
    gpu_cache: Cache
    cpu_cache: Cache
    iterations: Total
    swapped_out: Total = Field(
        description="KV tokens moved to the host: of whole requests, and of prompts, layer by layer"
    )
    swapped_in: Total = Field(
        description="KV tokens moved to the accelerator: of whole requests, tokens made at the host included, and "
        "those that later chunks of prompts at the host attend to, chunk by chunk"
    )


class ServingReport(Document):
    """One serving run, simulated or measured."""

    schema_id: Literal["helm.serving/1"] = version("helm.serving/1")
    run: ServedInfo
    rate: NonNegative | None = Field(default=None, description="arrivals a second; none where all came at once")
    duration: NonNegative = Field(description="seconds from the first arrival until the last request had ended")
    counts: Counts
    latency: Latency
    throughput: Throughput
    on_cpu: Attended
    on_gpu: Attended
    preemptions: Total
    reused_tokens: Total
    activity: Activity | None = None
    goodput: Goodput | None = None


class SweepPoint(Frozen):
    """One run of a sweep. `relative`: its output tokens/s over those of the policy that others are compared with."""

    value: float
    policy: Name
    report: ServingReport
    relative: NonNegative | None = None


class ServingSweep(Document):
    """Runs that differ in one thing."""

    byte_limit: ClassVar[int] = 64 * 2**20
    schema_id: Literal["helm.serving-sweep/1"] = version("helm.serving-sweep/1")
    over: Name
    relative_to: Name | None = None
    points: Annotated[tuple[SweepPoint, ...], Field(min_length=1, max_length=10_000)]


class SeedCapacity(Frozen):
    """The highest rate found to keep the SLO with one seed's arrivals, and the lowest found not to."""

    seed: Index
    keeps: NonNegative
    misses: NonNegative


class ServingCapacity(Document):
    """The maximum rate under an SLO: the mean over seeds and, of several, its 95 % confidence interval (Student).

    `runs`: how many were simulated; `requests`: of each of the last ones. `converged`, where nobody said how many seeds
    to take: whether runs were long and many enough for the stated precision."""

    schema_id: Literal["helm.serving-capacity/1"] = version("helm.serving-capacity/1")
    run: ServedInfo
    slo: Slo
    rate: NonNegative
    low: NonNegative | None = None
    high: NonNegative | None = None
    runs: Count
    requests: Count | None = None
    converged: bool | None = None
    seeds: Annotated[tuple[SeedCapacity, ...], Field(min_length=1, max_length=1000)]


class SeedCount(Frozen):
    """A number of users or replicas that keeps the SLO with one seed's draws, and its neighbour that misses it: one
    user more, or one replica fewer."""

    seed: Index
    keeps: Count
    misses: Index


class ServingCount(Document):
    """The most users, or the fewest replicas, with which more than half of the seeds keep an SLO.

    `rate`: requests a second for which replicas were counted; `low`, `high`: 95 % confidence interval (Student) of the
    mean over seeds; `runs`: how many were simulated; `requests`: of each of the last ones; `converged`, where nobody
    said how many seeds to take: whether runs were long and many enough for the stated precision."""

    schema_id: Literal["helm.serving-count/1"] = version("helm.serving-count/1")
    of: Literal["users", "replicas"]
    run: ServedInfo
    slo: Slo
    count: Count
    rate: NonNegative | None = None
    low: NonNegative | None = None
    high: NonNegative | None = None
    runs: Count
    requests: Count
    converged: bool | None = None
    seeds: Annotated[tuple[SeedCount, ...], Field(min_length=1, max_length=1000)]
