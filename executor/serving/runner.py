"""The interfaces that the loop needs of an engine and of a scheduler, whoever made them."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

from helmsman.executor.routing.slots import NO_EXPERTS, PassCounts
from helmsman.executor.serving.request import RequestOptions
from helmsman.scheduler.decision import SchedulingDecision


@dataclass(frozen=True, slots=True)
class IterationSeconds:
    """The seconds of the parts of an iteration, each added up over layers and sub-batches; `total` from begin to end.

    `linear`: all but attention and ends, of each sub-batch; `ends`: embedding, final norm, head; both with waiting for
    weights, which were on their way for `weights`."""

    total: float
    linear: tuple[float, float]
    ends: float
    gpu_attention: float
    cpu_attention: float
    to_host: float
    to_device: float
    swap_out: float
    swap_in: float
    weights: float

    def with_states(self, copied: float, out: float, back: float) -> "IterationSeconds":
        """Return the same with what states took: on the accelerator beside its first stages, and over the link either
        way."""
        first, second = self.linear
        moved = {"swap_out": self.swap_out + out, "swap_in": self.swap_in + back}
        return replace(self, linear=(first + copied, second), **moved)

    @property
    def accelerator(self) -> float:
        """At work there, or waiting for weights."""
        return sum(self.linear) + self.ends + self.gpu_attention

    @property
    def link(self) -> float:
        """At work on both ways, one after the other, for anything but weights."""
        return self.to_host + self.to_device + self.swap_out + self.swap_in


@dataclass(frozen=True, slots=True)
class StepResult:
    """By request, the token that an iteration made for it; `on_cpu`: those whose attention ran on the host; `experts`:
    what slots for experts did in it."""

    tokens: Mapping[int, int]
    on_cpu: Set[int]
    seconds: IterationSeconds
    experts: PassCounts = NO_EXPERTS


class Runner(Protocol):
    """An engine: it has the weights, the caches and the requests that run."""

    def check_options(self, options: RequestOptions) -> None:
        """Raise UsageError or BadInputError for a request that can never run."""

    def add(self, request: int, options: RequestOptions, hashes: Sequence[int] = ()) -> None:
        """A request that decisions may name from now on; `hashes`: of its prompt's full blocks, if these are shared."""

    def step(self, decision: SchedulingDecision) -> StepResult:
        """Run one iteration. Raises what a device raised; then only `reset` may follow."""

    def release(self, request: int) -> None:
        """Forget a request, and free its blocks."""

    def reset(self) -> None:
        """Forget all requests and what is cached, whatever happened to them."""


PassSums = tuple[float, float, float]
"""Seconds of all passes so far, in the order of `schemas.served_table.PASS_PARTS`."""


class Schedules(Protocol):
    """A scheduler: `helmsman.scheduler._scheduling.Scheduler`, or another of the same face."""

    def add(self, request: int, prompt: int, output: int, priority: int, hashes: Sequence[int]) -> None:
        """A request of `prompt` tokens that makes at most `output`; `hashes`: of the prompt's full blocks, if these are
        shared."""

    def cancel(self, request: int) -> None:
        """A request is gone."""

    def reset(self) -> None:
        """All requests are gone, and so is what was cached."""

    def decide(self) -> SchedulingDecision | None:
        """The next iteration; None when there is nothing to do."""

    def observe(self, gpu: float, cpu: float, link: float) -> None:
        """Seconds that each side worked in the decided iteration; comes before it is committed."""

    @property
    def pass_sums(self) -> tuple[PassSums, PassSums]:
        """Of the iterations that were observed and committed: as they are priced, and as they took."""

    def commit(self, seconds: float, ended: Sequence[int] = (), yielded: Sequence[int] | None = None) -> None:
        """The decided iteration took so long; `ended` are over with it. `yielded`: everybody who got a token, which
        tells when a cohort's have come."""
