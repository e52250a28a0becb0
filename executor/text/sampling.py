"""Choosing the next token: greedy, or drawn from the distribution that temperature and cuts leave."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from helmsman.schemas.errors import UsageError

Logits = NDArray[np.float32]


_FIRST_CANDIDATES = 256
"""The number of likeliest tokens that are looked at first: sorting a whole vocabulary takes longer than a step of a
small model."""
_CANDIDATE_GROWTH = 16
"""The factor by which that number grows when these candidates are not enough."""


def _check(option: str, value: float, holds: bool, expected: str) -> None:
    if not isfinite(value) or not holds:
        raise UsageError("out of range", field=option, value=value, remedy=f"use {expected}")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen, in this order: `repetition_penalty` divides positive logits of tokens seen before and
    multiplies negative ones (CTRL); logits are divided by `temperature` (0: the largest is taken); then only the
    `top_k` largest (0: all) are left, then the fewest whose probabilities add up to `top_p`, then those of at least
    `min_p` times the largest. Raises UsageError for values that make no sense."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0 <= self.temperature <= 100, "0 (greedy) to 100")
        _check("top_k", self.top_k, 0 <= self.top_k <= 2**31 - 1, "0 (all tokens) or more")
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "a number above 0 and at most 1")
        _check("min_p", self.min_p, 0 <= self.min_p <= 1, "a number from 0 to 1")
        penalty = self.repetition_penalty
        _check("repetition_penalty", penalty, 0 < penalty <= 100, "a number above 0, at most 100; 1 changes nothing")

    @property
    def native(self) -> bool:
        """Whether it is what the native head does: the largest logit, whatever came before."""
        return self.temperature == 0 and self.repetition_penalty == 1


GREEDY = Sampling()


class Sampler:
    """The tokens of one sequence. The same seed and logits give the same tokens.

    `seen`: the tokens so far, which a repetition penalty looks at; every choice is added."""

    def __init__(self, sampling: Sampling, seed: int | Sequence[int], seen: Sequence[int] = ()) -> None:
        self.sampling = sampling
        self._random = np.random.Generator(np.random.PCG64DXSM(seed))
        self._seen = set(seen)

    def choose(self, logits: Logits, barred: Collection[int] = ()) -> int:
        """The next token, after f32 (vocab,) `logits`; none of those `barred`, before anything else is looked at."""
        scores = logits.astype(np.float64)
        scores[list(barred)] = -np.inf
        if self.sampling.repetition_penalty != 1 and self._seen:
            _penalise(scores, np.fromiter(self._seen, np.intp), self.sampling.repetition_penalty)
        token = int(scores.argmax()) if self.sampling.temperature == 0 else self._draw(scores)
        self._seen.add(token)
        return token

    def _draw(self, scores: NDArray[np.float64]) -> int:
        tokens, shares = distribution(scores, self.sampling)
        place = np.searchsorted(np.cumsum(shares), self._random.random() * shares.sum(), side="right")
        return int(tokens[min(int(place), len(tokens) - 1)])


def chooser(
    sampling: Sampling, seed: tuple[int, ...], tokens: NDArray[np.int32]
) -> Callable[[Logits], NDArray[np.int32]] | None:
    """Chooses the (sequences,) next tokens of f32 (sequences, vocab) logits, after prompts `tokens` (sequences, n).

    Every sequence draws for itself. None where the native head's choice is what is asked for."""
    if sampling.native:
        return None
    samplers = [Sampler(sampling, (*seed, row), prompt) for row, prompt in enumerate(tokens.tolist())]
    return lambda logits: np.array(
        [sampler.choose(row) for sampler, row in zip(samplers, logits, strict=True)], np.int32
    )


def distribution(scores: NDArray[np.float64], sampling: Sampling) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The tokens that are left, the most probable first and equal ones by id, and their shares, not yet of 1."""
    with np.errstate(over="ignore", under="ignore"):  # the least temperature leaves the largest alone
        weights = np.exp((scores - scores.max()) / sampling.temperature)
    total = weights.sum()
    count = min(sampling.top_k or len(weights), len(weights))
    if sampling.top_p < 1:
        tokens = _nucleus(weights, count, sampling.top_p, total)
    else:
        tokens = _largest(weights, count) if count < len(weights) else np.arange(len(weights))
    shares = weights[tokens]
    kept = shares >= sampling.min_p  # the largest weight is one
    return tokens[kept], shares[kept]


def _nucleus(weights: NDArray[np.float64], count: int, share: float, total: float) -> NDArray[np.intp]:
    """The fewest of the `count` largest that make `share` of their sum, which is `total` where all count."""
    tokens = _largest(weights, min(count, _FIRST_CANDIDATES))
    if count < len(weights):
        tokens = _largest(weights, count)
        total = weights[tokens].sum()
    while True:
        sums = np.cumsum(weights[tokens])
        needed = int(np.searchsorted(sums, share * total, side="left")) + 1
        if needed <= len(tokens) or len(tokens) == count:
            return tokens[:needed]
        tokens = _largest(weights, min(count, len(tokens) * _CANDIDATE_GROWTH))


def _largest(weights: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """The `count` largest in order; of equal ones those with lower ids."""
    if count < len(weights):
        least = np.partition(weights, -count)[-count]
        above, equal = np.flatnonzero(weights > least), np.flatnonzero(weights == least)
        tokens = np.sort(np.concatenate([above, equal[: count - len(above)]]))
    else:
        tokens = np.arange(len(weights))
    return tokens[np.argsort(-weights[tokens], kind="stable")]


def _penalise(scores: NDArray[np.float64], seen: NDArray[np.intp], penalty: float) -> None:
    scores[seen] = np.where(scores[seen] > 0, scores[seen] / penalty, scores[seen] * penalty)
