"""The contract of the native scheduling core. Seconds, tokens; costs, limits and work are those of this room."""

from collections.abc import Mapping, Sequence
from typing import Any

from helmsman.scheduler.cost import IterationCost
from helmsman.scheduler.decision import Home, Kind, SchedulingDecision
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.pass_work import PassWork
from helmsman.scheduler.policies import PolicyMaker
from helmsman.scheduler.target import Target

def simulate(
    columns: Mapping[str, Any],
    cost: IterationCost,
    believed: IterationCost,
    limits: Limits,
    policy: str | PolicyMaker,
    options: Mapping[str, bool | int | float | str],
    replicas: int = 1,
    router: str = "round-robin",
    reference: bool = False,
    log: bool = False,
    check: bool = False,
    target: Target | None = None,
) -> dict[str, Any]:
    """Requests (the columns of `schemas.requests.Requests`, which have been checked) through replicas in virtual time.

    `cost` is what passes take, `believed` what the policy takes them to. `options`: all of a native policy's own,
    checked (`scheduler.policies`). `router`: round-robin, least-loaded or prefix-aware. `reference`: every pass on its
    own instead of runs of decodes in closed form. With `starts_s` users send the requests in the order of their rows,
    whoever is next, each when its request before is over and it has thought for that one's `think_s`. `log`: keep the
    order of events. `check`: compare all sums with what requests say after every pass. `target`: a
    run is lost, and ends, when more requests than may have missed it; those that have not ended then have no status.

    Arrays by name; n requests, r replicas (ids of passes' kinds: gpu-only, simple, pipelined, deferred):
    - (n): arrival_s (in a closed loop when it was sent), started_s, first_token_s, finish_s (nan where it did not come
      to that; of cancelled ones when they left); produced, cpu_tokens, preemptions, reused_tokens; replica (-1: none);
      status (a place in schemas.served_table.STATUSES)
    - gaps between tokens, as schemas.served_table.Gaps: itl_first_s, itl_step_s, itl_steps, itl_weight, itl_on_cpu
    - numbers: missed (requests that missed the target), lost (whether these are more than may)
    - (r): busy_s, gpu_s, cpu_s, link_s (in passes, and by side); gpu_kv_s, cpu_kv_s (integrals over time of the KV
      tokens that requests hold); gpu_blocks, cpu_blocks (most that they hold at a time); swapped_out, swapped_in (KV
      tokens); jumps (runs taken in closed form); passes (r, 4) by kind
    - samples of the KV tokens that requests hold, of a replica from a time on, at most 4,096 of each: kv_replica,
      kv_at_s, kv_gpu_tokens, kv_cpu_tokens
    - with `log`, by replica and in order: event_s, event_request, event (0 started, 1 first token, 2 swapped out,
      3 swapped in, 4 preempted, 5 finished, 6 cancelled, 7 rejected)

    Raises ValueError for a name or option that does not exist, RuntimeError where a policy does what it must not."""

class ReplicaState:
    """The requests of one replica, where their caches are, and the pass that a policy in Python is making.

    It lives while `decide` runs: afterwards every method raises RuntimeError, as it does where a policy asks for what
    cannot be, and then nothing has changed; ValueError for a word that is no home or kind. Requests have numbers in the
    order in which they came to the replica; sizes are tokens and blocks."""

    @property
    def waiting(self) -> list[int]:
        """Requests of which nothing is cached, the first to begin first."""

    @property
    def prompting(self) -> list[int]:
        """Requests whose prompts have begun, in the order in which they may go on."""

    @property
    def on_gpu(self) -> list[int]:
        """Requests that decode with their cache on the accelerator, by number."""

    @property
    def on_cpu(self) -> list[int]:
        """Requests that decode with attention on the host, in the order in which they came there."""

    @property
    def swapped(self) -> list[int]:
        """Requests whose cache waits at the host to come back."""

    @property
    def running(self) -> int:
        """Requests that hold one of `sequences` places."""

    @property
    def sequences(self) -> int:
        """Requests that may run at a time."""

    @property
    def budget(self) -> int:
        """Tokens that a pass with prompts may have."""

    @property
    def tokens(self) -> int:
        """Tokens that the pass has so far."""

    def free(self, home: Home) -> int:
        """Blocks that can be had in a cache."""

    def growth(self) -> int:
        """Blocks that decode_on_gpu takes."""

    def priority(self, request: int) -> int: ...
    def cached(self, request: int) -> int:
        """Tokens in its cache."""

    def produced(self, request: int) -> int:
        """Tokens that it has yielded."""

    def prompt_left(self, request: int, home: Home) -> int:
        """Tokens of its prompt that are still to be computed if it goes on with its cache at `home`."""

    def prompt_part(self, request: int, home: Home) -> int:
        """Those of them before the next place where its state, if requests keep any, is to be kept for others: a pass
        that has no more of it ends there."""

    def prompt_blocks(self, request: int, count: int, home: Home) -> int:
        """Blocks that prompt(request, count, home) takes."""

    def moved_blocks(self, request: int) -> int:
        """Blocks that moving its cache takes."""

    def preempt(self, request: int) -> None:
        """Give up its cache: it waits to be computed again."""

    def swap_out(self, request: int, pause: bool) -> None:
        """Its cache goes to the host: it waits there to come back (`pause`), or decodes there from now on."""

    def swap_in(self, request: int) -> None:
        """Its cache comes back, and it decodes on the accelerator."""

    def decode_on_gpu(self) -> None:
        """Everybody in `on_gpu` decodes; to be called where there is anybody, after all moves."""

    def prompt(self, request: int, count: int, home: Home) -> None:
        """Compute `count` more tokens of a prompt, begun or waiting."""

    def decode_on_cpu(self, request: int, half: int) -> None:
        """A request of `on_cpu` decodes in sub-batch 0 or 1."""

    def kind(self, kind: Kind) -> None:
        """The pass is of this kind (not deferred, which takes cohorts that policies in Python do not form)."""

