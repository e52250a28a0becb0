"""NEO's steps 4 and 5 against the same written down plainly: everything priced anew for every request."""

from dataclasses import replace
from random import Random

import pytest
from hybrid_cases import random_cost
from iteration_times import cpu_attention, prefill_attention, transfers
from together import together

from helmsman.scheduler import _scheduling
from helmsman.scheduler.cost import IterationCost
from helmsman.scheduler.pass_work import PassWork

Halves = tuple[PassWork, PassWork]


def _with(work: PassWork, cached: int) -> PassWork:
    return replace(work, tokens=work.tokens + 1, cpu_requests=work.cpu_requests + 1, cpu_kv=work.cpu_kv + cached + 1)


def _hiding(cost: IterationCost, halves: Halves) -> tuple[float, float]:
    first, second = halves
    attention = cost.gpu_attention(first.gpu_kv) + prefill_attention(cost, first)
    return cost.linear(second.tokens) + attention, cost.linear(first.tokens)


def _host(cost: IterationCost, halves: Halves) -> tuple[float, float]:
    one, other = (transfers(cost, work) + cpu_attention(cost, work) for work in halves)
    return one, other


def _hidden(cost: IterationCost, halves: Halves) -> bool:
    return all(host <= hiding for host, hiding in zip(_host(cost, halves), _hiding(cost, halves), strict=True))


def _scan(cost: IterationCost, first: PassWork, cached: list[int]) -> tuple[list[int], Halves]:
    """Step 4: each in the half that has more seconds left, else in the other, else in none."""
    halves, taken = (first, PassWork()), []
    for each in cached:
        left = [h - c for h, c in zip(_hiding(cost, halves), _host(cost, halves), strict=True)]
        order = (0, 1) if left[0] > left[1] else (1, 0)
        found = -1
        for half in order:
            grown = tuple(_with(work, each) if half == i else work for i, work in enumerate(halves))
            # What a decode adds to its own half's linear stage hides nothing of it.
            if _host(cost, (grown[0], grown[1]))[half] <= _hiding(cost, halves)[half]:
                halves, found = (grown[0], grown[1]), half
                break
        taken.append(found)
    return taken, halves


def _prompt(tokens: int) -> PassWork:
    return PassWork(tokens=tokens, outputs=1, pairs=tokens * (tokens + 1) // 2, prompt_kv=tokens, swap_out=tokens)


def _sum(works: list[PassWork]) -> PassWork:
    names = PassWork.__dataclass_fields__
    return PassWork(**{name: sum(getattr(work, name) for work in works) for name in names})


def _fewest(cost: IterationCost, halves: Halves, prompts: list[PassWork], tokens: int) -> int:
    """Step 5: prompts leave from the last one on while both halves stay hidden and `tokens` are left."""
    first, kept = halves[0], len(prompts)
    while kept:
        less = replace(
            first,
            **{name: getattr(first, name) - getattr(prompts[kept - 1], name) for name in PassWork.__dataclass_fields__},
        )
        if less.tokens < tokens or not _hidden(cost, (less, halves[1])):
            break
        first, kept = less, kept - 1
    return kept


@together("seed", range(60))
def test_steps_4_and_5(seed: int) -> None:
    chance = Random(seed)
    cost = random_cost(chance)
    prompts = [_prompt(chance.randint(5, 800)) for _ in range(chance.choice([0, 1, 4]))]
    decodes = chance.randint(1, 60)
    alone = PassWork(tokens=decodes, outputs=decodes, gpu_kv=decodes * chance.randint(10, 900))
    first, cached = _sum([alone, *prompts]), [chance.randint(5, 900) for _ in range(chance.choice([0, 3, 40]))]
    taken, kept, hiding, host = _scheduling.fill_halves(cost, first, cached, prompts, 128)
    expected, halves = _scan(cost, first, cached)
    assert taken == expected
    assert kept == _fewest(cost, halves, prompts, 128)
    assert all(one <= other for one, other in zip(host, hiding, strict=True))
    assert host == pytest.approx(_host(cost, halves))


def test_nobody_is_hidden_behind_nothing() -> None:
    cost = random_cost(Random(1))
    assert _scheduling.fill_halves(cost, PassWork(), [10, 20], [], 0)[0] == [-1, -1]


def test_a_share_leaves_the_host_that_much_less() -> None:
    cost = random_cost(Random(2))
    first, cached = PassWork(tokens=40, outputs=40, gpu_kv=9000), [50] * 400
    counts = [
        len([half for half in _scheduling.fill_halves(cost, first, cached, [], 0, share)[0] if half >= 0])
        for share in (1.0, 0.5, 0.1)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]
