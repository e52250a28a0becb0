"""Requests that begin alike share blocks: what the scheduler says is reused is what the engine reuses."""

from dataclasses import replace
from queue import SimpleQueue
from random import Random

import numpy as np
import pytest
from serving_cases import random_cost
from virtual_serving import VOCABULARY, VirtualEngine, content

from helmsman.executor.serving.block_hashes import BlockHashes
from helmsman.executor.serving.loop import ServingLoop
from helmsman.executor.serving.request import RequestEnd, RequestOptions
from helmsman.executor.serving.state_slots import StateSlots
from helmsman.scheduler import _scheduling
from helmsman.scheduler._scheduling import Scheduler
from helmsman.scheduler.decision import SchedulingDecision
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.policies import POLICIES, checked_options
from helmsman.schemas.requests import Requests, make_requests

LIMITS = Limits(gpu_tokens=120, cpu_tokens=240, batch_tokens=64, sequences=6, block=4, chunk=24)
WITH_STATES = replace(LIMITS, states=True, snapshots=3)
ON_HOST = ("simple-offload", "symmetric", "fastdecode-plus")
"""Policies whose accelerator has no cache."""
HASHES = BlockHashes(LIMITS.block, b"key")


def prompt_of(random: Random) -> list[int]:
    """Of one of three families, as long as the family or shorter, and then something of its own."""
    family = Random(random.randint(0, 2))
    alike = [family.randrange(VOCABULARY) for _ in range(random.randint(0, 40))]
    return alike + [random.randrange(VOCABULARY) for _ in range(random.randint(1, 12))]


class Forgetful(list[tuple[int, int]]):
    """Copies that are not made."""

    def append(self, pair: tuple[int, int]) -> None:
        """Keep nothing."""


class Served:
    """The core and an engine, pass by pass, as the loop runs them; `left`: tokens that requests still make."""

    def __init__(self, policy: str, seed: int, limits: Limits) -> None:
        given = {"preemption": "swap"} if policy == "gpu-only" and seed % 2 else {}
        options = checked_options(policy, given | ({"threshold": "0"} if policy == "apex" else {}))
        self.random = Random(f"{policy} {seed}")
        cost = random_cost(self.random)
        self.scheduler = Scheduler(cost, limits, policy, options, limits.block)
        self.engine = VirtualEngine(limits)
        self.prompts: dict[int, list[int]] = {}
        self.made: dict[int, list[int]] = {}
        self.left: dict[int, int] = {}
        self.seen = {"reused": 0, "evicted": 0, "left while sharing": 0, "kept": 0, "forgotten": 0, "came back": 0}

    def arrive(self) -> None:
        number, prompt = len(self.prompts), prompt_of(self.random)
        self.prompts[number], self.made[number], self.left[number] = prompt, [], self.random.randint(1, 30)
        hashes = HASHES(prompt)
        self.scheduler.add(number, len(prompt), self.left[number], self.random.choice([0, 0, 1]), hashes)
        self.engine.add(number, RequestOptions(prompt, self.left[number]), hashes)

    def leave(self) -> None:
        number = self.random.choice(list(self.left))
        self.seen["left while sharing"] += bool(self.engine.running[number].table.shared)
        self.scheduler.cancel(number)
        self.end(number)

    def end(self, number: int) -> None:
        del self.left[number]
        self.engine.release(number)

    def work(self) -> None:
        made = self.scheduler.decide()
        if made is None:
            return
        self.note(made)
        came = self.engine.step(made).tokens
        for number, token in came.items():
            self.made[number].append(token)
            self.left[number] -= 1
        ended = [number for number in came if self.left[number] == 0 or self.random.random() < 0.02]
        self.scheduler.commit(0.01, ended, list(came))
        for number in ended:
            self.end(number)

    def note(self, made: SchedulingDecision) -> None:
        self.seen["evicted"] += len(made.evicted)
        self.seen["kept"] += len(made.kept)
        self.seen["forgotten"] += len(made.forgotten)
        self.seen["came back"] += len(made.swap_in)
        self.seen["reused"] += sum(each.past for each in made.prefill if not self.engine.running[each.id].cached)
        moved = (self.engine.running[number] for number in (*made.swap_out, *made.preempted))
        self.seen["left while sharing"] += sum(bool(each.table.shared) for each in moved)

    def check(self) -> None:
        self.scheduler.check()
        self.engine.check_integrity()
        assert self.scheduler.free() == self.engine.free


