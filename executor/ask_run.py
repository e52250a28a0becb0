"""Executes a plan once or several times, from texts or token ids to tokens, times and a Trace."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index
from pathlib import Path

from helmsman.executor.engine import Engine
from helmsman.executor.measuring.measure import Measured, Request, Told, measure, run_once, trace
from helmsman.executor.measuring.report import document
from helmsman.executor.passes.plan_check import check_executed
from helmsman.executor.system.machine import Machine
from helmsman.executor.text.prompt import as_batch, check_tokens
from helmsman.executor.text.sampling import GREEDY, Sampling
from helmsman.executor.text.tokenizer import Text, open_text
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.plan import Plan
from helmsman.schemas.run_report import RunReport
from helmsman.schemas.trace import Trace

MAX_RUNS = 10**9


@dataclass(frozen=True)
class Execution:
    """The outcome of executing `plan`: one or several runs, with probes beside them if there were several, and the
    checkpoint's tokenizer."""

    plan: Plan
    measured: Measured
    tokenizer: Text | None

    @property
    def tokens(self) -> tuple[tuple[int, ...], ...]:
        """The token ids that the first run made for every sequence, the one that ended it included."""
        return self.measured.runs[0].tokens

    @property
    def text(self) -> list[str]:
        """The texts of these tokens. Raises BadInputError where the checkpoint has no tokenizer."""
        if self.tokenizer is None:
            raise BadInputError("there is no tokenizer", field="text", remedy="use the tokens")
        return [self.tokenizer.decode(sequence) for sequence in self.tokens]

    @cached_property
    def document(self) -> RunReport:
        """The report as `helm-run --json` prints it: tokens, texts, seconds of every run and their medians."""
        return document(self.measured, self.tokenizer, ())

    def trace(self) -> Trace:
        """When every task began and ended, in every run, and what probes read beside them.

        Raises UsageError for a single run, beside which nothing was probed."""
        if not self.measured.probes:
            raise UsageError("one run has no probes beside it", field="runs", value=1, remedy="ask for 2 or more")
        return trace(self.plan, self.measured)


def execute(
    engine: Engine,
    request: Request,
    runs: int,
    machine: Machine,
    on_token: Told = lambda _: None,
    *,
    probed: bool = False,
) -> Measured:
    """Run a request; once, and not to be `probed`, without a warm-up and probes, for which somebody would wait."""
    if runs == 1 and not probed:
        return Measured((run_once(engine, request, on_token),), (), {})
    return measure(engine, request, runs, machine, on_token)


def run(
    plan: Plan,
    checkpoint: Path,
    prompts: Sequence[str | Sequence[int]],
    output_tokens: int | None = None,
    runs: int = 1,
    ignore_eos: bool = False,
    sampling: Sampling | None = None,
    seed: int = 0,
) -> Execution:
    """Load the weights, make `output_tokens` (by default the plan's) from every prompt in each of the `runs`, and free
    them.

    Raises UsageError for prompts and counts that make no sense, BadInputError for the checkpoint,
    HardwareUnavailableError for devices that this machine has not, InfeasibleError where a memory is too small."""
    check_executed(plan)
    output = plan.workload.output_tokens if output_tokens is None else output_tokens
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise UsageError("must be a whole number, 0 or more", field="seed", value=seed)
    for name, value in {"output_tokens": output, "runs": runs}.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_RUNS:
            raise UsageError(f"must be between 1 and {MAX_RUNS}", field=name, value=value)
    texts = any(isinstance(prompt, str) for prompt in prompts)
    text = _tokenizer(checkpoint, plan, needed=texts)
    tokens = as_batch([_ids(prompt, text) for prompt in prompts], plan, None)
    check_tokens(tokens, plan, output, 0)
    request = Request(tokens, output, ignore_eos, sampling or GREEDY, seed, text)
    machine = Machine.this()
    with Engine.load(plan, checkpoint, machine, prompt_tokens=tokens.shape[1]) as engine:
        return Execution(plan, execute(engine, request, runs, machine), text)


def _tokenizer(checkpoint: Path, plan: Plan, *, needed: bool) -> Text | None:
    """The checkpoint's; None for one that is not there, or cannot be used, where token ids were given."""
    try:
        tokenizer = open_text(checkpoint, plan.model.vocab)
    except BadInputError:
        if needed:
            raise
        return None
    if tokenizer is None and needed:
        raise BadInputError("there is no tokenizer", file=str(checkpoint), remedy="give token ids")
    return tokenizer


def _ids(prompt: str | Sequence[int], text: Text | None) -> Sequence[int]:
    """The token ids of a prompt, of arrays as well. Raises UsageError for what is neither a text nor ids."""
    if not isinstance(prompt, str):
        try:
            return [index(token) for token in prompt]
        except TypeError:
            remedy = "give a text, or a list of token ids"
            raise UsageError("neither a text nor token ids", field="prompts", value=prompt, remedy=remedy) from None
    assert text is not None, "texts were refused without a tokenizer"
    return text.encode(prompt)
