"""Policies in Python: they make the passes that a native policy of the same rules makes, and can do no harm."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from serving_cases import Case, in_closed_loop, random_case
from together import together

from helmsman.analysis.listing import listing
from helmsman.scheduler import policies
from helmsman.scheduler._scheduling import ReplicaState, Scheduler, simulate
from helmsman.scheduler.decision import Home
from helmsman.scheduler.policies import PolicyMaker, PolicyOptions, PythonPolicy
from helmsman.schemas.errors import UsageError

GPU: Home = "gpu"
CPU: Home = "cpu"

Asked = Callable[[ReplicaState], list[Callable[[], object]]] | None
"""What is asked of a state."""


class Batching:
    """What csrc/scheduling/gpu_only.cpp does, for requests of one priority whose caches are given up."""

    def decide(self, state: ReplicaState) -> None:
        self.dropped: set[int] = set()
        while state.growth() > state.free(GPU):
            self.drop(state)
        self.let_prompt_go_on(state)
        if state.on_gpu:
            state.decode_on_gpu()
        crowded = bool(self.dropped)
        for request in state.prompting:
            if not self.go_on(state, request):
                return
        while not crowded and state.waiting and state.running < state.sequences and self.room(state) > 0:
            if state.waiting[0] in self.dropped or not self.go_on(state, state.waiting[0]):
                return

    def let_prompt_go_on(self, state: ReplicaState) -> None:
        while state.prompting:
            first = state.prompting[0]
            count = min(self.room(state), state.prompt_left(first, GPU))
            if count <= 0 or state.growth() + state.prompt_blocks(first, count, GPU) <= state.free(GPU):
                return
            if max([*state.on_gpu, *state.prompting]) <= first:
                return
            self.drop(state)

    def drop(self, state: ReplicaState) -> None:
        last = max([*state.on_gpu, *state.prompting])
        state.preempt(last)
        self.dropped.add(last)

    def room(self, state: ReplicaState) -> int:
        return state.budget - max(state.tokens, len(state.on_gpu))

    def go_on(self, state: ReplicaState, request: int) -> bool:
        count = min(self.room(state), state.prompt_left(request, GPU))
        if count <= 0 or state.prompt_blocks(request, count, GPU) > state.free(GPU):
            return False
        state.prompt(request, count, GPU)
        return True


def of_one_priority(seed: int) -> Case:
    """A random case in which prompts pass in chunks and nobody goes before others."""
    case = random_case(seed, "gpu-only", most=60)
    requests = replace(case.requests, priority=np.zeros_like(case.requests.priority))
    limits = replace(case.limits, chunk=case.limits.chunk or 64)
    return replace(case, requests=requests, limits=limits, options={"preemption": "recompute"})


def served(case: Case, make: Callable[[], PythonPolicy], homes: tuple[Home, ...] = (GPU,)) -> dict[str, Any]:
    """What becomes of the requests; every pass is checked."""
    columns, maker = case.requests.columns(), PolicyMaker(make, homes)
    setting = (case.limits, maker, {}, case.replicas, case.router)
    return simulate(columns, case.cost, case.cost, *setting, log=True, check=True)


@together("closed", [False, True])
@together("seed", range(12))
def test_it_makes_the_passes_of_the_native_policy(seed: int, closed: bool) -> None:
    case = of_one_priority(seed)
    case = in_closed_loop(case, seed) if closed else case
    own, native = served(case, Batching), case.run(reference=True)
    assert own.keys() == native.keys()
    for name, column in native.items():
        np.testing.assert_array_equal(own[name], column, err_msg=name)


def test_every_replica_has_a_policy_of_its_own() -> None:
    made: list[Batching] = []

    def make() -> Batching:
        made.append(Batching())
        return made[-1]

    served(replace(of_one_priority(1), replicas=3), make)
    assert len(made) == 3


def returned(policy: PythonPolicy) -> PythonPolicy:
    return policy


class Arbitrary:
    """Asks for anything, within reason or not, and goes on after what was refused."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.asked, self.refused = 0, 0

    def decide(self, state: ReplicaState) -> None:
        for _ in range(self.random.randint(1, 12)):
            self.asked += 1
            try:
                self.ask(state)
            except (RuntimeError, ValueError):
                self.refused += 1

    def ask(self, state: ReplicaState) -> None:
        requests = [*state.waiting, *state.prompting, *state.on_gpu, *state.on_cpu, *state.swapped, -1, 10**9]
        request, home = self.random.choice(requests), self.random.choice([GPU, CPU])
        count, half = self.random.randint(-1, 40), self.random.randint(-1, 2)
        asked: list[Callable[[], object]] = [
            lambda: state.preempt(request),
            lambda: state.swap_out(request, pause=half > 0),
            lambda: state.swap_in(request),
            lambda: state.prompt(request, count, home),
            lambda: state.decode_on_cpu(request, half),
            state.decode_on_gpu,
            lambda: state.kind(self.random.choice(["simple", "pipelined", "deferred", "none"])),
            lambda: (state.cached(request), state.produced(request), state.priority(request)),
            lambda: (state.prompt_left(request, home), state.prompt_blocks(request, count, home)),
            lambda: (state.moved_blocks(request), state.free(home), state.growth()),
        ]
        self.random.choice(asked)()


