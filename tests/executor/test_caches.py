"""Caches in 4-bit groups, in several memories, or kept as they came: the same tokens as one cache in one place."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, get_args

import numpy as np
import pytest
from daily import one_in
from layer_machines import two_cpus
from op_plans import as_plan, make_op_split_plan
from plans import make_plan
from shapes import small_model
from splits import make_frame

from helmsman.executor._kernels import Arena, Pool, compress_rows, q4_row_size, turn_rows
from helmsman.executor.cache.kv import Caches
from helmsman.executor.devices.memory import view
from helmsman.executor.engine import Engine
from helmsman.executor.measuring.measure import spans_of
from helmsman.executor.programs import loading
from helmsman.lowering.caches import pieces_of
from helmsman.lowering.lower import lower
from helmsman.lowering.ops import LINEAR_OPS
from helmsman.lowering.rules import Cached
from helmsman.planner.strategies.optimal.configurations.block_ways import Division, block_ways
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, place
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.formats import size_of
from helmsman.schemas.plan import KvRule, LayerRange, Part, Plan, Schedule, Select
from helmsman.schemas.workload import Workload

FAMILIES = ("qwen3", "opt")
TOLERANCE = 1e-4
TOLERANCE_Q4 = 2e-3
"""Sums in another order may round a value to the code beside: a fifteenth of its group."""
PROMPT, OUTPUT = 58, 12
"""Contexts pass 16 and 64 tokens, which caches are turned by, and end in the middle of both."""

POOL = Pool([two_cpus().cpus[0]])
Outcome = tuple[Any, Any]


def workload(batch: int = 1, batches: int = 1) -> Workload:
    return Workload(prompt_tokens=PROMPT, output_tokens=OUTPUT, batch=batch, batches=batches, context=PROMPT + OUTPUT)


def prompts(sequences: int) -> Any:
    return np.random.default_rng(7).integers(3, 500, (sequences, PROMPT), dtype=np.int32)


def outcome(checkpoint: Path, plan: Plan) -> Outcome:
    """Greedy tokens, and the logits of a prompt that is taught token by token."""
    tokens = prompts(plan.workload.batch * plan.workload.batches)
    with Engine.load(plan, checkpoint, two_cpus()) as engine:
        made = engine.generate(tokens, OUTPUT, ignore_eos=True)
        check_bytes(plan, made)
        return np.array(made.tokens), engine.logits(tokens, prompt=PROMPT - 3)


def check_bytes(plan: Plan, made: Any) -> None:
    """What moves of caches is what the lowered plan says, and so what it is charged for."""
    moved = {span.task: span.bytes for span in spans_of(plan, 0, made)}
    for iteration in made.iterations:
        for task in lower(plan, iteration).tasks:
            if task.kind == "transfer" and task.op in ("keys", "values", "kv"):
                assert moved[task.id] == task.bytes, task.id


def groups_of(plan: Plan) -> frozenset[object]:
    """What a plan keeps in 4-bit groups."""
    every = [(layer, piece) for layer in range(plan.model.layers) for piece in pieces_of(plan, layer)]
    quarter = [(layer, piece) for layer, piece in every if piece.rule.format == "q4"]
    return frozenset((layer, piece.what, head) for layer, piece in quarter for head in range(piece.start, piece.stop))


def check(plan: Plan, found: Outcome, expected: Outcome) -> None:
    tolerance = TOLERANCE_Q4 if groups_of(plan) else TOLERANCE
    assert np.abs(found[1] - expected[1]).max() < tolerance * np.abs(expected[1]).max()
    assert np.array_equal(found[0], expected[0])


def through_groups(rows: Any) -> Any:
    """f32 (rows, width) as 4-bit groups stand for them."""
    count, width = rows.shape
    arena = Arena(1 << 20)
    kept, plain = arena.alloc(count * q4_row_size(width), "kept"), arena.alloc(count * width * 4, "plain")
    compress_rows(np.ascontiguousarray(rows), kept, count, width)
    steps = (0, 0, q4_row_size(width)), (0, 0, 4 * width)
    turn_rows(POOL, kept, 0, steps[0], plain, 0, steps[1], (1, 1, count, width), "q4", "f32", False)
    return view(plain, np.float32).reshape(count, width).copy()


def iteration(tokens: int, past: int) -> Iteration:
    """A pass of `tokens` on top of `past`."""
    return Iteration(0, "decode" if past else "prefill", 1, tokens, past + tokens)


class Quantised:
    """The plan that runs everything on the CPU with plain caches; after every pass what `plan` keeps in 4-bit groups
    is replaced by what those stand for."""

    def __init__(self, checkpoint: Path, plan: Plan, patched: pytest.MonkeyPatch) -> None:
        self.plan, self.model = plan, plan.model
        self.sequences = plan.workload.batch * plan.workload.batches
        whole = make_plan(plan.model, workload=workload(self.sequences))
        found: list[Caches] = []
        allocate = loading.allocate_caches

        def keep(*arguments: Any) -> Caches:
            found.append(allocate(*arguments))
            return found[0]

        patched.setattr(loading, "allocate_caches", keep)
        self.engine = Engine.load(whole, checkpoint, two_cpus())
        self.caches = found[0]

    def outcome(self) -> Outcome:
        tokens, chosen = prompts(self.sequences), np.zeros((self.sequences, OUTPUT), np.int32)
        with self.engine as engine:
            engine._feed(tokens)
            for step in range(OUTPUT):
                new, past = (PROMPT, 0) if step == 0 else (1, PROMPT + step - 1)
                chosen[:, step] = engine._chosen(engine._pass(iteration(new, past)), None)
                self.round(past, past + new)
            rows, past = [], 0
            for end in range(PROMPT - 3, PROMPT + 1):
                engine._feed(tokens[:, past:end])
                rows.append(engine._pass(iteration(end - past, past)).logits())
                self.round(past, end)
                past = end
        return chosen, np.stack(rows, axis=1)

    def round(self, first: int, last: int) -> None:
        for layer in range(self.model.layers):
            for piece in pieces_of(self.plan, layer):
                if piece.rule.format == "q4":
                    values = self.cache(piece.what, layer)[:, piece.start : piece.stop, first:last]
                    values[:] = through_groups(values.reshape(-1, self.model.dense.head_dim)).reshape(values.shape)

    def cache(self, what: Cached, layer: int) -> Any:
        shape = self.sequences, self.model.dense.kv_heads, PROMPT + OUTPUT, self.model.dense.head_dim
        return view(self.caches.at("dram", layer, 0).read[what][0].buffer, np.float32).reshape(shape)


@pytest.fixture(scope="module")
def expected(checkpoints: Callable[[str], Path]) -> Callable[[Plan], Outcome]:
    """What a plan should make, computed once for all that keep the same heads in 4-bit groups."""
    found: dict[object, Outcome] = {}

    def get(plan: Plan) -> Outcome:
        family = plan.model.family
        key = family, plan.workload.batch * plan.workload.batches, groups_of(plan)
        if key not in found:
            with pytest.MonkeyPatch.context() as patched:
                found[key] = Quantised(checkpoints(family), plan, patched).outcome()
        return found[key]

    return get


@pytest.mark.parametrize(
    ("family", "batch", "attention"),
    one_in(
        2,
        [
            pytest.param(
                family, batch, attention, marks=() if 2 * row + column + whole in (1, 2) else pytest.mark.nightly
            )
            for row, family in enumerate(FAMILIES)
            for column, batch in enumerate((1, 3))
            for whole, attention in enumerate(("divided", "whole"))
        ],
    ),
)
def test_groups_where_they_are_used(
    checkpoints: Callable[[str], Path], expected: Callable[[Plan], Outcome], family: str, batch: int, attention: Any
) -> None:
    plan = make_plan(small_model(family), workload=workload(batch))
    groups = (KvRule(select=Select(), memory="dram", format="q4", expanded="f32"),)
    plan = plan.model_copy(update={"kv": groups, "schedule": Schedule(attention=attention)})
    check(plan, outcome(checkpoints(family), plan), expected(plan))


def offloaded(plan: Plan, fmt: Any = "q4", path: Any = "pin-on-transfer", **schedule: Any) -> Plan:
    """Everything on the accelerator with caches at home in host memory, as FlexGen does."""
    host = KvRule(select=Select(), memory="dram", format=fmt, path=path, expanded="f32")
    changes = {"overlap": "next-layer", "prefetch": 1} | schedule
    return plan.model_copy(update={"kv": (host,), "schedule": Schedule(**changes)})


@pytest.mark.parametrize(
    ("path", "schedule"),
    [
        pytest.param(path, schedule, marks=() if (row + column) % 2 == 0 else pytest.mark.nightly)
        for row, path in enumerate(("pinned", "pin-on-transfer"))
        for column, schedule in enumerate(({}, {"attention": "divided"}, {"barrier": True, "expand": "before-use"}))
    ],
)
def test_offloaded_caches(
    checkpoints: Callable[[str], Path], expected: Callable[[Plan], Outcome], path: str, schedule: dict[str, Any]
) -> None:
    plan = make_plan(small_model("qwen3"), 0, workload=workload(2))
    for fmt in ("q4", "f32"):
        away = offloaded(plan, fmt, path, **schedule)
        check(away, outcome(checkpoints("qwen3"), away), expected(away))


HEADS = LayerRange(start=0, stop=3)


def heads(name: str, start: int, stop: int, memory: str, fmt: Any = "f32", layers: LayerRange = HEADS) -> KvRule:
    part = Part(axis="heads", start=start, stop=stop)
    return KvRule(select=Select(names=name, layers=layers, part=part), memory=memory, format=fmt, expanded="f32")


def kept_in(memory: str, layers: LayerRange = HEADS, name: str = "kv") -> KvRule:
    return KvRule(select=Select(names=name, layers=layers), memory=memory, format="f32")


SECOND = LayerRange(start=1, stop=2)

RULES: dict[str, tuple[KvRule, ...]] = {
    "a layer": (kept_in("vram", SECOND),),
    "keys here, values there": (kept_in("vram", name="keys"),),
    "heads": (heads("keys", 0, 1, "vram"), heads("values", 0, 1, "vram")),
    "other heads of keys than of values": (heads("keys", 0, 3, "vram"), heads("values", 1, 4, "vram")),
    "one layer's heads": (heads("keys", 2, 4, "vram", layers=SECOND), heads("values", 2, 4, "vram", layers=SECOND)),
    "groups and plain ones": (heads("keys", 1, 3, "dram", "q4"), heads("values", 0, 2, "vram", "q4")),
    "plain there, groups here": (heads("keys", 0, 2, "vram"), heads("keys", 2, 3, "dram", "q4")),
}
PLACES = ((0, 0, {}), (0, 11, {}), (5, 9, {}), (2, 9, {"scores": 2, "wv": 4}), (5, 8, {"scores": 2}))


@pytest.mark.parametrize(
    ("rules", "place"),
    [
        pytest.param(
            rules,
            place,
            marks=() if number % 2 == 0 and (number // 2 + place) % len(PLACES) == 0 else pytest.mark.nightly,
        )
        for number, rules in enumerate(RULES)
        for place in range(len(PLACES))
    ],
)
def test_caches_in_several_memories(
    checkpoints: Callable[[str], Path], expected: Callable[[Plan], Outcome], rules: str, place: int
) -> None:
    """Ordinarily every rule at one of the places, and every place with one of the rules at least."""
    start, stop, chunks = PLACES[place]
    plan = make_op_split_plan(small_model("opt"), start, stop, chunks, workload=workload(2, 2))
    plan = plan.model_copy(update={"kv": (*RULES[rules], *plan.kv)})
    check(plan, outcome(checkpoints("opt"), plan), expected(plan))


def test_new_keys_that_are_kept_where_they_are_read_come_once(checkpoints: Callable[[str], Path]) -> None:
    """The weighted sum asks for new keys and values together; scores may be reading these keys by then."""
    plan = make_op_split_plan(small_model("opt"), *PLACES[4], workload=workload(2, 2))
    plan = plan.model_copy(update={"kv": (*RULES["keys here, values there"], *plan.kv)})
    with Engine.load(plan, checkpoints("opt"), two_cpus()) as engine:
        made = engine.generate(prompts(4), OUTPUT, ignore_eos=True)
    moved = {span.bytes for span in spans_of(plan, 0, made) if "new_kv@h2d" in span.task}
    assert moved == {size_of(plan.workload.batch * plan.model.dense.kv_width, "f32")}


@pytest.mark.parametrize(
    ("family", "cache_q4", "cut"),
    [
        pytest.param(family, cache_q4, cut, marks=() if (row + 2 * cache_q4 + column) % 4 == 0 else pytest.mark.nightly)
        for row, family in enumerate(FAMILIES)
        for cache_q4 in (False, True)
        for column, cut in enumerate(((0, 0, {}), (0, 11, {}), (5, 9, {}), (2, 9, {"scores": 2, "wv": 2})))
    ],
)
def test_caches_turned_for_every_step(
    checkpoints: Callable[[str], Path],
    expected: Callable[[Plan], Outcome],
    family: str,
    cache_q4: bool,
    cut: tuple[int, int, dict[str, int]],
) -> None:
    start, stop, chunks = cut
    plan = make_op_split_plan(
        small_model(family), start, stop, chunks, workload=workload(2), reshape=True, cache_q4=cache_q4
    )
    check(plan, outcome(checkpoints(family), plan), expected(plan))


CUTS = ((0, 11, {}), (4, 9, {}), (5, 6, {}), (7, 8, {}), (2, 9, {"scores": 2, "wv": 2}), (6, 9, {"scores": 2, "wv": 2}))


@pytest.mark.parametrize(
    ("family", "batch", "batches", "cut"),
    one_in(
        2,
        [
            pytest.param(family, *shape, cut, marks=() if (2 * row + column + cut) % 4 == 0 else pytest.mark.nightly)
            for row, family in enumerate(FAMILIES)
            for column, shape in enumerate(((3, 1), (2, 2)))
            for cut in range(len(CUTS))
        ],
    ),
)
def test_streamed_groups_make_the_same_tokens(
    checkpoints: Callable[[str], Path],
    expected: Callable[[Plan], Outcome],
    family: str,
    batch: int,
    batches: int,
    cut: int,
) -> None:
    start, stop, chunks = CUTS[cut]
    plan = make_op_split_plan(
        small_model(family), start, stop, chunks, workload=workload(batch, batches), cache_q4=True
    )
    check(plan, outcome(checkpoints(family), plan), expected(plan))


@pytest.mark.parametrize("seed", [0, 3, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2, 4, 5))])
def test_blocks_of_optimal_plans_whose_caches_come_in_groups(
    checkpoints: Callable[[str], Path], expected: Callable[[Plan], Outcome], seed: int
) -> None:
    """Some of the blocks; caches of the others live as they are used, on either side."""
    family, batches, source = FAMILIES[seed % 2], 1 + seed // 2 % 2, Random(seed)
    frame = make_frame(small_model(family), workload(2, batches), quarters=("kv",))
    every = block_ways(frame.model, quarters=("kv",))
    ways = [source.choice([way for way in every if way.q4]), *source.choices(every, k=frame.model.layers - 1)]
    shares = {0: dict.fromkeys(get_args(Division), dict.fromkeys(LINEAR_OPS, 0.5))}
    plan = as_plan(place(frame, Assignment(tuple(ways), "host", "accelerator", shares)))
    assert groups_of(plan)
    check(plan, outcome(checkpoints(family), plan), expected(plan))
