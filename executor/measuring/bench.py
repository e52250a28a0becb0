"""Speeds of a loaded plan, test by test as llama-bench does them, through the engine that runs it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.engine import Engine
from helmsman.executor.system.rates import per_second
from helmsman.lowering.placement import batches_together
from helmsman.lowering.rules import homes
from helmsman.lowering.tensors import tensors
from helmsman.schemas.bench import BenchTest
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import size_of
from helmsman.schemas.plan import Plan

WARM_UP_STEPS = 4


@dataclass(frozen=True, slots=True)
class Test:
    """`prompt` tokens, or `steps` decode steps, on top of `depth` tokens."""

    prompt: int
    steps: int
    depth: int

    @property
    def name(self) -> str:
        """As llama-bench writes it: `pp512`, `tg128 @ d4096`."""
        what = f"pp{self.prompt}" if self.prompt else f"tg{self.steps}"
        return f"{what} @ d{self.depth}" if self.depth else what

    @property
    def context(self) -> int:
        """Tokens of its sequence, the last one made among them; decode begins after at least one."""
        return 1 + (self.depth + self.prompt if self.prompt else max(self.depth, 1) + self.steps)


def tests_of(prompts: Iterable[int], steps: Iterable[int], depths: Sequence[int]) -> tuple[Test, ...]:
    """Every prompt, then every number of steps, at every depth; 0 means none."""
    tests = [Test(prompt, 0, depth) for prompt, depth in product(prompts, depths) if prompt]
    return (*tests, *(Test(0, count, depth) for count, depth in product(steps, depths) if count))


def check_tests(tests: Sequence[Test], plan: Plan, rewinds: bool) -> None:
    """That the plan has room for the tests. Raises UsageError; `rewinds`: whether prompts may follow any others."""
    needed = max(test.context for test in tests)
    if needed > plan.workload.context:
        raise UsageError(
            f"the tests need a context of {needed} tokens, and the plan has {plan.workload.context}",
            field="context",
            value=needed,
            remedy=f"plan with `context` {needed}, or ask for fewer tokens of prompt, output and depth",
        )
    deep = next((test for test in tests if test.prompt and test.depth), None)
    if deep is not None and not rewinds:
        raise UsageError(
            "keys and values of this plan move between memories, so a prompt cannot follow others",
            field="-d",
            value=deep.depth,
            remedy="use -d 0, or -p 0",
        )


def longest_prompt(tests: Sequence[Test], fills: bool) -> int:
    """The longest prompt pass of the tests; `fills`: whether caches are filled by whole prompts, not in pieces or with
    noise."""
    return max(1, *(test.prompt for test in tests), *(test.depth for test in tests if fills))


def run_tests(
    engine: Engine, tests: Sequence[Test], repeats: int, piece: int, tell: Callable[[str], None]
) -> tuple[BenchTest, ...]:
    """Every test once to warm up, then `repeats` times; `piece`: the longest prompt pass that the engine has room for.

    `tell` is told of every run as it ends."""
    runner = BenchRunner(engine, piece)
    return tuple(_result(test, runner, repeats, tell) for test in tests)


def weight_bytes(plan: Plan) -> int:
    """Bytes of the weights in the formats of their homes; a tied head counts once."""
    return sum(
        size_of((piece.stop - piece.start) * tensor.elements // tensor.shape[0], piece.rule.format)
        for tensor in tensors(plan.model)
        if tensor.tied_to is None
        for piece in homes(plan, tensor)
    )


def _result(test: Test, runner: "BenchRunner", repeats: int, tell: Callable[[str], None]) -> BenchTest:
    runner.seconds(Test(test.prompt, min(test.steps, WARM_UP_STEPS), test.depth))
    tokens, seconds = runner.sequences * (test.prompt or test.steps), []
    for _ in range(repeats):
        seconds.append(runner.seconds(test))
        tell(test.name)
    rates = [per_second(tokens, elapsed, test.name) for elapsed in seconds]
    nanoseconds = [elapsed * 1e9 for elapsed in seconds]
    return BenchTest(
        n_prompt=test.prompt,
        n_gen=test.steps,
        n_depth=test.depth,
        avg_ns=fmean(nanoseconds),
        stddev_ns=stdev(nanoseconds) if repeats > 1 else 0.0,
        avg_ts=fmean(rates),
        stddev_ts=stdev(rates) if repeats > 1 else 0.0,
        samples_ns=tuple(nanoseconds),
        samples_ts=tuple(rates),
    )


class BenchRunner:
    """Runs tests on random tokens; what fills the cache stays there for the tests after it where it can.

    A test at a depth times what comes after the token before it, which is computed on top of the others."""

    def __init__(self, engine: Engine, piece: int) -> None:
        plan = engine.plan
        self.sequences = plan.workload.batch * batches_together(plan)
        self._engine, self._piece, self._filled = engine, piece, 0
        shape = self.sequences, plan.workload.context
        self._tokens: NDArray[np.int32] = np.random.default_rng(0).integers(0, plan.model.vocab, shape, np.int32)

    def seconds(self, test: Test) -> float:
        """Of the prompt, or of all decode steps together; what comes before is not timed."""
        if test.prompt:
            self._fill(test.depth, test.prompt)
            moments = self._generate(test.depth, test.depth + test.prompt, 1)
            return float(moments[1] - moments[0])
        before = max(test.depth, 1)
        first = before - 1 if self._engine.rewinds or self._engine.assumes else 0
        self._fill(first, 1)
        moments = self._generate(first, before, test.steps + 1)
        return float(moments[-1] - moments[1])

    def _generate(self, first: int, last: int, output: int) -> NDArray[np.float64]:
        """When passes over tokens [first, last) and `output` - 1 steps ended, the start first."""
        self._filled = first
        made = self._engine.generate(self._tokens[:, first:last], output, past=first, ignore_eos=True)
        return made.moments

    def _fill(self, depth: int, tokens: int) -> None:
        """Have `depth` tokens in the cache, unless they are there: noise, or prompts where caches need them."""
        there = self._filled >= depth and self._engine.continues(depth, tokens)
        if not there and self._engine.assumes:
            self._engine.assume(depth)
            self._filled = depth
        while self._filled < depth:
            last = min(self._filled + self._piece, depth)
            self._engine.generate(self._tokens[:, self._filled : last], 1, past=self._filled)
            self._filled = last
