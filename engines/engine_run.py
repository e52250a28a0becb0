"""One run of an engine, as it is seen from outside, and several as a Trace: when tokens came, pass by pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from helmsman.lowering.paging import passes_of
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest
from helmsman.schemas.trace import WHOLE_PASS, Probe, Span, Trace, TraceInfo


@dataclass(frozen=True, slots=True)
class EngineRun:
    """Tokens that were made, when each was there in seconds after the start, and bytes of resident memory when the
    model had been loaded, where the engine's process says them."""

    tokens: tuple[int, ...]
    moments: tuple[float, ...]
    resident: int | None = None

    @property
    def ttft_s(self) -> float:
        """Return seconds until the first token."""
        return self.moments[0]

    @property
    def tpot_s(self) -> float | None:
        """Return seconds of each later token; None where there is none."""
        later = len(self.moments) - 1
        return (self.moments[-1] - self.moments[0]) / later if later else None


def engine_trace(
    plan: Plan,
    engine: str,
    prompt_tokens: int,
    runs: Sequence[EngineRun],
    probes: Sequence[Probe],
    notes: dict[str, str | int | float],
) -> Trace:
    """Return runs as a measured Trace of the plan whose spans are whole passes, on a lane that is called as the engine.

    An engine says when its first token was there, not when each pass over the prompt ended: where the plan takes a
    prompt in several, they share its time by tokens, and only their sum is to be read."""
    workload = plan.workload.model_copy(update={"prompt_tokens": prompt_tokens})
    prompt = passes_of(plan, workload).prompt
    shares = [*accumulate(one.tokens for one in prompt)]
    spans = []
    for number, run in enumerate(runs):
        ends = [run.ttft_s * share / shares[-1] for share in shares[:-1]] + list(run.moments)
        for iteration, (start, end) in enumerate(zip([0.0, *ends], ends, strict=False)):
            phase = "prefill" if iteration < len(prompt) else "decode"
            task = f"{WHOLE_PASS}/{iteration}"
            spans.append(
                Span(number, "measured", task, iteration, 0, phase, -1, WHOLE_PASS, engine, start, end, 0, 0.0)
            )
    resident = max((run.resident for run in runs if run.resident is not None), default=None)
    more: dict[str, str | int | float] = {} if resident is None else {"resident_bytes": resident}
    info = TraceInfo(
        source="measured",
        plan_sha256=digest(plan),
        runs=len(runs),
        probes=tuple(probes),
        notes={**notes, **more, "engine": engine, "prompt_tokens": prompt_tokens},
    )
    return Trace(info, spans)
