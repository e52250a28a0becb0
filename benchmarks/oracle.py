"""The reference that executors are held against: transformers, f32, eager attention, the same rounded weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, DynamicCache

from benchmarks.dequantised import dequantised
from helmsman.executor.graph.static_cache import cache_argument
from helmsman.schemas.formats import StoredFormat

Logits = NDArray[np.float32]
_ROWS = 64
"""Positions whose distributions are compared at a time: in f64, all of a long text would take gigabytes."""


@dataclass(frozen=True)
class Greedy:
    """A greedy continuation: its tokens, and for each the relative margin (top1 - top2) / max |logit|."""

    tokens: list[int]
    margins: list[float]


def load_oracle(directory: Path) -> Any:
    """The checkpoint in `directory` as a transformers model with f32 weights.

    From now on torch uses one thread: on a busy machine its threads wait for each other far longer than small
    products take."""
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    )
    return model.eval()


def oracle_logits(oracle: Any, tokens: list[int], cache: Any = None) -> Logits:
    """f32 (tokens, vocab): the logits after every token of one sequence."""
    kept = {} if cache is None else {cache_argument(oracle): cache}
    with torch.inference_mode():
        output = oracle(torch.tensor([tokens]), use_cache=cache is not None, **kept)
    return output.logits[0].float().numpy()


def oracle_greedy(oracle: Any, prompt: list[int], count: int) -> Greedy:
    """`count` greedy tokens after `prompt`."""
    cache, fed, found = DynamicCache(), prompt, Greedy([], [])
    for _ in range(count):
        last = oracle_logits(oracle, fed, cache)[-1:]
        fed = [int(last.argmax())]
        found.tokens.append(fed[0])
        found.margins.append(float(margins(last)[0]))
    return found


def margins(logits: Logits) -> NDArray[np.float32]:
    """(positions,): (top1 - top2) / max |logit|. Below twice a tolerance, the best token is not determined."""
    second, first = np.sort(np.partition(logits, -2, axis=-1)[:, -2:], axis=-1).T
    return (first - second) / np.abs(logits).max(axis=-1)


def divergences(reference: Logits, found: Logits) -> NDArray[np.float64]:
    """(positions,): KL(reference || found), in nats."""
    starts = range(0, len(reference), _ROWS)
    return np.concatenate([_kl(reference[at : at + _ROWS], found[at : at + _ROWS]) for at in starts])


def _kl(reference: Logits, found: Logits) -> NDArray[np.float64]:
    p = torch.log_softmax(torch.from_numpy(reference).double(), -1)
    q = torch.log_softmax(torch.from_numpy(found).double(), -1)
    return (p.exp() * (p - q)).sum(-1).numpy()


def mean_kl(reference: Logits, found: Logits) -> float:
    """Mean of `divergences` over positions."""
    return float(divergences(reference, found).mean())


def keep_in(oracle: Any, fmt: StoredFormat) -> None:
    """Put every matrix of the oracle through `fmt`; a tied head is the embedding's."""
    for weight in oracle.parameters():
        weight.data = torch.from_numpy(dequantised(fmt, weight.detach().numpy()))


class RoundedCache(DynamicCache):
    """A KV cache that stores what it is given in `dtype`."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> Any:
        rounded = (states.to(self.dtype).to(states.dtype) for states in (key_states, value_states))
        return super().update(*rounded, *args, **kwargs)
