"""The engine: a plan's passes as programs of queues and copy engines, loaded and run (HELM-44)."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.devices.accelerators import check_tasks
from helmsman.executor.devices.base import Lane
from helmsman.executor.devices.opening import Devices, open_devices
from helmsman.executor.executed import check_executed
from helmsman.executor.generation import Generation
from helmsman.executor.loading import Loaded, load
from helmsman.executor.machine import Machine
from helmsman.executor.passes import page_links, passes_of
from helmsman.executor.program import Program
from helmsman.executor.prompt import check_context, check_tokens
from helmsman.executor.storage import Storage, open_storage
from helmsman.lowering.paging import most_tokens
from helmsman.lowering.paging import passes_of as requested
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.hardware import lane_owner
from helmsman.schemas.plan import Plan

Tokens = NDArray[np.int32]


class Engine:
    """Runs one plan on one checkpoint. Made by `load`; a context manager that frees its memory at the end."""

    def __init__(self, plan: Plan, devices: Devices, storage: Storage, loaded: Loaded) -> None:
        self.plan = plan
        self.devices = devices
        self._storage = storage
        self._loaded = loaded

    @classmethod
    def load(
        cls,
        plan: Plan,
        checkpoint: Path,
        machine: Machine,
        *,
        prompt_tokens: int | None = None,
        storage: Sequence[Path] = (),
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> Self:
        """Open the plan's devices and bring every weight to its home.

        `prompt_tokens`: the longest prompt to expect, the workload's if not given; `storage`: a folder for what lives
        on storage, or one for each device in the record's order; `on_bytes` is told of every tensor loaded. Raises
        HardwareUnavailableError, InfeasibleError (a memory is too small), BadInputError (the checkpoint), UsageError (a
        plan of a kind that is not executed, no place for its files)."""
        check_executed(plan)
        check_context(plan)
        passes = passes_of(plan)
        check_tasks(plan.hardware, (task for each in passes for task in each.tasks))
        lanes = [*(lane for each in passes for lane in each.lanes), *chain(*page_links(plan).values())]
        devices = open_devices(plan.hardware, lanes, machine, plan.schedule.threads)
        longest, most = prompt_tokens or plan.workload.prompt_tokens, most_tokens(plan)
        longest = longest if most is None else min(longest, most)
        opened = open_storage(plan, storage)
        return cls(plan, devices, opened, load(plan, passes, devices, opened, checkpoint, longest, on_bytes))

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """A lane of every link that passes use, called as the link."""
        links = {lane_owner(name): lane for name, lane in self.devices.lanes.items()}
        return tuple(replace(lane, name=name) for name, lane in links.items())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What works, but not as planned."""
        return self._storage.warnings

    def generate(
        self,
        tokens: Tokens,
        output_tokens: int,
        *,
        on_token: Callable[[Tokens], None] = lambda _: None,
        ignore_eos: bool = False,
    ) -> Generation:
        """Greedy continuation of `tokens` (sequences, prompt) by at most `output_tokens`.

        `on_token` gets the (sequences,) tokens of every pass that makes some. Ends early when every sequence has met an
        end-of-sequence token, unless `ignore_eos`. Raises UsageError or BadInputError for bad prompts."""
        check_tokens(tokens, self.plan, output_tokens)
        iterations = self._iterations(tokens, output_tokens)
        prompts = sum(iteration.phase == "prefill" for iteration in iterations)
        eos = () if ignore_eos else self.plan.model.eos
        chosen = np.zeros((len(iterations), tokens.shape[0]), np.int32)
        moments = np.zeros(len(iterations) + 1)
        running = np.ones(tokens.shape[0], bool)
        moments[0] = time.monotonic()
        passes = 0
        while passes < len(iterations) and running.any():
            iteration = iterations[passes]
            if iteration.phase == "prefill":
                self._feed(tokens[:, iteration.past : iteration.context])
            self._pass(iteration).record(passes, iteration.tokens, iteration.past)
            chosen[passes] = self._chosen()
            passes += 1
            moments[passes] = time.monotonic()
            if passes < prompts:
                continue
            on_token(chosen[passes - 1])
            if eos:
                running &= ~np.isin(chosen[passes - 1], eos)
        recorded = tuple(each for program in self._loaded.programs.values() for each in program.take())
        return Generation(iterations[:passes], chosen[prompts - 1 : passes], moments[: passes + 1], recorded, eos)

    def logits(self, tokens: Tokens, prompt: int = 1) -> NDArray[np.float32]:
        """f32 (sequences, n - prompt + 1, vocab): the logits after tokens (sequences, n), teacher-forced.

        The first `prompt` tokens go through one prefill pass, which yields its last position only; every
        further token through a decode pass."""
        check_tokens(tokens, self.plan, 0)
        sequences, total = tokens.shape
        result = np.empty((sequences, total - prompt + 1, self.plan.model.vocab), np.float32)
        for iteration in self._iterations(tokens[:, :prompt], total - prompt + 1):
            self._feed(tokens[:, iteration.past : iteration.context])
            program = self._pass(iteration)
            if iteration.context >= prompt:
                result[:, iteration.context - prompt] = program.logits()
        return result

    def close(self) -> None:
        """Free the devices' threads, memory and files; the engine cannot be used afterwards."""
        if self._loaded.pinned is not None:
            self._loaded.pinned.release()
        del self._loaded
        del self.devices
        self._storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _pass(self, iteration: Iteration) -> Program:
        program = self._loaded.programs[iteration.phase]
        program.run(iteration.tokens, iteration.past)
        return program

    def _feed(self, tokens: Tokens) -> None:
        """Hand every batch its sequences."""
        rows = np.split(tokens, len(self._loaded.tokens))
        for target, source in zip(self._loaded.tokens, rows, strict=True):
            target[: source.size] = source.ravel()

    def _chosen(self) -> Tokens:
        return np.concatenate([tokens[: self.plan.workload.batch] for tokens in self._loaded.tokens])

    def _iterations(self, tokens: Tokens, output_tokens: int) -> tuple[Iteration, ...]:
        """The passes over prompts, then decode steps."""
        shape = {"prompt_tokens": tokens.shape[1], "output_tokens": output_tokens}
        return requested(self.plan, self.plan.workload.model_copy(update=shape)).all
