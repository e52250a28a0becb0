"""Plans a second of helm-web, cached and fresh, and what the service adds to the planner's own time."""

import asyncio
import statistics
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.planner_clients import Client, WebServer, quantile
from helmsman.planner.decide import decide
from helmsman.schemas.planner_question import PlannerQuestion
from helmsman.schemas.read import parse_mapping
from helmsman.service.planner.answers.plan_answer import plan_answer
from helmsman.service.planner.questions.catalogue import Catalogue
from helmsman.service.planner.questions.planning import request_of

_CLIENTS = 4
_ALONE = 100
"""Fresh questions that are asked one after the other."""


def question(number: int) -> dict[str, Any]:
    """Return a question that no other number has."""
    base = {"model": "Qwen3-8B", "hardware": "rtx4060-laptop", "strategy": "layer-split"}
    return {**base, "prompt_tokens": 64 + number % 4000, "output_tokens": 64 + number // 4000}


async def _rate(port: int, seconds: float, numbers: Any) -> tuple[float, list[float]]:
    """Return answers a second and the seconds of each."""
    took, late = list[float](), [0]
    end = time.monotonic() + seconds

    async def again() -> None:
        client = Client(port)
        while time.monotonic() < end:
            begin = time.monotonic()
            reply = await client.ask("POST", "/v1/plans", question(next(numbers)))
            if reply.status == 202:
                late[0] += 1
                continue
            assert reply.status == 200, reply
            took.append(time.monotonic() - begin)
        client.close()

    begin = time.monotonic()
    await asyncio.gather(*(again() for _ in range(_CLIENTS)))
    if late[0]:
        print(f"{late[0]} answers took over a second, and became jobs")
    return len(took) / (time.monotonic() - begin), took


async def _alone(port: int, numbers: Any) -> tuple[float, float, float]:
    """Return median seconds of a fresh answer over HTTP, of the same in this process, and of a cached one."""
    client, catalogue = Client(port), Catalogue()
    over_http, here, cached = [], [], []
    for number in (next(numbers) for _ in range(_ALONE)):
        begin = time.perf_counter()
        read = parse_mapping(PlannerQuestion, question(number), "question", "{}", str)
        plan_answer(decide(request_of(read, catalogue))).to_json(indent=None)
        middle = time.perf_counter()
        await client.ask("POST", "/v1/plans", question(number))
        after = time.perf_counter()
        await client.ask("POST", "/v1/plans", question(number))
        cached.append(time.perf_counter() - after)
        over_http.append(after - middle)
        here.append(middle - begin)
    client.close()
    return statistics.median(over_http), statistics.median(here), statistics.median(cached)


def measure(seconds: float) -> None:
    """Print the rates."""
    with tempfile.TemporaryDirectory(prefix="helm-web-") as folder:
        server = WebServer(Path(folder), "-q", "--rate", "100000").wait()
        try:
            fresh = count()
            asyncio.run(_rate(server.port, 2.0, fresh))  # every process has loaded what it needs
            rate, took = asyncio.run(_rate(server.port, seconds, fresh))
            print(f"fresh layer-split plans: {rate:.1f}/s, {_CLIENTS} clients, {_quantiles(took)}")
            same = iter(lambda: 1, None)
            rate, took = asyncio.run(_rate(server.port, seconds, same))
            print(f"cached plans: {rate:.0f}/s, {_CLIENTS} clients, {_quantiles(took)}")
            over_http, here, cached = asyncio.run(_alone(server.port, fresh))
            print(
                f"one at a time: {1e3 * over_http:.2f} ms over HTTP, {1e3 * here:.2f} ms in a process, so the service "
                f"adds {1e3 * (over_http - here):.2f} ms; cached {1e3 * cached:.2f} ms"
            )
            print(f"MiB of its own: {server.resident()}")
        finally:
            print(f"ended within {server.stop():.2f} s")


def _quantiles(took: list[float]) -> str:
    return ", ".join(f"p{100 * share:g} {1e3 * quantile(took, share):.1f} ms" for share in (0.5, 0.99))
