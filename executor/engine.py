"""The engine: a plan's stages, loaded and wired; a pass is stage, copy, stage, token (HELM-44)."""

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.devices.base import Lane
from helmsman.executor.devices.opening import Devices, open_devices
from helmsman.executor.generation import Generation
from helmsman.executor.legs import Leg, reserve
from helmsman.executor.loading import Wired, load_legs
from helmsman.executor.machine import Machine
from helmsman.executor.partition import partition
from helmsman.executor.prompt import check_context, check_tokens
from helmsman.scheduler.iteration import single_stream
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

Tokens = NDArray[np.int32]


class Engine:
    """Runs one plan on one checkpoint. Made by `load`; a context manager that frees its memory at the end."""

    def __init__(self, plan: Plan, devices: Devices, wired: Wired) -> None:
        self.plan = plan
        self.devices = devices
        self._wired = wired

    @classmethod
    def load(
        cls,
        plan: Plan,
        checkpoint: Path,
        machine: Machine,
        *,
        prompt_tokens: int | None = None,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> Self:
        """Open the plan's devices and bring every weight to its home.

        `prompt_tokens`: the longest prompt to expect, the workload's if not given; `on_bytes` is told of
        every tensor loaded. Raises HardwareUnavailableError, InfeasibleError (a memory is too small),
        BadInputError (the checkpoint), UsageError (a plan of a kind that is not executed)."""
        check_context(plan)
        parts = partition(plan)
        devices = open_devices(plan.hardware, [part.device for part in parts], machine)
        longest = prompt_tokens or plan.workload.prompt_tokens
        return cls(plan, devices, load_legs(plan, parts, devices, checkpoint, longest, on_bytes))

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes that passes use."""
        return self._wired.lanes

    def generate(
        self,
        tokens: Tokens,
        output_tokens: int,
        *,
        on_token: Callable[[Tokens], None] = lambda _: None,
        ignore_eos: bool = False,
    ) -> Generation:
        """Greedy continuation of `tokens` (batch, prompt) by at most `output_tokens`.

        `on_token` gets the (batch,) tokens of every pass. Ends early when every sequence has met an
        end-of-sequence token, unless `ignore_eos`. Raises UsageError or BadInputError for bad prompts."""
        check_tokens(tokens, self.plan, output_tokens)
        iterations = tuple(single_stream(self._workload(tokens, output_tokens)))
        eos = () if ignore_eos else self.plan.model.eos
        chosen = np.zeros((len(iterations), tokens.shape[0]), np.int32)
        moments = np.zeros(len(iterations) + 1)
        running = np.ones(tokens.shape[0], bool)
        reserve(self._legs, len(iterations))
        moments[0] = time.monotonic()
        self._wired.tokens[: tokens.size] = tokens.ravel()
        passes = 0
        while passes < len(iterations) and running.any():
            iteration = iterations[passes]
            self._pass(iteration.tokens, iteration.past, passes)
            chosen[passes] = self._wired.tokens[: len(running)]
            passes += 1
            moments[passes] = time.monotonic()
            on_token(chosen[passes - 1])
            if eos:
                running &= ~np.isin(chosen[passes - 1], eos)
        legs = tuple(leg.recorded(passes) for leg in self._legs)
        return Generation(iterations[:passes], chosen[:passes], moments[: passes + 1], legs, eos)

    def logits(self, tokens: Tokens, prompt: int = 1) -> NDArray[np.float32]:
        """f32 (batch, n - prompt + 1, vocab): the logits after tokens (batch, n), teacher-forced.

        The first `prompt` tokens go through one prefill pass, which yields its last position only; every
        further token through a decode pass."""
        check_tokens(tokens, self.plan, 0)
        batch, total = tokens.shape
        result = np.empty((batch, total - prompt + 1, self.plan.model.vocab), np.float32)
        reserve(self._legs, 1)
        past = 0
        for row, end in enumerate(range(prompt, total + 1)):
            self._wired.tokens[: batch * (end - past)] = tokens[:, past:end].ravel()
            self._pass(end - past, past, 0)
            result[:, row] = np.frombuffer(self._wired.last.logits(), np.float32).reshape(batch, -1)
            past = end
        return result

    def close(self) -> None:
        """Free the devices' threads and memory; the engine cannot be used afterwards."""
        del self._wired
        del self.devices

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _legs(self) -> tuple[Leg, ...]:
        return self._wired.legs

    def _pass(self, tokens: int, past: int, row: int) -> None:
        for leg in self._wired.legs:
            leg.run(tokens, past, row)

    def _workload(self, tokens: Tokens, output_tokens: int) -> Workload:
        batch, prompt = tokens.shape
        context = self.plan.workload.context
        return Workload(prompt_tokens=prompt, output_tokens=output_tokens, batch=batch, context=context)
