"""Says how far predicted passes are from those of the profiles, GPU by GPU."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from statistics import median

import numpy as np

from benchmarks.engine_passes.fit import MEASURED, PassFit
from benchmarks.engine_passes.predict import Predictor, constants_from
from benchmarks.engine_passes.questions import MeasuredPass


@dataclass(frozen=True, slots=True)
class PassOutcome:
    """Holds the predicted seconds of a measured pass, by part."""

    row: MeasuredPass
    said: dict[str, float]

    @property
    def whole(self) -> bool:
        """Whether it is of a model with plain weights, and not of experts alone."""
        return self.row.kernel == "16" and "experts" not in self.said

    @property
    def error(self) -> float:
        """Return how much longer the pass was said to take than it took, as a part of that."""
        return sum(self.said.values()) / self.row.seconds - 1.0


def outcomes(rows: Sequence[MeasuredPass], fit: PassFit, left_out: bool) -> list[PassOutcome]:
    """Return the outcomes of all passes: of each GPU without its profiles, or with them."""
    whole, made = fit.fitted(), list[PassOutcome]()
    for gpu in sorted({row.gpu for row in rows}):
        mine = [row for row in rows if row.gpu == gpu]
        known = fit.constants(fit.fitted(gpu) if left_out else whole, mine[0].nodes)
        constants = constants_from(known, MEASURED, mine[0].halved)
        for kernel in sorted({row.kernel for row in mine}):
            predictor = Predictor.of(gpu, constants, kernel)
            made += [PassOutcome(row, predictor.parts(row)) for row in mine if row.kernel == kernel]
    return made


def lines(made: Sequence[PassOutcome], by: Callable[[PassOutcome], str]) -> Iterator[str]:
    """Yield a row of a table for every group."""
    yield "| passes | count | median error | p90 | bias |"
    yield "|---|---|---|---|---|"
    for name in sorted({by(outcome) for outcome in made}):
        group = [outcome.error for outcome in made if by(outcome) == name]
        errors = [abs(error) for error in group]
        cells = (name, len(group), f"{median(errors):.1%}", f"{np.quantile(errors, 0.9):.1%}", f"{median(group):+.1%}")
        yield f"| {' | '.join(map(str, cells))} |"


def phase_of(outcome: PassOutcome) -> str:
    """Return whether it is of a step, of few or many sequences, or of a prompt."""
    shape = outcome.row.shape
    if shape.phase == "prefill":
        return "prompts"
    return "steps of 16 to 128" if 16 <= shape.batch <= 128 else "steps of other batches"


def spread(made: Sequence[PassOutcome], phase: str) -> float:
    """Return the standard deviation of the logarithm of passes of a phase about what was said."""
    errors = [log(1.0 + outcome.error) for outcome in made if outcome.row.shape.phase == phase]
    return float(np.sqrt(np.mean(np.square(errors))))


HEAD = """# vLLM's passes, and how far off they are

`helm-plan --strategy vllm` predicts what vLLM's kernels take: products of the tokens of a pass with each matrix,
reading joined with arithmetic, attention over caches and within prompts, and what else a layer has. Constants are of a
device, its class, its kind or of all, whichever is the nearest that profiles have (`hwdb/engines/vllm.json`); DESIGN.md
4.9 has the model, and what vLLM keeps of a card.

This page is made by `python -m benchmarks.engine_passes FOLDER --page docs/engines-vllm.md`. Passes of seven dense
models are added up from profiles of single operators of others: ai-dynamo/aiconfigurator@095f58a (vLLM 0.14 and 0.19:
products, attention), casys-kaist/LLMServingSim@5daddb2 (vLLM 0.19: all of a layer, and sampling; an older profile:
products alone), microsoft/vidur@7d47513 (products alone). Profiles of products alone are older than vLLM's kernels of
today and count less in the fit. What a profile has not is left out of both sides. Steps are of 1 to 256 sequences with
256 to 16,384 tokens each, prompts of 64 to 8,192 tokens. Errors are of seconds.

The form of the model, three of its terms (a rate that GeForce cards halve, chunks of prompts, factors by tokens) and
how far a device's constants may lie from its class's were chosen with these figures in view, some five variants (A100
prompts with their profiles were at 5.3% before the last, in which older profiles count less): on GPUs that no profile
has, errors may be larger.
"""


SERVED = """## A whole run

casys-kaist/LLMServingSim@5daddb2 (`bench/examples/RTX4090/Llama-3.1-8B`) has one of vLLM 0.19.0: 300 requests of
ShareGPT (857 and 653 tokens on average) at 10 a second on an RTX 4090, Llama-3.1-8B in bf16, 2,048 tokens and 256
sequences a pass. Its table of arrivals and lengths, served by a plan:

    helm-plan --model Llama-3.1-8B --gpu "RTX 4090" --cpu "AMD EPYC 7742" --ram 256GB --format bf16 \\
      --strategy vllm -o plan.json
    helm-sim plan.json --requests sharegpt.csv

| | vLLM | simulated | |
|---|---|---|---|
| KV tokens | 41,408 | 41,248 | -0.4 % |
| output tokens/s | 1,066 | 1,100 | +3.2 % |
| mean TPOT | 32.45 ms | 31.2 ms | -3.9 % |
| mean TTFT | 65.5 s | 63.5 s | -3.0 % |

The table is of 2026-11-28, of one run; most of its requests wait, and some two hundred are driven out of the cache and
computed again.
"""


def report(rows: Sequence[MeasuredPass], fit: PassFit) -> str:
    """Return both tables by GPU and phase, of plain weights and of quantised ones."""
    text = [HEAD]
    for title, left_out in (("Without the GPU's profiles", True), ("With them", False)):
        made = outcomes(rows, fit, left_out)
        experts = [o for o in made if "experts" in o.said]
        plain = [o for o in made if o.whole]
        others = [o for o in made if o.row.kernel != "16"]
        text += [f"## {title}", "", *lines(plain, _by_gpu), "", *lines(plain, phase_of), ""]
        text += ["Products of layers in 8 and 4 bits (`fp8`, `nvfp4`):", "", *lines(others, _by_kernel), ""]
        text += ["Experts of layers alone, of five models:", "", *lines(experts, _by_gpu), ""]
    return "\n".join([*text, SERVED])


def _by_gpu(outcome: PassOutcome) -> str:
    return f"{outcome.row.gpu}, {'steps' if outcome.row.shape.phase == 'decode' else 'prompts'}"


def _by_kernel(outcome: PassOutcome) -> str:
    return f"{_by_gpu(outcome)}, {outcome.row.kernel}"
