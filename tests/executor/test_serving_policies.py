"""The loop, the engine and the real scheduler together: under every policy each request gets what it gets alone, also
what others that began alike have computed."""

from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from daily import one_in
from test_serving_engine import CONTEXT, OUTPUT, Alone, plan_of, prompts_of
from tests.support.virtual_serving import VirtualTime
from two_cpus import TWO_CPUS

from helmsman.executor.serving.block_hashes import BlockHashes
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.serving.loop import ServingLoop
from helmsman.executor.serving.request import RequestEnd, RequestOptions
from helmsman.executor.system.machine import Machine
from helmsman.scheduler._scheduling import Scheduler
from helmsman.scheduler.cost import IterationCost, Line
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.policies import POLICIES, checked_options

pytestmark = TWO_CPUS

ALL_ON_HOST = ("simple-offload", "symmetric", "fastdecode-plus")
AT_LEAST = {"neo": 1, "apex": OUTPUT, "adaptive": 1}
"""Tokens whose attention the host did."""

PATIENCE_S = 120
"""Until a test that waits has failed; nothing else is judged by it."""

OPTIONS = {"apex": {"threshold": "0"}}
"""Cohorts also of the few requests that there are."""


def line(base: float, slope: float) -> Line:
    return Line((0.0, 1000.0), (base, base + 1000 * slope))


def cost() -> IterationCost:
    """Linear stages that cost as much for few tokens as for one, and a host half as fast as the accelerator."""
    moved = line(1e-6, 1e-8)
    return IterationCost(
        layers=3,
        linear=line(1e-4, 1e-6),
        gpu_attention=line(0, 2e-7),
        prefill_compute=line(0, 1e-9),
        prefill_read=line(0, 1e-9),
        cpu_attention=line(0, 4e-7),
        cpu_request=0.0,
        to_host=moved,
        to_device=moved,
        swap_out=moved,
        swap_in=moved,
        ends=line(1e-4, 1e-6),
    )


def alike(count: int = 6) -> list[list[int]]:
    """Prompts that begin with the same two blocks, or one of them, and others."""
    common = [7 * place % 523 for place in range(32)]
    begins = [(common if number % 2 else common[:20]) + prompt for number, prompt in enumerate(prompts_of(0, count))]
    return begins + prompts_of(1, count)


class Client:
    """Collects one request's tokens. `then`: what is done on the loop's thread when it has ended."""

    def __init__(self, prompt: list[int], then: Callable[[], None] = lambda: None) -> None:
        self.prompt, self.made, self.then = prompt, list[int](), then
        self.ends = list[RequestEnd]()
        self.done = Event()

    def submit(self, loop: ServingLoop) -> None:
        loop.submit(RequestOptions(self.prompt, OUTPUT), self.on_token, self.on_end)

    def on_token(self, token: int) -> None:
        self.made.append(token)

    def on_end(self, end: RequestEnd) -> None:
        self.ends.append(end)
        self.done.set()
        self.then()


def serve_all(engine: ServingEngine, scheduler: Scheduler, clients: list[Client], block: int) -> None:
    """All clients come with the end of a request before them, and another leaves with the first's end: on the loop's
    own thread and in virtual time, so that passes are the same on every machine."""
    time = VirtualTime(engine)
    loop = ServingLoop(time, scheduler, hashes=BlockHashes(block), clock=time.now)

    def come() -> None:
        for client in clients:
            client.submit(loop)
        gone = loop.submit(RequestOptions([1] * 40, 50), lambda _: None, lambda _: None)
        clients[0].then = lambda: loop.cancel(gone)

    try:
        loop.submit(RequestOptions([2], 1), lambda _: None, lambda _: come())
        assert all(client.done.wait(PATIENCE_S) for client in clients)
    finally:
        loop.close()


@pytest.mark.parametrize("chunk", one_in(2, [24, 0]))
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_serves(checkpoints: Callable[[str], Path], policy: str, chunk: int) -> None:
    limits = Limits(gpu_tokens=96, cpu_tokens=448, batch_tokens=CONTEXT, sequences=8, chunk=chunk)
    scheduler = Scheduler(cost(), limits, policy, checked_options(policy, OPTIONS.get(policy, {})), limits.block)
    clients = [Client(prompt) for prompt in alike()]
    directory = checkpoints("qwen3")
    with ServingEngine.load(plan_of("qwen3"), directory, Machine.this(), limits) as engine:
        serve_all(engine, scheduler, clients, limits.block)
        engine.check_integrity()
        scheduler.check()
    alone = Alone("qwen3", directory)
    assert [client.ends[0].error for client in clients] == [None] * len(clients)
    assert all(len(client.ends) == 1 and client.ends[0].reason == "length" for client in clients)
    on_cpu = sum(client.ends[0].cpu_tokens for client in clients)
    assert on_cpu == (OUTPUT - 1) * len(clients) if policy in ALL_ON_HOST else on_cpu >= AT_LEAST.get(policy, 0)
    assert (sum(client.ends[0].reused_tokens for client in clients) > 0) == (policy not in ALL_ON_HOST)
    equal = sum(alone.check(client.prompt, client.made) for client in clients)
    assert equal >= 0.98 * OUTPUT * len(clients)
