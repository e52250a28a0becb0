"""Choosing tokens: the distributions of transformers' own processors, and the same tokens for the same seed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from plans import make_plan
from shapes import small_model
from tokenizers import Tokenizer
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from two_cpus import TWO_CPUS

from helmsman.executor.checkpoint.tokenizer import byte_ids, tokenizer_json
from helmsman.executor.engine import Engine
from helmsman.executor.measuring.measure import Request, run_once
from helmsman.executor.system.machine import Machine
from helmsman.executor.text.sampling import Sampler, Sampling, chooser, distribution
from helmsman.executor.text.stopping import StoppedStream, before_stop
from helmsman.executor.text.tokenizer import Text, TextStream
from helmsman.schemas.errors import UsageError
from helmsman.schemas.workload import Workload


def logits(size: int = 5_000, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 3, size).astype(np.float32)


def shares(sampling: Sampling, scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of every token of the vocabulary."""
    tokens, weights = distribution(scores.astype(np.float64), sampling)
    found = np.zeros(len(scores))
    found[tokens] = weights / weights.sum()
    return found


def reference(sampling: Sampling, scores: NDArray[np.float32], seen: list[int]) -> NDArray[np.float64]:
    steps = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty)])
    steps.append(TemperatureLogitsWarper(sampling.temperature))
    steps.append(TopKLogitsWarper(sampling.top_k or len(scores)))
    steps.append(TopPLogitsWarper(sampling.top_p))
    steps.append(MinPLogitsWarper(sampling.min_p))
    made = steps(torch.tensor([seen]), torch.from_numpy(scores.astype(np.float64))[None])
    return torch.softmax(made, dim=-1)[0].numpy()


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(1.0),
        Sampling(0.7, top_k=40),
        Sampling(1.3, top_p=0.9),
        Sampling(2.5, top_p=0.999),  # thousands of tokens
        Sampling(0.8, top_k=300, top_p=0.95, min_p=0.05),
        Sampling(5.0, min_p=0.2),
        Sampling(0.01, top_p=0.5),
        Sampling(1.0, top_k=1),
    ],
)
def test_what_is_left_is_what_transformers_leaves(sampling: Sampling) -> None:
    for seed in range(3):
        scores = logits(seed=seed)
        np.testing.assert_allclose(shares(sampling, scores), reference(sampling, scores, [0]), atol=1e-12)


def test_of_equal_tokens_the_lower_ids_are_left() -> None:
    scores = np.zeros(1_000)
    assert distribution(scores, Sampling(1.0, top_k=5))[0].tolist() == [0, 1, 2, 3, 4]
    assert distribution(scores, Sampling(1.0, top_p=0.4))[0].tolist() == list(range(400))


def test_tokens_are_drawn_as_often_as_they_should_be() -> None:
    scores, sampling = logits(30), Sampling(1.2, top_k=8)
    sampler, expected = Sampler(sampling, 7), shares(sampling, scores)
    drawn = np.bincount([sampler.choose(scores) for _ in range(4_000)], minlength=30)
    assert not drawn[expected == 0].any()
    kept = expected > 0
    chi = ((drawn[kept] - 4_000 * expected[kept]) ** 2 / (4_000 * expected[kept])).sum()
    assert chi < 24.3  # seven degrees of freedom: one in a thousand


def test_a_seed_decides() -> None:
    many = [logits(seed=step) for step in range(40)]
    made = [[Sampler(Sampling(1.0), seed).choose(each) for each in many] for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
    prompts = np.array([[1, 2], [1, 2]], np.int32)
    choose = chooser(Sampling(1.0), (1,), prompts)
    assert choose is not None
    rows = np.array([choose(np.stack([each, each])) for each in many])
    assert (rows[:, 0] != rows[:, 1]).any()  # sequences of a batch draw for themselves


def test_a_repetition_penalty_counts_what_was_seen_and_chosen() -> None:
    scores = np.array([2.0, 1.9, -1.0, -3.0], np.float32)
    sampler = Sampler(Sampling(repetition_penalty=2.0), 0, seen=[3])
    assert [sampler.choose(scores) for _ in range(3)] == [0, 1, 0]
    sampling = Sampling(1.0, repetition_penalty=1.7)
    assert Sampling().native and not sampling.native and not Sampling(0.5).native
    found = [Sampler(sampling, seed, seen=[0, 2]).choose(scores) for seed in range(3_000)]
    expected = reference(sampling, scores, [0, 2])
    assert np.abs(np.bincount(found, minlength=4) / 3_000 - expected).max() < 0.03


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"min_p": -0.5}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
    ],
)
def test_values_that_make_no_sense(changes: dict[str, float], field: str) -> None:
    with pytest.raises(UsageError, match="out of range") as error:
        Sampling(**changes)  # type: ignore[arg-type]
    assert error.value.field == field and error.value.remedy


MODEL = small_model("llama")