def serve(policy: str, seed: int, passes: int = 150, limits: Limits = LIMITS) -> Served:
    """Requests come, leave and end; in the middle the device fails."""
    served = Served(policy, seed, limits)
    for step in range(passes):
        if served.random.random() < 0.5 and len(served.left) < 12:
            served.arrive()
        if served.left and served.random.random() < 0.04:
            served.leave()
        if step == passes // 2:
            served.scheduler.decide()
            served.engine.reset()
            served.scheduler.reset()
            served.left.clear()
            assert served.scheduler.free() == (limits.gpu_tokens // 4, limits.cpu_tokens // 4)
        served.work()
        served.check()
    for number, made in served.made.items():
        tokens = list(served.prompts[number])
        for token in made:
            assert token == content(tokens)[-1] % VOCABULARY
            tokens.append(token)
    return served


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_shared_is_whole_whatever_happens(policy: str) -> None:
    """Every row that a request reads has what the request itself would have written."""
    seen = [serve(policy, seed).seen for seed in range(2)]
    found = {name: sum(each[name] for each in seen) for name in ("reused", "evicted", "left while sharing")}
    assert all(count == 0 if policy in ON_HOST else count > 5 for count in found.values()), found


def test_states_are_whole_whatever_happens() -> None:
    """Those of requests that leave and come back, and of prompts that others begin with."""
    seen = [serve("gpu-only", seed, limits=WITH_STATES).seen for seed in range(4)]
    found = {name: sum(each[name] for each in seen) for name in seen[0]}
    assert all(count > 5 for count in found.values()), found


@pytest.mark.parametrize("lost", ["back", "restored", "kept"])
def test_a_state_that_stays_behind_is_found_out(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """A stale one after a preemption, or after a prefix that was not computed."""
    begun = StateSlots.begin

    def begin(slots: StateSlots) -> None:
        begun(slots)
        slots.moves = replace(slots.moves, **{lost: Forgetful()})

    monkeypatch.setattr(StateSlots, "begin", begin)
    with pytest.raises(AssertionError, match="its state is its own"):
        for seed in range(4):
            serve("gpu-only", seed, limits=WITH_STATES)


@pytest.mark.nightly
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(200))
def test_what_is_shared_is_whole_in_many_runs(policy: str, seed: int) -> None:
    serve(policy, seed, 400)
    if policy not in ON_HOST:
        serve(policy, seed, 400, replace(WITH_STATES, cpu_tokens=240 if policy == "gpu-only" else 0))


def hashed(prompts: list[list[int]], outputs: list[int], gap: float) -> Requests:
    """As a trace has them, with one arrival every `gap` seconds."""
    hashes = [HASHES(prompt) for prompt in prompts]
    lengths = np.array([len(prompt) for prompt in prompts])
    found = make_requests(gap * np.arange(len(prompts)), lengths, np.array(outputs))
    start = np.cumsum([0, *map(len, hashes)])
    flat = np.array([each for found in hashes for each in found], np.int64)
    columns = found.columns() | {"hash_start": start, "hashes": flat, "hash_block": LIMITS.block}
    return Requests(**columns)


@pytest.mark.parametrize("policy", POLICIES)
def test_as_much_is_reused_as_is_simulated(policy: str) -> None:
    """One request after the other, through the loop."""
    random = Random(policy)
    prompts, outputs = [prompt_of(random) for _ in range(40)], [random.randint(1, 9) for _ in range(40)]
    cost, options = random_cost(random), checked_options(policy, {})
    columns = hashed(prompts, outputs, 1e3).columns()
    expected = _scheduling.simulate(columns, cost, cost, LIMITS, policy, options)["reused_tokens"].tolist()
    scheduler, ends = Scheduler(cost, LIMITS, policy, options, LIMITS.block), SimpleQueue[RequestEnd]()
    loop, found = ServingLoop(VirtualEngine(LIMITS), scheduler, hashes=HASHES), []
    for prompt, output in zip(prompts, outputs, strict=True):
        loop.submit(RequestOptions(prompt, output), lambda _: None, ends.put)
        found.append(ends.get(timeout=60))
    state = loop.state
    loop.close()
    assert [end.error for end in found] == [None] * 40
    assert [end.reused_tokens for end in found] == expected
    assert (sum(expected) > 100) == (policy not in ON_HOST)
    assert (state.looked_up, state.reused) == (sum(map(len, prompts)), sum(expected))


@pytest.mark.parametrize("limits", [LIMITS, WITH_STATES])
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_all_at_once_reuse_what_is_simulated(limits: Limits, preemption: str) -> None:
    """Also where prompts wait, are cut and lose their blocks: passes take what the simulation takes."""
    random = Random(3)
    prompts, outputs = [prompt_of(random) for _ in range(60)], [random.randint(1, 30) for _ in range(60)]
    cost, options = random_cost(random), {"preemption": preemption}
    found = _scheduling.simulate(hashed(prompts, outputs, 0.0).columns(), cost, cost, limits, "gpu-only", options)
    scheduler, engine = Scheduler(cost, limits, "gpu-only", options, limits.block), VirtualEngine(limits)
    out = 0
    for number, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        scheduler.add(number, len(prompt), output, hashes=HASHES(prompt))
        engine.add(number, RequestOptions(prompt, output), HASHES(prompt))
    left, reused = dict(enumerate(outputs)), dict[int, int]()
    while (made := scheduler.decide()) is not None:
        out += sum(engine.running[number].cached for number in made.swap_out)
        for chunk in made.prefill:
            reused.setdefault(chunk.id, chunk.past)
        for number in engine.step(made).tokens:
            left[number] -= 1
        scheduler.commit(1.0)
        for number in [number for number, rest in left.items() if rest == 0]:
            engine.release(number)
            del left[number]
        engine.check_integrity()
        assert scheduler.free() == engine.free
    assert [reused[number] for number in range(60)] == found["reused_tokens"].tolist()
    assert found["swapped_out"].sum() == out
    assert (found["preemptions"].sum() > 0) == (preemption == "recompute") or out > 0
    assert found["reused_tokens"].sum() > 100


def test_hashes_are_of_all_tokens_up_to_a_blocks_end() -> None:
    one, other = HASHES([1, 2, 3, 4, 5, 6, 7, 8, 9]), HASHES([1, 2, 3, 4, 9, 6, 7, 8])
    assert len(one) == len(other) == 2 and one[0] == other[0] and one[1] != other[1]
    assert HASHES([0, 2, 3, 4, 5, 6, 7, 8])[1] != one[1], "the block before counts"
    assert HASHES([1, 2, 3]) == ()
    assert BlockHashes(4, b"other")([1, 2, 3, 4]) != one[:1] != BlockHashes(4)([1, 2, 3, 4])
