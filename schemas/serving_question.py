"""Questions about serving as documents: who serves, under which policy, and which requests come when."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Count, Document, Frozen, Index, Name, version
from helmsman.schemas.plan_question import Place, Value

ROUTERS = ("round-robin", "least-loaded", "prefix-aware")
"""How a request finds its replica; the first is the default."""
Stage = Literal["linear", "gpu-attention", "cpu-attention", "link"]
"""A part of a pass whose seconds a study may change."""
POLICY = "gpu-only"
MAX_REPLICAS = 4096
MAX_USERS = 1_000_000

Rate = Annotated[float, Field(ge=1e-9, le=1e9)]
"""Requests a second."""
Factor = Annotated[float, Field(ge=1e-3, le=1e3)]


class ServingSetting(Frozen):
    """How replicas of a plan serve.

    `policy` decides what each pass does, with `policy_options` by name; `replicas` share the requests by `router`;
    `tensor_parallel`: equal accelerators that divide every layer; `pipeline_parallel`: stages of layers on equal
    accelerators; `batch_tokens`: most tokens in a pass; `chunk`: most tokens of prompts and decodes in a pass, 0:
    prompts whole; `sequences`: most requests that run at a time on a replica; `utilisation`: share of an accelerator's
    memory for weights and caches; `gpu_tokens`, `cpu_tokens`: KV tokens in a cache at most; `ahead`: a pass is decided
    when the one before it begins, by default where the plan's engine does so; `snapshots`: of models that keep states,
    how many of prompts are kept for others that begin alike; `mispredict`: a stage takes as many times the seconds that
    the policy believes."""

    policy: Name = POLICY
    policy_options: dict[Name, Value] = Field(default_factory=dict)
    replicas: Annotated[Count, Field(le=MAX_REPLICAS)] = 1
    router: Literal["round-robin", "least-loaded", "prefix-aware"] = "round-robin"
    tensor_parallel: Annotated[Count, Field(le=1024)] | None = None
    pipeline_parallel: Annotated[Count, Field(le=1024)] | None = None
    batch_tokens: Annotated[Count, Field(le=10**9)] | None = None
    chunk: Annotated[Index, Field(le=10**9)] | None = None
    sequences: Annotated[Count, Field(le=10**6)] | None = None
    utilisation: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    gpu_tokens: Index | None = None
    cpu_tokens: Index | None = None
    ahead: bool | None = None
    snapshots: Annotated[Index, Field(le=10**6)] | None = None
    mispredict: dict[Stage, Factor] = Field(default_factory=dict)


class ServingQuestion(ServingSetting, Document):
    """What is to be served: `requests` of a file (CSV, JSON, JSON Lines), or `synthetic:n=2000,input=1000,..`.

    `rate`: requests a second, which stretches the file's times or draws Poisson arrivals; `arrivals`: poisson, uniform,
    gamma:CV or all-at-once instead of the file's times; `sort`: rows are brought into order of arrival; `limit`: the
    first requests only; `users`: as many users send the requests instead, each the next one when it has an answer and
    has thought for `think`: `10s` (exponential, of that mean) or `fixed:10s`; `seed`: of everything drawn; `slo`:
    `ttft=2s,tpot=100ms`, or a known name."""

    schema_id: Literal["helm.serving-question/1"] = version("helm.serving-question/1")
    requests: Place
    rate: Rate | None = None
    arrivals: Name | None = None
    sort: bool = False
    limit: Annotated[Count, Field(le=10**9)] | None = None
    users: Annotated[Count, Field(le=MAX_USERS)] | None = None
    think: Name | None = None
    seed: Annotated[Index, Field(lt=2**31)] = 0
    slo: Name | None = None


def shown(source: str) -> str:
    """Return the name of a file, or the line, as documents may hold it."""
    name = source if source.startswith("synthetic:") else Path(source).name
    return "".join(letter for letter in name if letter.isprintable())[:200] or "requests"
