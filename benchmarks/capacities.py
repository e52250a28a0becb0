"""Maximum rates within an SLO beside those of long runs, and what rates, users and replicas take to find.

    python -m benchmarks.capacities

Ten models on machines of the catalogue serve under `gpu-only` and `neo`, from 300 requests of 1,000 + 200 tokens. Rates
are those that `find_capacity` answers by itself, divided by the mean of five seeds with 20,000 requests under the same
policy. Seconds are those of this process on its processor, planning not counted."""

import time
from collections.abc import Callable, Iterator
from statistics import fmean

import helmsman
from helmsman.schemas.plan import Plan
from helmsman.schemas.serving import ServingCapacity, ServingCount

MACHINES = (
    ("Qwen3-8B", "rtx4090-7950x", "q8_0"),
    ("Qwen3-8B", "rtx4060-laptop", "q4_k"),
    ("Qwen3-14B", "rtx3090-5950x", "q4_k"),
    ("Qwen3-0.6B", "rtx4060-laptop", "f16"),
    ("Llama-3.1-8B", "a10g-g5.4xlarge", "f16"),
    ("Qwen3-32B", "rtx4090-7950x", "q4_k"),
    ("Llama-3.1-8B", "h100-hgx", "f16"),
    ("Qwen3-14B", "l40s-epyc7413", "q8_0"),
    ("Llama-3.1-8B", "rtx3060-5600x", "q4_k"),
    ("Qwen3-4B", "rtx3070-3700x", "q4_k"),
)
POLICIES = ("gpu-only", "neo")
SLO = "ttft=2s,tpot=100ms"
LONG, LONG_SEEDS = 20_000, 5
THINK, RATE = "10s", 20.0


def requests(count: int) -> str:
    """Return the line that describes as many requests."""
    return f"synthetic:n={count},input=1000,output=200"


def timed(ask: Callable[[], ServingCapacity | ServingCount]) -> tuple[ServingCapacity | ServingCount, float]:
    """Return an answer, and the seconds that it took this process on its processor."""
    begin = time.process_time()
    answer = ask()
    return answer, time.process_time() - begin


def plans() -> Iterator[tuple[str, Plan]]:
    """Yield the name of every machine with its model, and the plan that serves there."""
    for model, hardware, stored in MACHINES:
        question = {"model": model, "hardware": hardware, "format": stored, "strategy": "vllm"}
        yield f"{model} {stored} on {hardware}", helmsman.plan(question).plan


def rates(plan: Plan, policy: str) -> tuple[float, float, str]:
    """Return the rate over that of long runs, the seconds that it took, and what was simulated for it."""
    question = {"requests": requests(300), "policy": policy, "slo": SLO}
    answer, seconds = timed(lambda: helmsman.find_capacity(plan, question))
    long = helmsman.find_capacity(plan, {**question, "requests": requests(LONG)}, LONG_SEEDS)
    assert isinstance(answer, ServingCapacity)
    effort = f"{len(answer.seeds)} seeds of {answer.requests} requests, {'' if answer.converged else 'not '}converged"
    return answer.rate / long.rate, seconds, f"{answer.rate:8.4g}/s of {long.rate:8.4g}/s, {effort}"


def counts(plan: Plan, policy: str) -> float:
    """Return the seconds that the most users and the fewest replicas took, on average."""
    question = {"requests": requests(300), "policy": policy, "slo": SLO}
    _, users = timed(lambda: helmsman.find_users(plan, {**question, "think": THINK}))
    _, replicas = timed(lambda: helmsman.find_replicas(plan, {**question, "rate": RATE}))
    return fmean((users, replicas))


def main() -> None:
    """Ask all of them, and print each and the means."""
    ratios, seconds, others = [], [], []
    for name, plan in plans():
        for policy in POLICIES:
            ratio, spent, said = rates(plan, policy)
            ratios.append(ratio)
            seconds.append(spent)
            others.append(counts(plan, policy))
            print(f"{name:<36}{policy:<10}{ratio:6.3f}  {said}  {spent:.2f} s", flush=True)
    print(f"rate over that of long runs: mean {fmean(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")
    print(f"seconds of CPU: a rate {fmean(seconds):.2f}, users or replicas {fmean(others):.2f}")


if __name__ == "__main__":
    main()
