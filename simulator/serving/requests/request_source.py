"""Who asks: requests of a file or made up, at other rates and of other lengths where a study wants them."""

from dataclasses import dataclass, replace

import numpy as np

from helmsman.schemas.requests import Ints, Requests, make_requests, take_requests
from helmsman.simulator.serving.requests.arrivals import Arrivals, arrive, own_rate
from helmsman.simulator.serving.requests.read import read_requests
from helmsman.simulator.serving.requests.synthetic import PREFIX, Synthetic, make_synthetic, parse_synthetic


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of every prompt and output; None: as they are."""

    prompt: int | None = None
    output: int | None = None


AS_THEY_ARE = Lengths()


@dataclass(frozen=True, slots=True)
class RequestSource:
    """The requests of a file, or a description of some; `rate` and `arrivals` where they are not as they come."""

    source: Requests | Synthetic
    rate: float | None = None
    arrivals: Arrivals | None = None

    @property
    def drawn(self) -> bool:
        """Whether another seed gives other requests."""
        if isinstance(self.source, Requests):
            return self.arrivals is not None or own_rate(self.source) is None
        return True

    def requests(self, seed: int, rate: float | None = None, lengths: Lengths = AS_THEY_ARE) -> Requests:
        """Return the requests with a seed, a rate and lengths of a study. Raises UsageError."""
        wanted = self.rate if rate is None else rate
        if isinstance(self.source, Requests):
            return arrive(_with_lengths(self.source, lengths), wanted, self.arrivals, seed)
        synthetic = replace(
            self.source,
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
    """Who asks, by a file's name or a `synthetic:` line; `limit`: the first so many only.

    Raises BadInputError, UsageError."""
    if source.startswith(PREFIX):
        described = parse_synthetic(source)
        return RequestSource(replace(described, n=min(described.n, limit or described.n)), rate, arrivals)
    requests = read_requests(source, sort=sort)
    return RequestSource(
        requests if limit is None else take_requests(requests, np.arange(min(limit, len(requests)))), rate, arrivals
    )


def _with_lengths(requests: Requests, lengths: Lengths) -> Requests:
    """Return the same arrivals, all of one length; other prompts have no known prefixes."""
    outputs = requests.output_tokens if lengths.output is None else _alike(requests, lengths.output)
    if lengths.prompt is None:
        return replace(requests, output_tokens=outputs)
    prompts = _alike(requests, lengths.prompt)
    return make_requests(requests.arrival_s, prompts, outputs, requests.priority, requests.cancel_s)


def _alike(requests: Requests, tokens: int) -> Ints:
    return np.full(len(requests), tokens, np.int64)
