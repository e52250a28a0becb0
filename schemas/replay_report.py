"""ReplayReport: what the steps of a plan take in virtual time, and what its lanes do meanwhile."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Frozen, Index, Name, NonNegative, Report, Sha256, Total, Words, absent, version


class WorkedTogether(Frozen):
    """Seconds of a phase by what worked: copies to accelerators (`h2d`), processors, accelerators, together or alone;
    `other`: nothing but other links; `idle`: nothing."""

    h2d_s: NonNegative
    h2d_cpu_s: NonNegative
    h2d_gpu_s: NonNegative
    cpu_gpu_s: NonNegative
    all_s: NonNegative
    gpu_s: NonNegative
    cpu_s: NonNegative
    other_s: NonNegative
    idle_s: NonNegative


class WorkedOn(Frozen):
    """Seconds at work by what on: accelerators' `compute` and `decompression`, copies to them of the `cache` and of
    `weights`, the `cpu`, and `other`; `idle`: seconds in which no accelerator worked."""

    compute_s: NonNegative
    decompression_s: NonNegative
    cache_s: NonNegative
    weights_s: NonNegative
    cpu_s: NonNegative
    other_s: NonNegative
    idle_s: NonNegative


class ReplayedLane(Frozen):
    """Seconds at work and idle of one resource in a phase, and the bytes that it moved or read."""

    name: Words
    busy_s: NonNegative
    idle_s: NonNegative
    bytes: Total


class ReplayedPhase(Frozen):
    """The prompt, or all decode steps. `overlap_s`: seconds in which two or more lanes worked."""

    seconds: NonNegative
    overlap_s: NonNegative
    shares: WorkedTogether
    breakdown: WorkedOn
    resources: tuple[ReplayedLane, ...]


class ReplayedRates(Frozen):
    """Tokens/s of all sequences: in decode steps, null for one output token, and from the start of the prompt."""

    decode: NonNegative | None
    overall: NonNegative


class StepQuantiles(Frozen):
    """Quantiles of the seconds of single steps."""

    p10: NonNegative
    p50: NonNegative
    p90: NonNegative
    p99: NonNegative
    max: NonNegative


class Waits(Frozen):
    """Waits per layer and batch of a step. `devices`: of a device for work of another, also through transfers; `lanes`:
    of any lane for another, transfers and expansions included; `tensor_parallel`: those of as many devices that divide
    every layer, each for all others, 0 where only one works."""

    devices: NonNegative
    lanes: NonNegative
    tensor_parallel: Index


class ReplayedLayer(Frozen):
    """Seconds of one layer: of its operations, and of what is loaded for it. `layer`: null outside blocks."""

    kind: Name
    layer: Index | None
    compute_s: NonNegative
    load_s: NonNegative


class LayerOverlap(Frozen):
    """Layers of one kind and those that follow: mean seconds of computing the first and of loading the next; `ratio`
    is null where nothing is loaded."""

    kind: Name
    following: Name
    compute_s: NonNegative
    load_s: NonNegative
    ratio: NonNegative | None


class ReplayedLayers(Frozen):
    """All layers of a pass at one context."""

    context: Index
    layers: tuple[ReplayedLayer, ...]
    overlaps: tuple[LayerOverlap, ...]


class ReplayedDrafts(Frozen):
    """Decode steps with drafts, whose acceptances were drawn with the plan's probability: tokens of a sequence that
    they made, seconds of all, tokens/s of all sequences."""

    steps: Index
    drafted: Index
    accepted: Index
    tokens: Index
    seconds: NonNegative
    tokens_per_second: NonNegative


class ReplayReport(Report):
    """The answer of `helm-sim` about a plan. `tpot_s`, `itl_s` are null for one output token; `batches_s`: seconds of
    all batches that take turns; `per_layer`: every layer by phase, null where it was not asked for; `drafts`: what
    becomes of the plan's, where it has any: all else is without them."""

    schema_id: Literal["helm.replay/1"] = version("helm.replay/1")
    plan: Name
    plan_sha256: Sha256
    ttft_s: NonNegative
    tpot_s: NonNegative | None
    itl_s: StepQuantiles | None
    e2e_s: NonNegative
    batches_s: NonNegative
    tokens_per_second: ReplayedRates
    prefill: ReplayedPhase
    decode: ReplayedPhase
    synchronisation: Waits
    decode_steps: Index
    decode_steps_replayed: Index
    per_layer: dict[Name, ReplayedLayers] | None = None
    drafts: Annotated[ReplayedDrafts | None, Field(exclude_if=absent)] = None
