"""Prices and sizes the units of layer splits: the embedding, the blocks of every layout, and the output."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from helmsman.lowering.buffers import chunk_tokens
from helmsman.lowering.graph import CACHED, Task
from helmsman.lowering.pass_shape import SizedPass
from helmsman.lowering.stages import last_ops
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors, embedding_tensors, output_tensors
from helmsman.planner.cost.model import CostModel, work_of
from helmsman.planner.memory.cache_bytes import kv_block_bytes, state_block_bytes, whole_cache_bytes
from helmsman.planner.prediction.pass_figures import LoweredPass, works_seconds
from helmsman.planner.tensor_formats import Formats, size_in
from helmsman.schemas.formats import KvFormat, StoredFormat
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload
from helmsman.timing.works import Works, alike


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Seconds of each unit as priced in one placement; `blocks`: by the letter of their layout; `crossing`: hidden
    state over, token back; `between`: hand-overs and joins between tasks, and what passes before the first
    (`timing.handovers`)."""

    embedding: float
    blocks: Mapping[str, float]
    output: float
    crossing: float
    between: float

    def of(self, pattern: str) -> float:
        """Return the seconds of blocks of these letters."""
        return sum(pattern.count(letter) * self.blocks[letter] for letter in dict.fromkeys(pattern))

    def total(self, pattern: str) -> float:
        """Return the seconds of a single-device pass over blocks of these letters."""
        return self.embedding + self.of(pattern) + self.output + self.between

    def firsts(self, pattern: str) -> list[float]:
        """Return the seconds of the first 0, 1, ... blocks of these letters."""
        sums = [0.0] * (len(pattern) + 1)
        for letter in dict.fromkeys(pattern):
            counts = accumulate([other == letter for other in pattern], initial=0)
            sums = [seconds + count * self.blocks[letter] for seconds, count in zip(sums, counts, strict=True)]
        return sums


@dataclass(frozen=True, slots=True)
class UnitSizes:
    """Bytes of each unit; `tied`: the part of `output` that the embedding already holds in one memory; `block_sums`,
    `cache_sums`, `away_sums`, `state_sums`: of the first 0, 1, ... blocks, their weights, keys and values in the memory
    where they are read and in another one, and states."""

    embedding: int
    output: int
    tied: int
    block_sums: tuple[int, ...]
    cache_sums: tuple[int, ...]
    away_sums: tuple[int, ...]
    state_sums: tuple[int, ...]
    largest_cache: int

    @property
    def weights(self) -> int:
        """Return bytes of all weights in one memory."""
        return self.embedding + self.block_sums[-1] + self.output - self.tied

    def blocks(self, start: int, stop: int) -> int:
        """Return bytes of the weights of blocks start <= b < stop."""
        return self.block_sums[stop] - self.block_sums[start]

    def caches(self, start: int, stop: int) -> int:
        """Return bytes of the keys and values of blocks start <= b < stop, in the memory where they are read."""
        return self.cache_sums[stop] - self.cache_sums[start]

    def caches_away(self, start: int, stop: int) -> int:
        """Return bytes of the keys and values of blocks start <= b < stop, in another memory."""
        return self.away_sums[stop] - self.away_sums[start]

    def states(self, start: int, stop: int) -> int:
        """Return bytes of the states of blocks start <= b < stop."""
        return self.state_sums[stop] - self.state_sums[start]

    def output_alone(self, with_embedding: bool) -> int:
        """The output unit; a tied head shares the embedding's bytes only in one memory (E-HELM-05)."""
        return self.output - self.tied if with_embedding else self.output


def divided_seconds(host: UnitCosts, accelerator: UnitCosts, pattern: str) -> list[float]:
    """Return the seconds of the divided passes over blocks of these letters: with the embedding alone on the host, with
    the first block too, ..., with all blocks; devices' prices are those of passes in which either has all blocks."""
    blocks = len(pattern)
    here, there = host.firsts(pattern), accelerator.firsts(pattern[::-1])
    between = [accelerator.between] * blocks + [host.between]
    return [
        (host.embedding + here[count])
        + (there[blocks - count] + accelerator.output)
        + accelerator.crossing
        + between[count]
        for count in range(blocks + 1)
    ]


def unit_sizes(
    model: Model, workload: Workload, weights: StoredFormat, kv: KvFormat, formats: Formats | None = None
) -> UnitSizes:
    """Return bytes of the embedding, the blocks, the output unit, and what blocks keep of sequences; `formats`: of
    tensors that are not kept in that of the other weights."""
    own = formats or {}

    def size(of: Iterable[Tensor]) -> int:
        return sum(size_in(tensor, own, weights) for tensor in of)

    output = output_tensors(model)
    first = {letter: model.pattern.index(letter) for letter in dict.fromkeys(model.pattern)}
    blocks = {letter: size(block_tensors(model, layer)) for letter, layer in first.items()}
    passing = chunk_tokens(workload.batch)
    caches = {letter: kv_block_bytes(model, workload, kv, layer, passing) for letter, layer in first.items()}
    away = {letter: whole_cache_bytes(model, workload, kv, layer) for letter, layer in first.items()}
    states = {letter: state_block_bytes(model, workload, layer) for letter, layer in first.items()}

    def sums(of: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(accumulate((of[letter] for letter in model.pattern), initial=0))

    return UnitSizes(
        embedding=size(embedding_tensors(model)),
        output=size(output),
        tied=size(tensor for tensor in output if tensor.tied_to),
        block_sums=sums(blocks),
        cache_sums=sums(caches),
        away_sums=sums(away),
        state_sums=sums(states),
        largest_cache=max(away.values()),
    )


def unit_costs(lowered: LoweredPass, model: Model, costs: CostModel) -> UnitCosts:
    """Return the seconds of the units of a pass over the blocks of a model."""
    pattern = model.pattern
    totals = dict.fromkeys(("embedding", "output", "crossing", *pattern), 0.0)
    if isinstance(lowered, SizedPass):
        works, units = lowered.fact(("works by unit", pattern), lambda: _works(lowered, model))
    else:
        works, units = _works(lowered, model)
    prices = [costs.price(task).mid for task in works.kinds]
    for kind in works.order.kind:
        totals[units[kind]] += prices[kind]
    return UnitCosts(
        embedding=totals["embedding"],
        blocks={letter: totals[letter] for letter in pattern},
        output=totals["output"],
        crossing=totals["crossing"],
        between=_seconds_between(works, costs),
    )


def _works(lowered: LoweredPass, model: Model) -> tuple[Works, tuple[str, ...]]:
    """Return the kinds of work of a pass, told apart by their units too, and the unit of each."""
    pattern, last = model.pattern, last_ops(model)

    def work(task: Task) -> Hashable:
        return work_of(task), None if task.layer is None else pattern[task.layer]

    works = alike(lowered, work)
    return works, tuple([_unit(task, pattern, last) for task in works.kinds])


def _unit(task: Task, pattern: str, last: tuple[str, ...]) -> str:
    """Return the unit to whose seconds a task adds: the letter of its block, or what is beside blocks."""
    if task.kind == "transfer" and task.payload not in CACHED:
        return "crossing"
    if task.layer is not None:
        return pattern[task.layer]
    return "output" if task.operation in last else "embedding"


def _seconds_between(works: Works, costs: CostModel) -> float:
    """Seconds between the tasks of a pass that follow one another, and before the first."""
    between = costs.between()
    if not between.known and not between.thread.known and costs.hardware.between_passes is None:
        return 0.0
    return works_seconds(works, costs, [0.0] * len(works.kinds)) + between.begins(works)
