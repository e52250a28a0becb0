"""The serving loop over an engine that counts and a scheduler that takes turns."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event

import pytest
from tests.support.virtual_serving import NO_SECONDS

from helmsman.executor.serving.loop import ServingLoop
from helmsman.executor.serving.request import RequestEnd, RequestOptions
from helmsman.executor.serving.runner import PassSums, StepResult
from helmsman.scheduler.decision import Chunk, SchedulingDecision
from helmsman.schemas.errors import HardwareUnavailableError, UsageError


class Counting:
    """An engine whose n-th token of a request is the sum of its prompt plus n; what is barred is passed over. `broken`:
    what its passes raise."""

    def __init__(self) -> None:
        self.asked: dict[int, RequestOptions] = {}
        self.made: dict[int, int] = {}
        self.broken: Exception | None = None
        self.shift = 0

    def check_options(self, options: RequestOptions) -> None:
        if len(options.prompt) > 10:
            raise UsageError("too long", field="prompt", value=len(options.prompt))

    def add(self, request: int, options: RequestOptions, hashes: Sequence[int] = ()) -> None:
        self.asked[request], self.made[request] = options, 0

    def step(self, decision: SchedulingDecision) -> StepResult:
        if self.broken is not None:
            raise self.broken
        ids = [*(chunk.id for chunk in decision.prefill), *decision.decode0_gpu, *decision.decode1_cpu]
        tokens = {request: self.next(self.asked[request], request) for request in ids}
        return StepResult(tokens, set(decision.decode1_cpu), NO_SECONDS)

    def next(self, asked: RequestOptions, request: int) -> int:
        self.made[request] += 1
        token = sum(asked.prompt) + self.made[request] + self.shift
        early = self.made[request] <= asked.min_tokens
        return self.next(asked, request) if early and token in asked.barred else token

    def release(self, request: int) -> None:
        del self.asked[request]

    def reset(self) -> None:
        self.asked.clear()


class Turns:
    """A scheduler that begins all at once and decodes every second request on the host."""

    def __init__(self) -> None:
        self.new: list[tuple[int, int]] = []
        self.running: list[int] = []

    def add(self, request: int, prompt: int, output: int, priority: int, hashes: Sequence[int]) -> None:
        if priority < 0:
            raise ValueError("no such priority")
        self.new.append((request, prompt))

    def cancel(self, request: int) -> None:
        self.new = [each for each in self.new if each[0] != request]
        self.running = [each for each in self.running if each != request]

    def reset(self) -> None:
        self.new, self.running = [], []

    def decide(self) -> SchedulingDecision | None:
        if not self.new and not self.running:
            return None
        chunks = tuple(Chunk(request, prompt, 0, "gpu") for request, prompt in self.new)
        gpu, cpu = (tuple(request for request in self.running if request % 2 == side) for side in (0, 1))
        self.running += [request for request, _ in self.new]
        self.new = []
        return SchedulingDecision("pipelined", chunks, gpu, (), cpu)

    @property
    def pass_sums(self) -> tuple[PassSums, PassSums]:
        return (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)

    def observe(self, gpu: float, cpu: float, link: float) -> None:
        assert gpu >= cpu >= link == 0

    def commit(self, seconds: float, ended: Sequence[int] = (), yielded: Sequence[int] | None = None) -> None:
        assert seconds >= 0 and set(ended) <= set(yielded or ())
        self.running = [request for request in self.running if request not in ended]


class Client:
    """Collects what it is told; may fail at a token."""

    def __init__(self, fails: bool = False) -> None:
        self.tokens: list[int] = []
        self.fails = fails
        self.end: RequestEnd | None = None
        self.begun, self.ended = Event(), Event()

    def on_token(self, token: int) -> None:
        self.tokens.append(token)
        self.begun.set()
        if self.fails:
            raise RuntimeError("gone")

    def on_end(self, end: RequestEnd) -> None:
        self.end = end
        self.ended.set()

    def result(self) -> RequestEnd:
        assert self.ended.wait(60)
        assert self.end is not None
        return self.end


@contextmanager
def serving(engine: Counting) -> Iterator[ServingLoop]:
    loop = ServingLoop(engine, Turns())
    yield loop
    loop.close()


def submit(loop: ServingLoop, client: Client, asked: RequestOptions) -> None:
    loop.submit(asked, client.on_token, client.on_end)


def test_requests_get_their_tokens_in_order_and_end_once() -> None:
    engine, clients = Counting(), [Client() for _ in range(6)]
    with serving(engine) as loop:
        for number, client in enumerate(clients):
            submit(loop, client, RequestOptions([10 * number], number + 1))
        ends = [client.result() for client in clients]
    for number, (client, end) in enumerate(zip(clients, ends, strict=True)):
        assert client.tokens == [10 * number + k for k in range(1, number + 2)]
        assert (end.status, end.reason, end.produced) == ("finished", "length", number + 1)
        assert end.cpu_tokens == (number if number % 2 else 0), "all but the first token of every second request"
        assert end.arrival_s <= end.started_s <= end.first_token_s <= end.finish_s
    assert not engine.asked


def test_tokens_and_clients_end_requests() -> None:
    with serving(Counting()) as loop:
        clients = [Client(), Client(), Client(), Client(fails=True)]
        for client, ends in zip(clients, ({7}, {7, 3}, set[int](), {7}), strict=True):
            submit(loop, client, RequestOptions([0], 9, ends=ends))
        assert [client.result().reason for client in clients] == ["stop", "stop", "length", "cancelled"]
    assert [len(client.tokens) for client in clients] == [7, 3, 9, 1]


def test_what_the_scheduler_refuses_fails_alone() -> None:
    engine, before, refused, after = Counting(), Client(), Client(), Client()
    with serving(engine) as loop:
        submit(loop, before, RequestOptions([1], 50))
        submit(loop, refused, RequestOptions([1], 50, priority=-1))
        submit(loop, after, RequestOptions([1], 50))
        end = refused.result()
        assert (end.status, end.reason, end.error) == ("failed", "refused", "no such priority")
        assert before.result().produced == after.result().produced == 50
        assert loop.state.healthy and loop.state.running == loop.state.waiting == 0
    assert not engine.asked


def test_what_the_engine_has_no_memory_for_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, before, refused, after = Counting(), Client(), Client(), Client()

    def full(request: int, options: RequestOptions, hashes: Sequence[int] = ()) -> None:
        raise MemoryError

    with serving(engine) as loop:
        submit(loop, before, RequestOptions([1], 10**9))
        assert before.begun.wait(60)
        with monkeypatch.context() as patch:
            patch.setattr(engine, "add", full)
            submit(loop, refused, RequestOptions([1], 50))
            end = refused.result()
        assert (end.status, end.reason, end.produced, end.error) == ("failed", "refused", 0, "MemoryError")
        submit(loop, after, RequestOptions([1], 50))
        assert after.result().produced == 50
        assert loop.state.healthy and loop.state.running == 1


def test_a_cancelled_request_ends_and_others_go_on() -> None:
    with serving(Counting()) as loop:
        gone, other = Client(), Client()
        handle = loop.submit(RequestOptions([1], 10**9), gone.on_token, gone.on_end)
        submit(loop, other, RequestOptions([1], 50))
        assert gone.begun.wait(60)
        loop.cancel(handle)
        loop.cancel(handle)
        assert gone.result().reason == "cancelled"
        assert other.result().produced == 50
        assert loop.state.running == loop.state.waiting == 0


def test_what_can_never_run_is_refused_at_once() -> None:
    with serving(Counting()) as loop, pytest.raises(UsageError, match="too long"):
        submit(loop, Client(), RequestOptions(list(range(11)), 1))


def test_nothing_is_served_after_a_fault_until_the_canary_passes() -> None:
    engine, client = Counting(), Client()
    with serving(engine) as loop:
        submit(loop, client, RequestOptions([1], 10**9))
        assert client.begun.wait(60)
        engine.broken = RuntimeError("the bus fell off")
        end = client.result()
        assert (end.status, end.error) == ("failed", "the bus fell off")
        assert not loop.state.healthy
        with pytest.raises(HardwareUnavailableError, match="bus fell off"):
            submit(loop, Client(), RequestOptions([1], 1))
        assert not loop.check()
        engine.broken, engine.shift = None, 1
        assert not loop.check(), "it computes again, but something else"
        engine.shift = 0
        assert loop.check()
        submit(loop, after := Client(), RequestOptions([1], 2))
        assert after.result().status == "finished"


def test_closing_cancels_what_runs() -> None:
    client = Client()
    loop = ServingLoop(Counting(), Turns())
    submit(loop, client, RequestOptions([1], 10**9))
    loop.close()
    assert client.result().reason == "cancelled"
    assert not loop.check()
    with pytest.raises(HardwareUnavailableError, match="closing"):
        submit(loop, Client(), RequestOptions([1], 1))
