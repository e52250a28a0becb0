"""Products of many tokens, which arithmetic binds: FLOP/s by tokens, and how fast inputs are brought into their form.

All numbers of tokens take turns, round by round, so that the core and the memory do the same for all of them meanwhile;
how fast these were is taken out (`rates_of`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import harmonic_mean, median
from typing import Any

from helmsman.executor._kernels import Buffer, Pool, packed_size
from helmsman.executor.devices.probe import PRODUCT
from helmsman.executor.profile.bench import MeasurementBuffers, linear_run
from helmsman.executor.profile.quality import VISITS, MeasuredPoint
from helmsman.executor.profile.samples import ProcessorSamples
from helmsman.planner.cost.device_rates import input_bytes
from helmsman.schemas.formats import Precision, StoredFormat

GEMM_SHAPE = PRODUCT
FEW_ROWS = (PRODUCT[0] // 16, PRODUCT[1])
"""A part of the rows takes the same inputs: what is not a sixteenth of a product's time is what these take."""
FEW_TOKENS = 32
"""The number of tokens up to which a product's bytes are a fifth of its time or more: plain reads beside these tell of
the memory."""
_SLOWEST = 3.0
"""The largest factor by which a slow core lengthens a product; the thread of a product beyond it was interrupted."""
_FASTEST = 1e13
"""bytes/s of inputs that take nothing."""

Step = tuple[str, list[MeasuredPoint[Any]]]
"""A step of a profile: its name, and the measurement points that share its buffers."""


@dataclass(frozen=True)
class Round:
    """Products that were taken in turn: seconds by tokens, with a matrix of GEMM_SHAPE and with one of FEW_ROWS;
    `read`: bytes/s of plain reads beside those of few tokens."""

    seconds: dict[int, tuple[float, float]]
    read: float


def prompt_step(
    pool: Pool,
    bench: MeasurementBuffers,
    product: tuple[StoredFormat, Precision],
    samples: ProcessorSamples,
    pairs: int,
    many: Sequence[int],
) -> Step:
    """Return the step that measures matrix products of each token count in `many`. `product`: the format of the weights
    and the precision of the activations."""
    fmt, rounding = product
    name = f"{fmt} prefill in {rounding}"
    rounds = -(-(pairs // 2 + 1) // VISITS)
    sizes = packed_size(fmt, *GEMM_SHAPE), packed_size(fmt, *FEW_ROWS)

    def more(before: list[Round]) -> list[Round]:
        weights, few = map(bench.matrices, sizes)
        return before + _in_turn(pool, bench, product, (weights, few), many, rounds)

    def keep(rounds: list[Round], share: float) -> None:
        samples.add_reads([one.read for one in rounds], share)
        for tokens, (flops, inputs) in rates_of(rounds, sizes, median(samples.read)).items():
            samples.gemm[fmt, rounding, tokens], samples.inputs[fmt, rounding, tokens] = flops, inputs
            samples.disturbed[f"gemm {rounding}", fmt, tokens] = share

    return name, [MeasuredPoint(name, lambda: more([]), keep, more=more)]


def _in_turn(
    pool: Pool,
    bench: MeasurementBuffers,
    product: tuple[StoredFormat, Precision],
    weights: tuple[list[Buffer], list[Buffer]],
    many: Sequence[int],
    rounds: int,
) -> list[Round]:
    """`rounds` rounds in which all numbers of tokens take turns, each once for its code and activations to come, and
    once to count; `weights`: of GEMM_SHAPE and of FEW_ROWS."""
    shapes = tuple(zip(weights, (GEMM_SHAPE, FEW_ROWS), strict=True))
    run = {tokens: [linear_run(pool, product, some, *shape, tokens) for some, shape in shapes] for tokens in many}
    few = [tokens for tokens in many if tokens <= FEW_TOKENS]

    def timed(some: Sequence[int]) -> dict[int, tuple[float, float]]:
        return {tokens: (run[tokens][0](2)[1], run[tokens][1](2)[1]) for tokens in some}

    timed_rounds = []
    for _ in range(rounds):
        before, waiting, after = bench.read(pool), timed(few), bench.read(pool)
        timed_rounds.append(Round({**waiting, **timed(many[len(few) :])}, harmonic_mean([before, after])))
    return timed_rounds


def rates_of(
    rounds: Sequence[Round], sizes: tuple[int, int], read: float
) -> dict[int, tuple[list[float], list[float]]]:
    """By tokens the FLOP/s of products less what their inputs take, and the bytes/s of these inputs; `sizes`: bytes of
    a matrix of GEMM_SHAPE and of one of FEW_ROWS.

    What a product's bytes take at the plain reads beside it moves with the memory, and is put at the bytes/s `read` of
    the whole profile; the rest moves with the core, of which the product with most tokens tells, and is put at the
    median of the rounds: a core's speed of arithmetic changes by a third and more within seconds, and by half in spells
    of some, a memory's by a tenth, and by a quarter in spells of minutes."""
    most, part = max(rounds[0].seconds), FEW_ROWS[0] / GEMM_SHAPE[0]
    fastest = min(one.seconds[most][0] for one in rounds)
    slower = [min(one.seconds[most][0] / fastest, _SLOWEST) for one in rounds]
    usual = median(slower)
    rates = {}
    for tokens in rounds[0].seconds:
        size, flops = input_bytes(tokens, GEMM_SHAPE[1]), 2.0 * tokens * GEMM_SHAPE[0] * GEMM_SHAPE[1]
        took = []
        for slow, one in zip(slower, rounds, strict=True):
            whole, few = (
                _restated(seconds, moved / one.read, one.read / read, usual / slow)
                for seconds, moved in zip(one.seconds[tokens], sizes, strict=True)
            )
            took.append((whole, few))
        taken = [max((few - part * whole) / (1 - part), size / _FASTEST) for whole, few in took]
        inputs = median(taken)
        rates[tokens] = (
            [flops / (whole - min(inputs, whole / 2)) for whole, _ in took],
            [size / seconds for seconds in taken],
        )
    return rates


def _restated(seconds: float, moving: float, memory: float, core: float) -> float:
    """Convert the `seconds` of a product to other speeds: the `moving` seconds in which its bytes are read take
    `memory` times as long, its arithmetic `core` times."""
    waited = min(moving, seconds)
    return memory * waited + core * (seconds - waited)