@pytest.fixture(scope="module")
def text() -> Text:
    return Text(Tokenizer.from_str(tokenizer_json(MODEL)))


def pushed(text: Text, written: str, stops: list[str]) -> tuple[list[str], StoppedStream]:
    stream = StoppedStream(text, stops)
    ids = byte_ids(MODEL)
    return [stream.push(ids[byte]) for byte in written.encode()], stream


def test_the_beginning_of_a_stop_is_held_back(text: Text) -> None:
    shown, stream = pushed(text, "ab<e<end>more", ["<end>"])
    assert shown[:9] == ["a", "b", "", "", "<e", "", "", "", ""] and stream.ended
    assert "".join(shown) == "ab<e" and stream.rest() == ""
    shown, stream = pushed(text, "ab<en", ["<end>"])
    assert "".join(shown) == "ab" and not stream.ended and stream.rest() == "<en"


@pytest.mark.parametrize("token", [0xFF, 300])
def test_tokens_that_never_become_text_are_not_decoded_for_ever(text: Text, token: int) -> None:
    """300 is past the end of this vocabulary, and has no text; so have special tokens."""
    decoded: list[int] = []

    class Counting(Text):
        def decode(self, tokens: Sequence[int]) -> str:
            decoded.append(len(tokens))
            return text.decode(tokens)

    stream = TextStream(Counting(Tokenizer.from_str(tokenizer_json(MODEL))))
    shown = "".join(stream.push(token) for _ in range(100))
    assert max(decoded) < 20 and shown == ("\N{REPLACEMENT CHARACTER}" * len(shown) if token == 0xFF else "")
    assert stream.push(byte_ids(MODEL)[ord("a")]).endswith("a")


@pytest.mark.parametrize("seed", range(5))
def test_a_stream_shows_what_decoding_all_at_once_does(text: Text, seed: int) -> None:
    """Characters of one to four bytes between bytes that are none, up to where more might follow."""
    random, ids = Random(seed), byte_ids(MODEL)
    parts = ["a", "\u00e9", "\u20ac", "\U0001f680", "\N{REPLACEMENT CHARACTER}"]
    written = b"".join(random.choice([part.encode() for part in parts] + [b"\xff"]) for _ in range(60)) + b"a"
    stream = TextStream(text)
    shown = "".join(stream.push(ids[byte]) for byte in written)
    assert shown == text.decode([ids[byte] for byte in written])


def test_the_first_of_several_stops_ends(text: Text) -> None:
    shown, stream = pushed(text, "one two three", ["three", "wo"])
    assert "".join(shown) == "one t" and stream.ended
    assert before_stop("one two", ["x"]) == "one two"


@TWO_CPUS
def test_runs_are_sampled_by_seed_and_end_at_stops(checkpoints: Callable[[str], Path], text: Text) -> None:
    prompt = np.array([[5, 6, 7, 8], [9, 10, 11, 12]], np.int32)
    plan = make_plan(MODEL, 2, workload=Workload(prompt_tokens=4, output_tokens=12, context=32, batch=2))
    with Engine.load(plan, checkpoints("llama"), Machine.this()) as engine:

        def made(sampling: Sampling, seed: int = 0, **changes: object) -> tuple[tuple[int, ...], ...]:
            request = Request(prompt, 12, True, sampling, seed, **changes)  # type: ignore[arg-type]
            return run_once(engine, request, lambda _: None).tokens

        greedy = made(Sampling())
        assert made(Sampling(1e-3)) == made(Sampling(1.0, top_k=1)) == greedy
        first = made(Sampling(1.5), 3)
        assert made(Sampling(1.5), 3) == first and made(Sampling(1.5), 4) != first != greedy
        # The logits that are drawn from are those of the tokens that were drawn before.
        fed = np.concatenate([prompt, np.array(first, np.int32)], axis=1)
        after, choose = engine.logits(fed, 4), chooser(Sampling(1.5), (3,), prompt)
        assert choose is not None
        assert [choose(after[:, step]).tolist() for step in range(12)] == np.array(first).T.tolist()
        whole = [text.decode(sequence) for sequence in greedy]
        stop = whole[0][3:5]
        stopped = made(Sampling(), text=text, stops=(stop,))
        assert len(stopped[0]) < 12 and text.decode(stopped[0]).endswith(stop)
        assert stopped[0] == greedy[0][: len(stopped[0])]
        assert len(stopped[1]) == 12 or stop in whole[1]


@pytest.mark.parametrize("temperature", [5e-324, 1e-310, 1e-30])
def test_the_least_temperatures_take_the_largest_without_a_word(temperature: float) -> None:
    """Quotients by them are infinite; numpy's warnings are errors here."""
    scores = logits(100)
    for more in ({}, {"top_p": 0.5}, {"top_k": 5}):
        assert Sampler(Sampling(temperature=temperature, **more), 3).choose(scores) == int(scores.argmax())
