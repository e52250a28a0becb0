"""A canary: a short greedy request alone on the engine, whose tokens say whether the device computes as it did."""

from collections.abc import Sequence
from dataclasses import dataclass

from helmsman.executor.serving.request import RequestOptions
from helmsman.executor.serving.runner import Runner
from helmsman.scheduler.decision import Chunk, SchedulingDecision

ID = -1
"""Of its request; those of others are not negative."""


@dataclass(frozen=True, slots=True)
class Canary:
    """The canary's prompt; `steps`: tokens that it makes."""

    prompt: Sequence[int] = tuple(range(1, 9))
    steps: int = 4

    def run(self, engine: Runner) -> tuple[int, ...]:
        """Its tokens now, on an engine without other requests. Raises what a pass raises."""
        engine.add(ID, RequestOptions(self.prompt, self.steps))
        first = SchedulingDecision("gpu-only", prefill=(Chunk(ID, len(self.prompt), 0, "gpu"),))
        rest = [SchedulingDecision("gpu-only", decode0_gpu=(ID,))] * (self.steps - 1)
        tokens = tuple(engine.step(decision).tokens[ID] for decision in (first, *rest))
        engine.release(ID)
        return tokens
