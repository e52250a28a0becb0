"""The engine: a plan's passes as programs of queues and copy engines, loaded and run (HELM-44)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.cache.depth import assume
from helmsman.executor.cache.kv import Caches
from helmsman.executor.devices.opening import Devices, open_devices
from helmsman.executor.drafts.drafter import Drafter
from helmsman.executor.drafts.drafting import DraftedRun
from helmsman.executor.drafts.mtp_head import MtpHead
from helmsman.executor.drafts.rejected_states import RejectedStates
from helmsman.executor.homes.storage import Storage, open_storage
from helmsman.executor.passes.draft_check import check_drafts
from helmsman.executor.passes.expert_check import check_experts, check_slots_run
from helmsman.executor.passes.generation import Choose, Generation, OnToken, Progress, Tokens
from helmsman.executor.passes.model_check import check_native
from helmsman.executor.passes.pass_times import PassTimes
from helmsman.executor.passes.phase_pass import page_links, passes_of, slot_links
from helmsman.executor.passes.phase_program import PhaseProgram
from helmsman.executor.passes.plan_check import check_executed, check_passes
from helmsman.executor.programs.growing_cache import GrowingCaches, check_grows, rounded, with_context
from helmsman.executor.programs.loading import LoadedPlan, open_store, prepare
from helmsman.executor.programs.program import Lanes
from helmsman.executor.routing.record import RoutingRecord, check_recorded
from helmsman.executor.system.machine import Machine
from helmsman.executor.text.prompt import check_context, check_tokens
from helmsman.executor.weights.draft_weights import DraftWeights
from helmsman.lowering.buffers import chunk_of
from helmsman.lowering.layer_cache import keeps_states
from helmsman.lowering.paging import most_tokens
from helmsman.lowering.paging import passes_of as requested
from helmsman.lowering.rules import device_of
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.errors import UsageError
from helmsman.schemas.expert_cache import ExpertCacheCounts
from helmsman.schemas.plan import Plan


class Engine:
    """Runs one plan on one checkpoint. Made by `load`; a context manager that frees its memory at the end."""

    def __init__(
        self,
        plan: Plan,
        devices: Devices,
        storage: Storage,
        loaded: LoadedPlan,
        growing: GrowingCaches | None = None,
        routing: RoutingRecord | None = None,
    ) -> None:
        self.plan = plan
        self.devices = devices
        self._storage = storage
        self._loaded = loaded
        self._growing = growing
        self.routing = routing
        self._recorded: list[PassTimes] = []
        self._cached = 0
        self.drafter: Drafter | None = None
        self._drafts = 0
        self._rejected: RejectedStates | None = None

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
        growing: bool = False,
        record_routing: bool = False,
        draft_tokens: int = 0,
    ) -> Self:
        """Open the plan's devices and bring every weight to its home.

        `prompt_tokens`: the longest prompt to expect, the workload's if not given; `storage`: a folder for what lives
        on storage, or one for each device in the record's order; `on_bytes` is told of every tensor loaded; `growing`:
        caches grow as tokens come (`executor.programs.growing_cache`), instead of being allocated in full;
        `record_routing`: `routing` records which experts the tokens of a generation chose;
        `draft_tokens`: how many the model's own draft head proposes a step, which greedy generations verify. Raises
        HardwareUnavailableError, InfeasibleError (a memory is too small), BadInputError (the checkpoint, a model that
        kernels do not compute), UsageError (a plan of a kind that is not executed, no place for its files)."""
        check_native(plan.model)
        if record_routing:
            check_recorded(plan.model, growing)
        check_executed(plan)
        check_context(plan)
        passes = passes_of(plan, draft_tokens)
        check_passes(passes)
        if draft_tokens:
            check_drafts(plan, passes, draft_tokens)
            if growing or record_routing:
                message = "growing caches draft nothing" if growing else "runs with drafts record no routing"
                raise UsageError(message, field="draft_tokens", value=draft_tokens, remedy="leave one of them out")
        check_slots_run(plan)
        for one_pass in passes:
            check_experts(one_pass)
        lanes = [*(lane for one_pass in passes for lane in one_pass.lanes), *chain(*page_links(plan).values())]
        lanes += slot_links(plan)
        devices = open_devices(plan.hardware, lanes, machine, plan.schedule.threads)
        longest, most = prompt_tokens or plan.workload.prompt_tokens, most_tokens(plan)
        longest = longest if most is None else min(longest, most)
        opened = open_storage(plan, storage)
        store = open_store(plan, devices, opened, checkpoint, on_bytes)
        drafting = DraftWeights.open(checkpoint, plan.model) if draft_tokens else None
        if not growing:
            routing = RoutingRecord(plan) if record_routing else None
            loaded = prepare(plan, passes, devices, opened, store, longest, routing=routing)
            engine = cls(plan, devices, opened, loaded, routing=routing)
            if drafting is not None:
                together = min(max(longest, 1 + draft_tokens), chunk_of(plan))
                engine.draft(MtpHead(plan, devices, store, opened, drafting, together), draft_tokens)
                if keeps_states(plan.model) and loaded.kept is not None:
                    caches, kept_lanes = loaded.kept
                    engine._rejected = RejectedStates(caches, devices, kept_lanes.queues, draft_tokens)
            return engine
        check_grows(plan, passes, devices)
        first = rounded(plan, longest)
        loaded = prepare(with_context(plan, first), passes, devices, opened, store, longest)
        rest = GrowingCaches(plan, devices, opened, store, longest, first, dict(devices.memories))
        return cls(plan, devices, opened, loaded, rest)

    def draft(self, drafter: Drafter, count: int) -> None:
        """From now on verify `count` tokens of a drafter, at most `draft_tokens` of `load`, in every step of a greedy
        generation."""
        self.drafter, self._drafts = drafter, count

    def _verified(self, iteration: Iteration, tokens: Tokens) -> tuple[NDArray[np.float32], Tokens]:
        """Run a pass over (sequences, tokens) tokens; return the states behind the last block (sequences, tokens,
        hidden), and what the head chooses (sequences, outputs)."""
        self._feed(tokens)
        program = self._pass(iteration)
        program.record(iteration.index, iteration.tokens, iteration.past)
        (chosen,) = self._loaded.tokens
        choices = chosen[: iteration.batch * iteration.outputs].reshape(iteration.batch, iteration.outputs).copy()
        seat = self._loaded.seats[iteration.phase][device_of(self.plan, "head", None, iteration.phase), 0]
        return seat.hidden_states(iteration.batch, iteration.tokens, self.plan.model.hidden), choices

    @property
    def rewinds(self) -> bool:
        """Whether a prompt may follow any part of what is cached."""
        return self._loaded.rewinds

    def continues(self, past: int, tokens: int) -> bool:
        """Whether a prompt of `tokens` may follow the first `past` tokens that are cached: windows of caches and states
        only go on, and on top of keys and values that move there are only decode steps, which a token alone is."""
        if past == 0 or self.rewinds:
            return True
        if self._loaded.goes_on or keeps_states(self.plan.model):
            return past == self._cached and (self._loaded.goes_on or tokens == 1)
        return self._loaded.kept is not None and tokens == 1 and past <= self._cached

    @property
    def assumes(self) -> bool:
        """Whether `assume` can stand in for a prompt: caches are the native executor's, allocated in full."""
        return self._assumable is not None

    @property
    def _assumable(self) -> tuple[Caches, Lanes] | None:
        return None if self._growing is not None or self.devices.accelerators.devices else self._loaded.kept

    def assume(self, tokens: int) -> None:
        """From now on as if `tokens` tokens of every sequence were cached; their keys and values are noise.

        Raises UsageError where caches cannot be filled so."""
        if self._assumable is None:
            remedy = "use native caches in full, or a prompt of that length"
            raise UsageError("these caches need a prompt to fill them", field="depth", value=tokens, remedy=remedy)
        caches, lanes = self._assumable
        assume(caches, lanes.pagers, tokens)
        self._cached = tokens

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return notes on what works, but not as planned."""
        late = (
            ("experts with slots come to prompts once they are chosen, not ahead as planned",)
            if self._loaded.late
            else ()
        )
        return (*self._storage.warnings, *late)

    def generate(
        self,
        tokens: Tokens,
        output_tokens: int,
        *,
        past: int = 0,
        choose: Choose | None = None,
        on_token: OnToken = lambda _: None,
        ignore_eos: bool = False,
    ) -> Generation:
        """Continuation of `tokens` (sequences, prompt) by at most `output_tokens`.

        `past`: as many tokens are in the caches before them (`continues`); `choose` makes the (sequences,) next tokens
        of f32 (sequences, vocab) logits, else the largest are taken; `on_token` gets the tokens of every pass that
        makes some and may say which sequences end with them. Ends early when every sequence has ended, by that or by
        an end-of-sequence token unless `ignore_eos`. Raises UsageError or BadInputError for bad prompts."""
        check_tokens(tokens, self.plan, output_tokens, past)
        if not self.continues(past, tokens.shape[1]):
            raise UsageError("prompts of this plan cannot continue here", field="past", value=past, remedy="use 0")
        eos = () if ignore_eos else self.plan.model.eos
        if self.routing is not None:
            self.routing.restart()
        if past == 0:
            self._restart_slots()
        if self.drafter is not None:
            if choose is not None or past:
                message = "drafts are verified by the likeliest tokens, from the start of a prompt"
                raise UsageError(message, field="draft_tokens", remedy="leave drafts out")
            prompts = self._iterations(tokens, 1, 0)
            take_back = (lambda _: None) if self._rejected is None else self._rejected.take_back
            run = DraftedRun(self._verified, self.drafter, self._drafts, take_back)
            return self._with_records(run.generate(tokens, prompts, output_tokens, eos, on_token))
        progress = Progress(self._iterations(tokens, output_tokens, past), tokens.shape[0], eos)
        for number, iteration in enumerate(progress.remaining()):
            if number < progress.prompt_passes:
                self._feed(tokens[:, iteration.past - past : iteration.context - past])
            program = self._pass(iteration)
            program.record(number, iteration.tokens, iteration.past)
            if self.routing is not None:
                self.routing.add(number, range(iteration.past, iteration.context))
            progress.add(self._chosen(program, choose if progress.makes_tokens else None), on_token)
        return self._with_records(progress.generation(()))

    def _with_records(self, generation: Generation) -> Generation:
        """Return the generation with the times of its tasks."""
        self._keep_recorded()
        recorded, self._recorded = tuple(self._recorded), []
        return replace(generation, recorded=recorded, expert_cache=self._expert_cache())

    def logits(self, tokens: Tokens, prompt: int = 1) -> NDArray[np.float32]:
        """f32 (sequences, n - prompt + 1, vocab): the logits after tokens (sequences, n), teacher-forced.

        The first `prompt` tokens go through one prefill pass, which yields its last position only; every
        further token through a decode pass."""
        check_tokens(tokens, self.plan, 0)
        self._restart_slots()
        sequences, total = tokens.shape
        result = np.empty((sequences, total - prompt + 1, self.plan.model.vocab), np.float32)
        for iteration in self._iterations(tokens[:, :prompt], total - prompt + 1, 0):
            self._feed(tokens[:, iteration.past : iteration.context])
            program = self._pass(iteration)
            if iteration.context >= prompt:
                result[:, iteration.context - prompt] = program.logits()
        return result

    def close(self) -> None:
        """Free the devices' threads, memory and files; the engine cannot be used afterwards."""
        if self._loaded.pinned is not None:
            self._loaded.pinned.release()
        del self._loaded, self._growing, self._rejected
        del self.devices
        self._storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _restart_slots(self) -> None:
        for slots in self._loaded.slots.values():
            slots.restart()

    def _expert_cache(self) -> tuple[ExpertCacheCounts, ...]:
        """Count what slots did in the passes of the latest generation."""
        return tuple(slots.counted(layer) for layer, slots in self._loaded.slots.items())

    def _keep_recorded(self) -> None:
        self._recorded += [record for program in self._loaded.programs.values() for record in program.take()]

    def _pass(self, iteration: Iteration) -> PhaseProgram:
        if self._growing is not None and not self._growing.suits(iteration.past, iteration.context):
            self._keep_recorded()
            self._loaded = self._growing.grown(self._loaded, iteration.past, iteration.context)
        program = self._loaded.programs[iteration.phase]
        program.run(iteration.tokens, iteration.past)
        self._cached = iteration.context
        return program

    def _feed(self, tokens: Tokens) -> None:
        """Hand every batch its sequences."""
        rows = np.split(tokens, len(self._loaded.tokens))
        for target, source in zip(self._loaded.tokens, rows, strict=True):
            target[: source.size] = source.ravel()

    def _chosen(self, program: PhaseProgram, choose: Choose | None) -> Tokens:
        """Return the tokens that the pass has chosen; another choice is fed to the next one."""
        if choose is None:
            return np.concatenate([tokens[: self.plan.workload.batch] for tokens in self._loaded.tokens])
        chosen = choose(program.logits())
        self._feed(chosen[:, None])
        return chosen

    def _iterations(self, tokens: Tokens, output_tokens: int, past: int) -> tuple[Iteration, ...]:
        """The passes over prompts that follow `past` tokens, then decode steps. A token alone on top of others is a
        decode step."""
        shape = {"prompt_tokens": tokens.shape[1], "output_tokens": output_tokens}
        first, *rest = requested(self.plan, self.plan.workload.model_copy(update=shape)).all
        if past and tokens.shape[1] == 1:
            first = replace(first, phase="decode")
        return tuple(replace(other, context=other.context + past) for other in (first, *rest))
