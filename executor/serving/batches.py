"""From a decision to rows of sub-batches and copies of caches."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from helmsman.executor.serving.active_request import ActiveRequest
from helmsman.executor.serving.cache import Pieces
from helmsman.executor.serving.homes import Homes
from helmsman.executor.serving.host_cohorts import CohortPart, HostCohorts
from helmsman.executor.serving.rows import Rows
from helmsman.scheduler.decision import Chunk, SchedulingDecision


@dataclass
class Batches:
    """The work of a pass. `rows`: of each sub-batch on the accelerator, `apart`: the last of them as the host has them;
    `joining`: cohorts' parts in it, by layer; `swap_out`, `swap_in`, `fetch`, `store`: copies, as `ServingPass` takes
    them; `advances`: by how many tokens whose cache grows; `prompted`: those of them with a part of
    their prompt."""

    homes: Homes
    running: Mapping[int, ActiveRequest]
    deferred: HostCohorts | None
    rows: list[Rows] = field(default_factory=lambda: [Rows(), Rows()])
    apart: list[Rows] = field(default_factory=lambda: [Rows(), Rows()])
    joining: list[CohortPart] = field(default_factory=list)
    on_cpu: set[int] = field(default_factory=set)
    advances: list[tuple[ActiveRequest, int]] = field(default_factory=list)
    prompted: list[ActiveRequest] = field(default_factory=list)
    swap_out: Pieces = field(default_factory=list)
    swap_in: Pieces = field(default_factory=list)
    fetch: Pieces = field(default_factory=list)
    store: Pieces = field(default_factory=list)

    def fill(self, decision: SchedulingDecision) -> None:
        """Fill the pass: what loses its blocks first makes room for what comes after."""
        for request in decision.preempted:
            self.homes.free(self.running[request])
        for request in decision.swap_out:
            self.swap_out += self.homes.move(self.running[request], "cpu")
        self.homes.evict(decision.evicted)
        for request in decision.swap_in:
            self.swap_in += self.homes.move(self.running[request], "gpu")
        for chunk in decision.prefill:
            self._prompt(chunk)
        self._keep_states(decision)
        for request in decision.decode0_gpu:
            self._decode(self.running[request])
        first, second = ([self.running[n] for n in numbers] for numbers in (decision.decode0_cpu, decision.decode1_cpu))
        if decision.kind == "deferred" and self.deferred is not None:
            self.joining = self.deferred.join(self.rows[0], [*first, *second], self.homes.place)
        else:
            self._attend_apart(0, first)
            self._attend_apart(
                1, [active for active in second if self.deferred is None or not self.deferred.has(active)]
            )
            if self.deferred is not None:
                self.joining = self.deferred.stay(self.rows[1], self.apart[1], second, self.homes.place)

    def advance(self) -> None:
        """The pass is done: what it appended is cached."""
        for running, tokens in self.advances:
            running.cached += tokens
        for running in self.prompted:
            self.homes.keep(running)

    def _prompt(self, chunk: Chunk) -> None:
        running = self.running[chunk.id]
        if not running.cached:
            running.home = chunk.home
            self.homes.reuse(running, chunk.past)
        assert running.cached == chunk.past, "a chunk follows what is cached"
        if chunk.home == "cpu":
            runs, fetch, store = self.homes.through(running, chunk.tokens)
            self.fetch += fetch
            self.store += store
        else:
            runs = self.homes.place(running, chunk.tokens)
        end = chunk.past + chunk.tokens
        last = chunk.id if end == len(running.tokens) else None
        self.rows[0].add(running.tokens[chunk.past : end], chunk.past, runs, last, self.homes.slot(running))
        self.advances.append((running, chunk.tokens))
        self.prompted.append(running)

    def _keep_states(self, decision: SchedulingDecision) -> None:
        if self.homes.states is not None:
            self.homes.states.forget(decision.forgotten)
        ends = {chunk.id: chunk.past + chunk.tokens for chunk in decision.prefill}
        for request in decision.kept:
            self.homes.keep_state(self.running[request], ends[request])

    def _decode(self, running: ActiveRequest) -> None:
        runs = self.homes.place(running)
        self.rows[0].add(running.tokens[running.cached :], running.cached, runs, running.id, self.homes.slot(running))
        self.advances.append((running, 1))

    def _attend_apart(self, batch: int, members: list[ActiveRequest]) -> None:
        """Decode steps whose attention is the host's: rows behind all others."""
        behind = Rows()
        for running in members:
            self.homes.restart(running)
            tokens, past = running.tokens[running.cached :], running.cached
            self.apart[batch].add(tokens, past, self.homes.place(running), None)
            behind.add(tokens, past, None, running.id)
            self.advances.append((running, 1))
            self.on_cpu.add(running.id)
        self.rows[batch] = self.rows[batch].and_then(behind)
