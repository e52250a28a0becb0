"""Operation splits compute what the whole model on the CPU computes, wherever they cut a block."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from daily import one_in
from layer_machines import two_cpus
from op_plans import make_op_split_plan
from plans import make_plan
from shapes import small_model
from splits import make_frame

from helmsman.executor.engine import Engine
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.strategies.flexgen import FlexGen
from helmsman.planner.strategies.streaming.division import pieces
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

FAMILIES = ("qwen3", "llama", "opt")
IN_TURN = ("qwen3", "opt")
"""Every day one of these where many cases are alike; Llama is Qwen3 without norms of queries and keys, with a head of
its own: cuts of both are ordinary tests."""
TOLERANCE = 1e-4
PROMPT, OUTPUT = 8, 16
"""Contexts pass 16 tokens."""


def workload(batch: int = 1, batches: int = 1) -> Workload:
    return Workload(prompt_tokens=PROMPT, output_tokens=OUTPUT, batch=batch, batches=batches, context=PROMPT + OUTPUT)


def prompts(sequences: int) -> Any:
    return np.random.default_rng(7).integers(3, 500, (sequences, PROMPT), dtype=np.int32)


@pytest.fixture(scope="module")
def reference(checkpoints: Callable[[str], Path]) -> Callable[[str, int], tuple[Any, Any]]:
    """Tokens (sequences, OUTPUT) and their logits of the plan that runs everything on the CPU."""
    found: dict[tuple[str, int], tuple[Any, Any]] = {}

    def get(family: str, sequences: int) -> tuple[Any, Any]:
        key = family, sequences
        if key not in found:
            plan = make_plan(small_model(family), workload=workload(sequences))
            found[key] = outcome(checkpoints(family), plan, sequences)
        return found[key]

    return get


def outcome(checkpoint: Path, plan: Plan, sequences: int, **options: Any) -> tuple[Any, Any]:
    with Engine.load(plan, checkpoint, two_cpus(), **options) as engine:
        tokens = np.array(engine.generate(prompts(sequences), OUTPUT, ignore_eos=True).tokens)
        return tokens, engine.logits(prompts(sequences), prompt=PROMPT - 3)


def check(found: tuple[Any, Any], expected: tuple[Any, Any]) -> None:
    assert np.abs(found[1] - expected[1]).max() < TOLERANCE * np.abs(expected[1]).max()
    assert np.array_equal(found[0], expected[0])


def cuts(units: int) -> Iterator[tuple[int, int]]:
    """All on the host, all streamed, prefixes, suffixes, pieces from the middle."""
    yield from ((0, 0), (0, units), (4, units), (0, 4), (4, 7), (units - 2, units), (5, 6), (3, units - 1), (7, 8))


@pytest.mark.parametrize(
    ("family", "number"),
    one_in(
        2,
        [
            pytest.param(family, number, marks=pytest.mark.nightly if (number + row) % 3 == 2 else ())
            for row, family in enumerate(FAMILIES)
            for number in range(9)
        ],
    ),
)
def test_a_cut_makes_the_same_tokens(
    checkpoints: Callable[[str], Path], reference: Callable[[str, int], tuple[Any, Any]], family: str, number: int
) -> None:
    model = small_model(family)
    start, stop = list(cuts(len(pieces(model, {}))))[number]
    ends = ("host", "accelerator")[number % 2]
    plan = make_op_split_plan(model, start, stop, workload=workload(), ends=ends)
    check(outcome(checkpoints(family), plan, 1), reference(family, 1))


@pytest.mark.parametrize("host_attention", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_flexgen_makes_the_same_tokens_of_two_batches(
    checkpoints: Callable[[str], Path],
    reference: Callable[[str, int], tuple[Any, Any]],
    batch: int,
    host_attention: bool,
) -> None:
    """Layer by layer, values of both batches travel between the host's attention and the accelerator."""
    frame = make_frame(small_model("opt"), workload(batch, 2))
    plan = FlexGen(frame, False, host_attention, CostOptions()).decide({}).plan
    assert plan.schedule.order == "layer-major"
    check(outcome(checkpoints("opt"), plan, 2 * batch), reference("opt", 2 * batch))


