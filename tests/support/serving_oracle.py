"""Serving on the accelerator alone, one iteration at a time, everything looked up anew: the oracle of what is fast.

Continuous batching with chunked prefill, first come first served; who finds no block drives out the last of all, whose
cache is computed again, and who waits with a better priority drives out those of worse ones where that makes room."""

from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
from iteration_times import gpu_only_seconds

from helmsman.scheduler.cost import IterationCost, Line
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.pass_work import PassWork
from helmsman.schemas.requests import Requests
from helmsman.schemas.served_table import CANCELLED, FINISHED, REJECTED, Gaps, ServedInfo, ServedTable

INFO = ServedInfo(source="simulated", policy="gpu-only", requests="test")


@dataclass(eq=False)
class Asked:
    """One request and what became of it."""

    number: int
    arrival: float
    prompt: int
    output: int
    priority: int = 0
    cancel: float = np.inf
    to_cache: int = 0
    cached: int = 0
    tokens: list[float] = field(default_factory=list)
    started: float = np.nan
    finish: float = np.nan
    status: int = FINISHED
    preemptions: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        return self.priority, self.number

    @property
    def decodes(self) -> bool:
        return self.cached >= self.to_cache


@dataclass
class Replica:
    """Who waits, who runs, and the clock."""

    cost: IterationCost
    limits: Limits
    now: float = 0.0
    waiting: list[Asked] = field(default_factory=list)
    running: list[Asked] = field(default_factory=list)

    def add(self, each: Asked) -> None:
        each.to_cache = each.prompt
        blocks = self.limits.blocks(each.prompt + each.output - 1)
        if each.prompt + each.output > self.limits.context or blocks > self.limits.gpu_tokens // self.limits.block:
            each.status = REJECTED
        else:
            self.waiting.append(each)

    def free(self, tokens: dict[int, int]) -> int:
        """Blocks left when those that run hold so many tokens."""
        held = sum(self.limits.blocks(tokens.get(each.number, each.cached)) for each in self.running)
        return self.limits.gpu_tokens // self.limits.block - held

    def drive_out(self, victim: Asked) -> None:
        self.running.remove(victim)
        victim.to_cache, victim.cached = victim.prompt + len(victim.tokens), 0
        victim.preemptions += 1
        self.waiting.append(victim)

    def run(self) -> None:
        """One iteration."""
        self.running.sort(key=lambda each: each.rank)
        came = list(self.waiting)
        budget = min(self.limits.chunk or self.limits.batch_tokens, self.limits.batch_tokens)
        self.make_way(budget)
        waiting = list(takewhile(lambda each: each in came, sorted(self.waiting, key=lambda each: each.rank)))
        crowded = False
        while self.free(self.grown()) < 0:
            self.drive_out(self.running[-1])
            crowded = True
        while (first := next((each for each in self.running if not each.decodes), None)) is not None:
            count = min(budget - len(self.grown()), first.to_cache - first.cached)
            if count <= 0 or self.free({**self.grown(), first.number: first.cached + count}) >= 0:
                break
            if self.running[-1] is first or any(each.priority < first.priority for each in waiting):
                break
            self.drive_out(self.running[-1])
            crowded = True
        self.finish_pass(*self.chunks(budget, [] if crowded else waiting))

    def make_way(self, budget: int) -> None:
        """The last of worse priority leaves, until the first that waits may begin."""
        if not self.waiting:
            return
        first = min(self.waiting, key=lambda each: each.rank)
        while worse := [each for each in self.running if each.priority > first.priority]:
            least = self.free({each.number: 0 for each in worse})
            if least < self.limits.blocks(first.to_cache) or self.may_begin(first, budget):
                return
            self.drive_out(worse[-1])

    def may_begin(self, first: Asked, budget: int) -> bool:
        """After decodes and the prompts that go before it; without tokens left it waits whoever leaves."""
        tokens = self.grown()
        room = budget - len(tokens)
        for each in self.running:
            if not each.decodes and each.priority <= first.priority:
                count = min(room, each.to_cache - each.cached)
                tokens[each.number], room = each.cached + count, room - count
        places = len(self.running) < self.limits.sequences
        return room <= 0 or (places and self.free(tokens) >= self.limits.blocks(min(room, first.to_cache)))

    def grown(self) -> dict[int, int]:
        """Tokens cached by those that decode once they have one more."""
        return {each.number: each.cached + 1 for each in self.running if each.decodes}

    def chunks(self, budget: int, waiting: list[Asked]) -> tuple[list[Asked], dict[int, int]]:
        """Who decodes, and how many tokens of whose prompts are computed; `waiting`: in order, those who may begin."""
        decodes, tokens = [each for each in self.running if each.decodes], self.grown()
        room, chunks, begun = budget - len(decodes), {}, [each for each in self.running if not each.decodes]
        for each in sorted([*begun, *waiting], key=lambda each: (each.priority, each in waiting, each.number)):
            count, begins = min(room, each.to_cache - each.cached), each not in begun
            cut = self.limits.chunk == 0 and count < each.to_cache and bool(chunks)
            refused = begins and (not waiting or cut or len(self.running) >= self.limits.sequences)
            held = {**tokens, each.number: each.cached + count}
            new = self.limits.blocks(count) if begins else 0
            if refused or count <= 0 or self.free(held) < new:
                if not begins:
                    break
                waiting = []
                continue
            if begins:
                self.waiting.remove(each)
                self.running.append(each)
            tokens[each.number], chunks[each.number], room = each.cached + count, count, room - count
        return decodes, chunks

    def finish_pass(self, decodes: list[Asked], chunks: dict[int, int]) -> None:
        prompts = [each for each in self.running if each.number in chunks]
        for each in (*decodes, *prompts):
            each.started = self.now if np.isnan(each.started) else each.started
        done = [each for each in prompts if each.cached + chunks[each.number] == each.to_cache]
        self.now += gpu_only_seconds(
            self.cost,
            PassWork(
                tokens=len(decodes) + sum(chunks.values()),
                outputs=len(decodes) + len(done),
                gpu_requests=len(decodes),
                gpu_kv=sum(each.cached + 1 for each in decodes),
                pairs=sum(
                    chunks[e.number] * e.cached + chunks[e.number] * (chunks[e.number] + 1) // 2 for e in prompts
                ),
                prompt_kv=sum(each.cached + chunks[each.number] for each in prompts),
            ),
        )
        for each in prompts:
            each.cached += chunks[each.number]
        for each in (*decodes, *done):
            each.cached += each in decodes
            each.to_cache = each.cached
            each.tokens.append(self.now)
            if len(each.tokens) == each.output:
                each.finish = self.now
                self.running.remove(each)

    def leave(self) -> None:
        """Who is not waited for any longer."""
        for each in [each for each in (*self.waiting, *self.running) if each.cancel <= self.now]:
            each.status, each.finish = CANCELLED, each.cancel
            (self.waiting if each in self.waiting else self.running).remove(each)