ENDS = ("leaves requests waiting", "none of them goes on", "have not ended")
"""What may be said of a policy that asks for anything; that sums do not hold may not."""


def test_whatever_it_asks_for_is_done_or_refused() -> None:
    made = [Arbitrary(seed) for seed in range(120)]
    for seed, policy in enumerate(made):
        try:
            served(replace(random_case(seed, "neo", most=8), replicas=1), partial(returned, policy), (GPU, CPU))
        except RuntimeError as error:
            assert any(words in str(error) for words in ENDS), (seed, str(error))
    assert sum(policy.refused for policy in made) > 60 and all(policy.asked for policy in made)


class Refused(Batching):
    """Does what Batching does; before that, `first`, and after it, `last` have to be refused, where they apply."""

    def __init__(self, first: Asked = None, last: Asked = None) -> None:
        self.first, self.last, self.times = first, last, 0

    def refuse(self, asked: Asked, state: ReplicaState) -> None:
        for wanted in () if asked is None else asked(state):
            self.times += 1
            with pytest.raises(RuntimeError):
                wanted()

    def decide(self, state: ReplicaState) -> None:
        self.refuse(self.first, state)
        super().decide(state)
        self.refuse(self.last, state)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (lambda state: [partial(state.preempt, request) for request in state.waiting], None),
        (lambda state: [partial(state.swap_in, request) for request in [*state.waiting, *state.on_gpu]], None),
        (lambda state: [partial(state.swap_out, request, pause=False) for request in state.on_gpu], None),
        (lambda state: [partial(state.prompt, request, 0, GPU) for request in state.waiting], None),
        (lambda state: [partial(state.prompt, request, 1, CPU) for request in state.waiting], None),
        (lambda state: [partial(state.prompt, request, 10**6, GPU) for request in state.prompting], None),
        (lambda state: [partial(state.decode_on_cpu, request, 0) for request in state.on_gpu], None),
        (None, lambda state: [partial(state.prompt, request, 1, GPU) for request in state.prompting if state.tokens]),
        (None, lambda state: [partial(state.preempt, request) for request in state.on_gpu]),
        (None, lambda state: [state.decode_on_gpu] if state.on_gpu else []),
    ],
)
def test_what_is_refused_changes_nothing(first: Asked, last: Asked) -> None:
    """What a policy asks for at the wrong time is refused, and the passes are those without it."""
    times = 0
    for seed in range(6):
        case, made = replace(of_one_priority(seed), replicas=1), Refused(first, last)
        own, native = served(case, partial(returned, made)), replace(case).run(reference=True)
        for name, column in native.items():
            np.testing.assert_array_equal(own[name], column, err_msg=name)
        times += made.times
    assert times


def test_a_policy_that_fails_takes_no_room_with_it() -> None:
    case = of_one_priority(4)

    class Failing(Batching):
        def decide(self, state: ReplicaState) -> None:
            super().decide(state)
            if state.on_gpu:
                raise LookupError

    scheduler = Scheduler(case.cost, replace(case.limits, block=1), PolicyMaker(Failing, (GPU,)), {})
    free = scheduler.free()
    scheduler.add(0, prompt=5, output=9)
    assert scheduler.decide() is not None
    scheduler.commit(1.0)
    for _ in range(3):
        with pytest.raises(LookupError):
            scheduler.decide()
    scheduler.reset()
    assert scheduler.free() == free
    scheduler.check()