class Scheduler:
    """A policy and the state of one replica, for whoever runs passes: the objects that `simulate` uses.

    `cost`: what the policy believes. `hash_block`: tokens of a block that prompts share, whole blocks of the limits';
    0: nothing is shared. Requests have numbers of the caller's, which go up as they come."""

    def __init__(
        self,
        cost: IterationCost,
        limits: Limits,
        policy: str | PolicyMaker,
        options: Mapping[str, bool | int | float | str],
        hash_block: int = 0,
    ) -> None: ...
    def add(self, request: int, prompt: int, output: int, priority: int = 0, hashes: Sequence[int] = ()) -> None:
        """A request of `prompt` tokens that makes at most `output`; `hashes`: of the prompt's full blocks. Raises
        ValueError for one that can never run, or a number that does not go up."""

    def cancel(self, request: int) -> None:
        """A request is gone: between passes at once, else when the pass is committed. One that is over is no error."""

    def reset(self) -> None:
        """All requests are gone, and so is what was cached; a pass that has not been committed is taken back."""

    def decide(self) -> SchedulingDecision | None:
        """The next pass; None when there is nothing to do. A pass that has not been committed is taken back: its swaps
        and drops are done, the rest is decided anew."""

    def observe(self, gpu: float, cpu: float, link: float) -> None:
        """Seconds that each side worked in the decided pass; to be said before it is committed, by those who measure.
        Policies that learn do so from this alone."""

    def commit(self, seconds: float, ended: Sequence[int] = (), yielded: Sequence[int] | None = None) -> None:
        """The decided pass took so long; `ended` are over with it, whatever they had still to make.

        `yielded`: requests that yielded a token. Tokens of deferred passes come when the host is done, which only who
        runs them knows; without it they come when costs say."""

    @property
    def waiting(self) -> int:
        """Requests of which nothing is cached."""

    @property
    def running(self) -> int:
        """Requests that prompt or decode."""

    @property
    def pass_sums(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """Seconds of all passes that were observed and committed: as the costs price them, and as they took, each of
        whole passes, of the accelerator's work and of attention on the host."""

    def free(self) -> tuple[int, int]:
        """Blocks that can be had in the caches of accelerator and host."""

    def check(self) -> None:
        """Between passes: raise RuntimeError unless all sums are what the requests say."""

def pass_times(
    cost: IterationCost, kind: str, first: PassWork, second: PassWork, joining: Sequence[tuple[int, PassWork]]
) -> tuple[float, float, float, float]:
    """(seconds, accelerator, host, link) of a pass: how long it takes, and each side works in it.

    `kind`: gpu-only, simple, pipelined or deferred. `joining`: layers behind them and work of requests on the host, in
    the linear stage of their layer (deferred), or as parts of `second` from there on (pipelined)."""

def pipelining_pays(linear: float, attention: float, gpu_rate: float, cpu_rate: float) -> bool:
    """APEX's inequality (5): seconds of a layer's linear stage and attention of decodes on the accelerator, and KV
    tokens that accelerator and host attend to in a second (E-APEX-10)."""

def below_ratio(linear: float, attention: float, gpu_rate: float, cpu_rate: float) -> bool:
    """The same as inequality (6)."""

def mixed_pays(
    linear: float,
    attention: float,
    gpu_rate: float,
    cpu_rate: float,
    prompt_linear: float,
    prompt_attention: float,
    printed: bool,
) -> bool:
    """With prompts in the first sub-batch, whose stages then take `prompt_linear` and `prompt_attention`. `printed`:
    over the times of decodes alone (E-APEX-03)."""

def fill_halves(
    cost: IterationCost, first: PassWork, cached: list[int], prompts: list[PassWork], tokens: int, share: float = 1.0
) -> tuple[list[int], int, tuple[float, float], tuple[float, float]]:
    """NEO's steps 4 and 5: for each decode on the host, in order, its half or -1; how many of `prompts`, all of them in
    `first`, stay where at least `tokens` are left; seconds of a layer that hide each half's attention, and it takes."""

def corrections(
    cost: IterationCost, passes: list[tuple[str, PassWork, PassWork, tuple[float, float, float, float]]]
) -> tuple[float, float, float, float]:
    """Factors of linear stages, attention on the accelerator and on the host, and the link, after passes of a kind with
    this work in both halves that took (seconds, accelerator, host, link)."""
