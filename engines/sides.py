"""Sides of a comparison: each runs tests once in a fresh process, after what warms it up."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from helmsman.engines.engine_process import engine_process, worker_command
from helmsman.engines.llama_command import LlamaCommand
from helmsman.engines.programs import EngineProgram
from helmsman.executor.measuring.bench import Test
from helmsman.gate.interpreters import THIS, helm_command
from helmsman.gate.processes import printed_by
from helmsman.schemas.bench import Bench
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import parse_document

WARM_PROMPT, WARM_STEPS = 64, 2
"""Tokens and steps of a test that are run before it, so that pages of the file are in memory and clocks are up."""

_LIMIT_S = 6 * 3600.0
"""Seconds that a process may take: large models are slow on small machines."""


class EngineSide(Protocol):
    """An engine with settings."""

    def seconds(self, tests: Sequence[Test]) -> tuple[float, ...]:
        """Return the seconds of every test, in a fresh process. Raises BadInputError where that fails."""


@dataclass(frozen=True)
class PackageSide:
    """An engine's package in an interpreter, with settings of its worker."""

    program: EngineProgram
    settings: dict[str, object]

    def seconds(self, tests: Sequence[Test]) -> tuple[float, ...]:
        """Return the seconds of every test, each after a shorter one like it."""
        with engine_process(worker_command(self.program, self.settings), self.program.engine) as process:
            measured = []
            for test in tests:
                process.seconds(min(test.prompt, WARM_PROMPT), min(test.steps, WARM_STEPS), test.depth)
                measured.append(process.seconds(test.prompt, test.steps, test.depth))
            return tuple(measured)


@dataclass(frozen=True)
class LlamaBenchSide:
    """llama-bench, with the flags that it has."""

    program: EngineProgram
    command: LlamaCommand
    model: Path

    def seconds(self, tests: Sequence[Test]) -> tuple[float, ...]:
        """Return the seconds of every test, each by a process of its own, which warms itself up."""
        return tuple(self._seconds(test) for test in tests)

    def _seconds(self, test: Test) -> float:
        shape = ["-p", test.prompt, "-n", test.steps, "-d", test.depth, "-r", 1, "-o", "json"]
        argv = [self.program.path, "-m", str(self.model), *self.command.bench_words(), *map(str, shape)]
        text = printed_by(argv, Path.cwd(), _LIMIT_S, self.program.path, "engine")
        try:
            (row,) = json.loads(text)
            return float(row["avg_ns"]) / 1e9
        except (ValueError, KeyError, TypeError):
            remedy = "use a llama-bench that prints JSON with avg_ns"
            raise BadInputError("no answer of llama-bench", file=self.program.path, remedy=remedy) from None


@dataclass(frozen=True)
class HelmSide:
    """Helm's own executor: `helm-bench` with a plan of the file."""

    plan: Path
    model: Path

    def seconds(self, tests: Sequence[Test]) -> tuple[float, ...]:
        """Return the seconds of every test: of prompts in one process, of steps in another."""
        documents: dict[Test, float] = {}
        for prompts in (True, False):
            wanted = [test for test in tests if bool(test.prompt) == prompts]
            if wanted:
                documents |= self._measured(wanted)
        return tuple(documents[test] for test in tests)

    def _measured(self, tests: Sequence[Test]) -> dict[Test, float]:
        counts = {"-p": {test.prompt for test in tests}, "-n": {test.steps for test in tests}}
        words = [word for flag, values in counts.items() for word in (flag, ",".join(map(str, sorted(values))))]
        depths = ",".join(map(str, sorted({test.depth for test in tests})))
        argv = helm_command(
            THIS, "bench", self.plan, "--checkpoint", self.model, *words, "-d", depths, "-r", 1, "--json"
        )
        text = printed_by(argv, Path.cwd(), _LIMIT_S, str(self.plan), "engine")
        bench = parse_document(Bench, text.encode(), "helm-bench")
        return {Test(row.n_prompt, row.n_gen, row.n_depth): row.avg_ns / 1e9 for row in bench.results}


def llama_side(program: EngineProgram, command: LlamaCommand, model: Path, context: int) -> EngineSide:
    """Return llama.cpp with the flags of a command, by whatever runs it here."""
    if program.kind == "package":
        return PackageSide(program, command.worker_settings(model, context))
    return LlamaBenchSide(program, command, model)