def rows_of(requests: Requests) -> list[Asked]:
    columns = (requests.arrival_s, requests.prompt_tokens, requests.output_tokens, requests.priority, requests.cancel_s)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Asked(number, *row) for number, row in enumerate(rows)]


def serve(requests: Requests, cost: IterationCost, limits: Limits) -> ServedTable:
    """All requests on one replica."""
    asked = rows_of(requests)
    replica, left = Replica(cost, limits), list(asked)
    while left or replica.waiting or replica.running:
        while left and left[0].arrival <= replica.now:
            replica.add(left.pop(0))
        replica.leave()
        if replica.waiting or replica.running:
            replica.run()
        elif left:
            replica.now = left[0].arrival
    return table(requests, asked)


def serve_users(requests: Requests, cost: IterationCost, limits: Limits) -> ServedTable:
    """All requests of a closed loop on one replica: whoever is next to send takes the next row."""
    asked, think = rows_of(requests), requests.think_s.tolist()
    replica, left, sends = Replica(cost, limits), list(asked), sorted(requests.starts_s.tolist())

    def over(before: list[Asked]) -> list[float]:
        """When those who were there and are no longer send the next."""
        gone = [each for each in before if each not in replica.waiting and each not in replica.running]
        return [replica.now + think[each.number] for each in gone]

    while left or replica.waiting or replica.running:
        while left and sends and sends[0] <= replica.now:
            sent = left.pop(0)
            sent.arrival = sends.pop(0)
            sent.cancel += sent.arrival
            replica.add(sent)
            if sent.status == REJECTED:
                sends = sorted([*sends, sent.arrival + think[sent.number]])
        there = [*replica.waiting, *replica.running]
        replica.leave()
        if not (gone := over(there)):
            if there:
                replica.run()
            elif left:
                replica.now = sends[0]
            gone = over(there)
        sends = sorted([*sends, *gone])
    return table(requests, asked)


def table(requests: Requests, asked: list[Asked]) -> ServedTable:
    """What became of all requests, with each one's own gaps."""
    gaps = [np.diff(each.tokens) for each in asked]
    values, count = np.concatenate([np.zeros(0), *gaps]), len(asked)
    ones = np.ones(len(values), np.int64)
    start = np.concatenate([[0], np.cumsum([len(each) for each in gaps])]).astype(np.int64)

    def column(name: str) -> np.ndarray:
        return np.array([getattr(each, name) for each in asked])

    return ServedTable(
        INFO,
        request=np.arange(count),
        arrival_s=column("arrival"),
        started_s=column("started"),
        first_token_s=np.array([each.tokens[0] if each.tokens else np.nan for each in asked]),
        finish_s=column("finish"),
        prompt_tokens=requests.prompt_tokens,
        output_tokens=requests.output_tokens,
        produced=np.array([len(each.tokens) for each in asked]),
        status=column("status"),
        cpu_tokens=np.zeros(count, np.int64),
        preemptions=column("preemptions"),
        reused_tokens=np.zeros(count, np.int64),
        replica=np.zeros(count, np.int64),
        gaps=Gaps(start, values, 0.0 * values, ones, ones, ones == 0),
    )


def flat(seconds: float) -> Line:
    return Line((0.0,), (seconds,))


def simple_cost(pass_s: float = 0.01, token_s: float = 0.0, kv_s: float = 0.0, layers: int = 1) -> IterationCost:
    """A pass takes `pass_s` for up to one token, `token_s` for each more, and `kv_s` for every cached token read."""
    none, far = flat(0.0), 1e6
    linear = Line((1.0, far), (pass_s / layers, (pass_s + token_s * (far - 1)) / layers))
    reads = Line((0.0, far), (0.0, kv_s * far / layers))
    return IterationCost(layers, linear, reads, none, none, none, 0.0, none, none, none, none, none)