@pytest.mark.parametrize("batches", [1, 2])
def test_a_token_alone_goes_on_where_caches_move(checkpoints: Callable[[str], Path], batches: int) -> None:
    """As a decode step, which brings what is cached; more tokens, or more than were cached, cannot."""
    model = small_model("llama")
    plan = make_op_split_plan(model, 3, len(pieces(model, {})), workload=workload(1, batches))
    with Engine.load(plan, checkpoints("llama"), two_cpus()) as engine:
        whole = engine.generate(prompts(batches), 12, ignore_eos=True).chosen
        last, past = whole[4:5].T, PROMPT + 4
        again = engine.generate(last, 7, past=past, ignore_eos=True)
        for tokens, before in ((prompts(batches), past), (last, PROMPT + 12)):
            with pytest.raises(UsageError, match="cannot continue here"):
                engine.generate(tokens, 2, past=before)
    assert np.array_equal(again.chosen, whole[5:]) and {each.phase for each in again.iterations} == {"decode"}


CHUNKS = {"q": 2, "scores": 2, "wv": 2, "o": 3, "up": 2, "down": 3}


@pytest.mark.parametrize(
    ("family", "cut"),
    [
        pytest.param(family, cut, marks=() if family == IN_TURN[number % 2] else pytest.mark.nightly)
        for family in FAMILIES
        for number, cut in enumerate(((1, 6), (6, 9), (3, 13), (9, 20), (0, 14), (13, 18)))
    ],
)
def test_chunks_make_the_same_tokens(
    checkpoints: Callable[[str], Path],
    reference: Callable[[str, int], tuple[Any, Any]],
    family: str,
    cut: tuple[int, int],
) -> None:
    model = small_model(family)
    start, stop = cut[0], min(cut[1], len(pieces(model, CHUNKS)))
    plan = make_op_split_plan(model, start, stop, CHUNKS, workload=workload())
    check(outcome(checkpoints(family), plan, 1), reference(family, 1))


@pytest.mark.parametrize(
    ("family", "batch", "batches", "cut"),
    [
        pytest.param(family, *shape, cut, marks=() if family == IN_TURN[(row + number) % 2] else pytest.mark.nightly)
        for family in FAMILIES
        for row, shape in enumerate(((3, 1), (2, 2)))
        for number, cut in enumerate(((4, 11), (0, 11), (6, 9)))
    ],
)
def test_batches_make_the_same_tokens(
    checkpoints: Callable[[str], Path],
    reference: Callable[[str, int], tuple[Any, Any]],
    family: str,
    batch: int,
    batches: int,
    cut: tuple[int, int],
) -> None:
    plan = make_op_split_plan(small_model(family), *cut, workload=workload(batch, batches))
    check(outcome(checkpoints(family), plan, batch * batches), reference(family, batch * batches))


@pytest.mark.parametrize(
    ("overlap", "prefetch", "batch", "batches", "cut"),
    one_in(
        2,
        [
            pytest.param(*ahead, *shape, cut, marks=() if (row + column + place) % 2 == 0 else pytest.mark.nightly)
            for row, ahead in enumerate((("none", 0), ("next-layer", 0), ("next-layer", 2)))
            for column, shape in enumerate(((1, 1), (2, 2), (1, 4)))
            for place, cut in enumerate(((2, 9), (0, 12)))
        ],
    ),
)
def test_schedules_make_the_same_tokens(
    checkpoints: Callable[[str], Path],
    reference: Callable[[str, int], tuple[Any, Any]],
    overlap: str,
    prefetch: int,
    batch: int,
    batches: int,
    cut: tuple[int, int],
) -> None:
    """Without overlap too, weights that came for one batch are there for the next."""
    work = workload(batch, batches)
    plan = make_op_split_plan(small_model("qwen3"), *cut, {"wv": 2}, workload=work, overlap=overlap, prefetch=prefetch)
    check(outcome(checkpoints("qwen3"), plan, batch * batches), reference("qwen3", batch * batches))


@pytest.mark.parametrize(("batch", "batches"), [(1, 1), (2, 2)])
@pytest.mark.parametrize("overlap", ["none", "next-layer"])
def test_prompts_in_chunks_make_the_same_tokens(
    checkpoints: Callable[[str], Path], batch: int, batches: int, overlap: str
) -> None:
    """More rows than pass at a time: every chunk finds all the weights of a block."""
    model, sequences = small_model("qwen3"), batch * batches
    long = np.random.default_rng(8).integers(3, 500, (sequences, 200), dtype=np.int32)
    work = Workload(prompt_tokens=200, output_tokens=8, batch=batch, batches=batches, context=208)
    plans = (
        make_plan(model, workload=work.model_copy(update={"batch": sequences, "batches": 1})),
        make_op_split_plan(model, 2, 9, workload=work, overlap=overlap, prefetch=int(overlap == "next-layer")),
    )
    found = []
    for plan in plans:
        with Engine.load(plan, checkpoints("qwen3"), two_cpus()) as engine:
            found.append(np.array(engine.generate(long, 8, ignore_eos=True).tokens))
    assert np.array_equal(*found)
