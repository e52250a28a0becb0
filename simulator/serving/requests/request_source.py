"""Who asks: requests of a file or made up, at other rates and of other lengths where a study wants them."""

from dataclasses import dataclass, replace

import numpy as np

from helmsman.schemas.requests import MAX_REQUESTS, Ints, Requests, make_requests, take_requests
from helmsman.simulator.serving.requests.arrivals import Arrivals, arrive, own_rate
from helmsman.simulator.serving.requests.closed_loop import NO_THINK, ThinkTime, by_users
from helmsman.simulator.serving.requests.read import read_requests
from helmsman.simulator.serving.requests.synthetic import PREFIX, Synthetic, make_synthetic, parse_synthetic


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of every prompt and output; None: as they are."""

    prompt: int | None = None
    output: int | None = None


AS_THEY_ARE = Lengths()


@dataclass(frozen=True, slots=True)
class Variation:
    """The values in which a run differs from its question; None: as the question has them.

    `rate`: requests a second; `lengths`: tokens; `users` of a closed loop; `count`: the number of requests, the first
    of a file."""

    rate: float | None = None
    lengths: Lengths = AS_THEY_ARE
    users: int | None = None
    count: int | None = None


AS_ASKED = Variation()


@dataclass(frozen=True, slots=True)
class RequestSource:
    """The requests of a file, or a description of some; `rate` and `arrivals` where they are not as they come, `users`
    and their think time where these send them."""

    source: Requests | Synthetic
    rate: float | None = None
    arrivals: Arrivals | None = None
    users: int | None = None
    think: ThinkTime = NO_THINK

    @property
    def drawn(self) -> bool:
        """Whether another seed gives other arrivals, think times or lengths."""
        if isinstance(self.source, Requests) and self.users is not None:
            return self.think.mean > 0.0
        if isinstance(self.source, Requests):
            return self.arrivals is not None or own_rate(self.source) is None
        return True

    @property
    def count(self) -> int:
        """The number of requests that the question has."""
        return len(self.source) if isinstance(self.source, Requests) else self.source.n

    @property
    def most(self) -> int:
        """The number of requests that there can be: those of a file are what they are."""
        return len(self.source) if isinstance(self.source, Requests) else MAX_REQUESTS

    def without_prefixes(self) -> "RequestSource":
        """Return the same, of which no two prompts are known to begin alike."""
        if isinstance(self.source, Synthetic):
            return self
        r = self.source
        return replace(
            self, source=make_requests(r.arrival_s, r.prompt_tokens, r.output_tokens, r.priority, r.cancel_s)
        )

    def requests(self, seed: int, variation: Variation = AS_ASKED) -> Requests:
        """Return the requests with a seed, as they come or as users send them. Raises UsageError."""
        users = self.users if variation.users is None else variation.users
        if users is None:
            return self._arriving(seed, variation)
        sent = replace(self, rate=None, arrivals=Arrivals("all-at-once"))._arriving(seed, replace(variation, rate=None))
        return by_users(sent, users, self.think, seed)

    def _arriving(self, seed: int, variation: Variation) -> Requests:
        lengths = variation.lengths
        wanted = self.rate if variation.rate is None else variation.rate
        if isinstance(self.source, Requests):
            first = _first(self.source, variation.count)
            return arrive(_with_lengths(first, lengths), wanted, self.arrivals, seed)
        synthetic = replace(
            self.source,
            n=variation.count or self.source.n,
            input=lengths.prompt or self.source.input,
            output=lengths.output or self.source.output,
            arrivals=self.arrivals or self.source.arrivals,
            rate=self.source.rate if wanted is None else wanted,
        )
        return make_synthetic(synthetic, seed)


def open_source(
    source: str,
    rate: float | None = None,
    arrivals: Arrivals | None = None,
    sort: bool = False,
    limit: int | None = None,
) -> RequestSource:
    """Return who asks, by a file's name or a `synthetic:` line; `limit`: the first so many only.

    Raises BadInputError, UsageError."""
    if source.startswith(PREFIX):
        described = parse_synthetic(source)
        return RequestSource(replace(described, n=min(described.n, limit or described.n)), rate, arrivals)
    return RequestSource(_first(read_requests(source, sort=sort), limit), rate, arrivals)


def _first(requests: Requests, count: int | None) -> Requests:
    if count is None or count >= len(requests):
        return requests
    return take_requests(requests, np.arange(count))


def _with_lengths(requests: Requests, lengths: Lengths) -> Requests:
    """Return the same arrivals, all of one length; other prompts have no known prefixes."""
    outputs = requests.output_tokens if lengths.output is None else _alike(requests, lengths.output)
    if lengths.prompt is None:
        return replace(requests, output_tokens=outputs)
    prompts = _alike(requests, lengths.prompt)
    return make_requests(requests.arrival_s, prompts, outputs, requests.priority, requests.cancel_s)


def _alike(requests: Requests, tokens: int) -> Ints:
    return np.full(len(requests), tokens, np.int64)
