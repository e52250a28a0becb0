"""The loop, the engine and the real scheduler together: under every policy each request gets what it gets alone, also
what others that began alike have computed."""

from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from test_serving_engine import CONTEXT, OUTPUT, Alone, plan_of, prompts_of
from two_cpus import TWO_CPUS

from helmsman.executor.machine import Machine
from helmsman.executor.serving.block_hashes import BlockHashes
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.serving.loop import ServingLoop
from helmsman.executor.serving.request import Asked, Ended
from helmsman.scheduler._scheduling import Scheduler
from helmsman.scheduler.cost import IterationCost, Line
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.policies import POLICIES, checked_options

pytestmark = TWO_CPUS

ALL_ON_HOST = ("simple-offload", "symmetric", "fastdecode-plus")
AT_LEAST = {"neo": 1, "apex": OUTPUT, "adaptive": 1}
"""Tokens whose attention the host did."""

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
    """Collects one request's tokens."""

    def __init__(self, prompt: list[int]) -> None:
        self.prompt, self.made = prompt, list[int]()
        self.ends = list[Ended]()
        self.done = Event()

    def on_token(self, token: int) -> None:
        self.made.append(token)

    def on_end(self, end: Ended) -> None:
        self.ends.append(end)
        self.done.set()


@pytest.mark.parametrize("chunk", [0, 24])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_serves(checkpoints: Callable[[str], Path], policy: str, chunk: int) -> None:
    limits = Limits(gpu_tokens=96, cpu_tokens=448, batch_tokens=CONTEXT, sequences=8, chunk=chunk)
    scheduler = Scheduler(cost(), limits, policy, checked_options(policy, OPTIONS.get(policy, {})), limits.block)
    clients = [Client(prompt) for prompt in alike()]
    directory = checkpoints("qwen3")
    with ServingEngine.load(plan_of("qwen3"), directory, Machine.this(), limits) as engine:
        loop = ServingLoop(engine, scheduler, hashes=BlockHashes(limits.block))
        for client in clients:
            loop.submit(Asked(client.prompt, OUTPUT), client.on_token, client.on_end)
        gone = loop.submit(Asked([1] * 40, 50), lambda _: None, lambda _: None)
        assert clients[0].done.wait(20)
        loop.cancel(gone)
        assert all(client.done.wait(20) for client in clients)
        loop.close()
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