def test_who_runs_goes_on() -> None:
    class Idle(Batching):
        def decide(self, state: ReplicaState) -> None:
            if not state.on_gpu:
                super().decide(state)

    with pytest.raises(RuntimeError, match="none of them goes on"):
        served(of_one_priority(4), Idle)


def test_caches_have_a_home() -> None:
    with pytest.raises(ValueError, match="home"):
        served(of_one_priority(4), Batching, ())


def test_a_state_is_over_with_its_pass() -> None:
    states: list[ReplicaState] = []

    class Keeping(Batching):
        def decide(self, state: ReplicaState) -> None:
            states.append(state)
            super().decide(state)

    served(of_one_priority(2), Keeping)
    with pytest.raises(RuntimeError, match="has been made"):
        states[0].preempt(0)
    with pytest.raises(RuntimeError, match="has been made"):
        assert states[-1].waiting


def test_its_own_error_comes_out() -> None:
    class Failing:
        def decide(self, state: ReplicaState) -> None:
            raise LookupError(f"{len(state.waiting)} wait")

    with pytest.raises(LookupError, match="[1-9] wait"):
        served(of_one_priority(3), Failing)


def test_it_runs_real_passes_too() -> None:
    case = of_one_priority(4)
    scheduler = Scheduler(case.cost, case.limits, PolicyMaker(Batching, (GPU,)), {})
    scheduler.add(7, prompt=5, output=2)
    decision = scheduler.decide()
    assert decision is not None and [chunk.id for chunk in decision.prefill] == [7]
    scheduler.commit(1.0)
    decision = scheduler.decide()
    assert decision is not None and decision.decode0_gpu == (7,)


TOY = """
from helmsman.scheduler.policies import PolicyOptions, WholeNumber

class Alone:
    def __init__(self, options):
        self.most = options["most"]

    def decide(self, state):
        if state.on_gpu:
            state.decode_on_gpu()
        elif state.waiting:
            first = state.waiting[0]
            state.prompt(first, min(state.budget, state.prompt_left(first, "gpu"), self.most), "gpu")

POLICY = PolicyOptions("one request after the other", {"most": WholeNumber(512, 1, 4096, "tokens")}, ("gpu",), Alone)
"""


WITHOUT_A_TUPLE = TOY.replace('("gpu",)', '("gpu")')


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Returns what installs a module's text as the policy `alone` of another package."""

    def install(text: str) -> None:
        (tmp_path / "toy_policy.py").write_text(text)
        sys.modules.pop("toy_policy", None)
        point = EntryPoint("alone", "toy_policy:POLICY", policies.GROUP)
        monkeypatch.setattr(policies, "added", lambda _: {"alone": point})

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # three texts within a second
    return install


def test_another_package_adds_a_policy(installed: Callable[[str], None]) -> None:
    installed(TOY)
    assert "alone" in policies.policy_names()
    assert policies.policy_options("alone").help == "one request after the other"
    maker = policies.policy_maker("alone", policies.checked_options("alone", {}))
    assert isinstance(maker, PolicyMaker) and maker.homes == ("gpu",)
    with pytest.raises(UsageError, match="no such value of most"):
        policies.checked_options("alone", {"most": "0"})
    with pytest.raises(UsageError) as refusal:
        policies.policy_options("none")
    assert refusal.value.remedy is not None and "alone" in refusal.value.remedy


@pytest.mark.parametrize(
    "text", ["POLICY = 3", "import nothing_of_that_name", "raise RuntimeError", TOY.replace('("gpu",)', '("gpu")')]
)
def test_a_package_that_names_no_policy_is_refused(installed: Callable[[str], None], text: str) -> None:
    installed(text)
    with pytest.raises(UsageError) as refusal:
        policies.policy_options("alone")
    assert refusal.value.field == "policy" and refusal.value.remedy is not None
    about = {entry.name: entry.about for entry in listing("policies").entries}
    assert about["alone"].startswith("of no use: ") and about["neo"] == policies.POLICIES["neo"].help


def test_native_policies_go_by_their_names() -> None:
    options: Mapping[str, bool] = {}
    assert policies.policy_maker("neo", options) == "neo"
    assert all(isinstance(known, PolicyOptions) and known.make is None for known in policies.POLICIES.values())
