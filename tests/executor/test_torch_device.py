"""Plans on a device that PyTorch drives, here on processors: the tokens of the plan that native kernels run alone."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, cast
from weakref import ReferenceType, ref

import numpy as np
import pytest
import torch
from daily import one_in
from divided import divided_plan
from layer_machines import two_cpus
from on_torch import on_torch
from op_plans import make_op_split_plan
from paged import make_paged_plan
from plans import make_plan
from shapes import small_model
from splits import make_frame

from helmsman.executor._kernels import Arena, Pool, Stage
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.devices.torch.attention import attend_part, merge
from helmsman.executor.devices.torch.buffers import TorchMemory
from helmsman.executor.devices.torch.caches import cache_of
from helmsman.executor.devices.torch.lane import TorchLane
from helmsman.executor.devices.torch.pinning import page_ranges
from helmsman.executor.devices.torch.regions import regions_of
from helmsman.executor.devices.torch.row_formats import RowFormat
from helmsman.executor.devices.torch.stage import TorchStage
from helmsman.executor.engine import Engine
from helmsman.executor.measuring.measure import Request, measure, trace
from helmsman.executor.stages.dense import prepared
from helmsman.executor.stages.dimensions import dimensions
from helmsman.executor.system.machine import Machine
from helmsman.lowering.buffers import cache_expansion_bytes
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.strategies.flexgen import FlexGen
from helmsman.planner.strategies.streaming.division import pieces
from helmsman.schemas.blocks.positions import Rope
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import HardwareUnavailableError, InfeasibleError, UsageError
from helmsman.schemas.plan import Plan, Residence, Select
from helmsman.schemas.workload import Workload

PROMPT, OUTPUT = 8, 12
TOLERANCE = 1e-4
EIGHT_BITS = {"cpu": 2e-3, "cuda:0": 4e-3}
"""Where a difference in the last place, of sums in another order, may round a value to another code, a 127th of the
largest of its row."""


def workload(batch: int = 1, batches: int = 1, prompt: int = PROMPT) -> Workload:
    return Workload(prompt_tokens=prompt, output_tokens=OUTPUT, batch=batch, batches=batches, context=prompt + OUTPUT)


def prompts(sequences: int, length: int = PROMPT) -> Any:
    return np.random.default_rng(7).integers(3, 500, (sequences, length), dtype=np.int32)


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.cuda)])
def there(request: pytest.FixtureRequest) -> Machine:
    """This machine, whose processors stand for its GPU; or with the GPU that it has."""
    return replace(two_cpus(), accelerators={"cuda": (request.param,)})


def outcome(checkpoint: Path, plan: Plan, machine: Machine) -> tuple[Any, Any]:
    work = plan.workload
    given = prompts(work.batch * work.batches, work.prompt_tokens)
    with Engine.load(plan, checkpoint, machine) as engine:
        tokens = np.array(engine.generate(given, OUTPUT, ignore_eos=True).tokens)
        return tokens, engine.logits(given, prompt=work.prompt_tokens - 3)


@cache
def alone(checkpoint: Path, family: str, sequences: int, prompt: int) -> tuple[Any, Any]:
    """What the host makes of a small model alone, computed once for all plans that are compared with it."""
    return outcome(checkpoint, make_plan(small_model(family), workload=workload(sequences, prompt=prompt)), two_cpus())


def check(checkpoint: Path, plan: Plan, machine: Machine) -> None:
    """`plan` on PyTorch and all on the host."""
    assert plan.model == small_model(plan.model.family)
    found, work = outcome(checkpoint, on_torch(plan), machine), plan.workload
    expected = alone(checkpoint, plan.model.family, work.batch * work.batches, work.prompt_tokens)
    assert np.abs(found[1] - expected[1]).max() < TOLERANCE * np.abs(expected[1]).max()
    assert np.array_equal(found[0], expected[0])


@pytest.mark.parametrize("family", ["qwen3", "llama", "opt"])
@pytest.mark.parametrize("host_units", [0, 2])
def test_a_layer_split_makes_the_same_tokens(
    checkpoints: Callable[[str], Path], there: Machine, family: str, host_units: int
) -> None:
    check(checkpoints(family), make_plan(small_model(family), on_cpu=host_units, workload=workload(2)), there)


@pytest.mark.parametrize(
    ("family", "cut"),
    one_in(
        2,
        [
            pytest.param(family, cut, marks=pytest.mark.nightly if (row + column) % 3 == 2 else ())
            for row, family in enumerate(("qwen3", "llama", "opt"))
            for column, cut in enumerate(((0, None), (4, 7), (3, 9)))
        ],
    ),
)
def test_streamed_operations_make_the_same_tokens(
    checkpoints: Callable[[str], Path], there: Machine, family: str, cut: tuple[int, int | None]
) -> None:
    """Weights come in panels, hidden states and halves of attention cross the link."""
    model = small_model(family)
    stop = len(pieces(model, {})) if cut[1] is None else cut[1]
    check(checkpoints(family), make_op_split_plan(model, cut[0], stop, workload=workload(2)), there)


@pytest.mark.parametrize("cut", [(6, 9), (3, 13)])
def test_chunks_of_operations_make_the_same_tokens(
    checkpoints: Callable[[str], Path], there: Machine, cut: tuple[int, int]
) -> None:
    plan = make_op_split_plan(
        small_model("llama"), *cut, {"q": 2, "scores": 2, "wv": 2, "down": 3}, workload=workload()
    )
    check(checkpoints("llama"), plan, there)


@pytest.mark.parametrize("host_attention", [False, True])
def test_two_batches_layer_by_layer_make_the_same_tokens(
    checkpoints: Callable[[str], Path], there: Machine, host_attention: bool
) -> None:
    frame = make_frame(small_model("opt"), workload(2, 2))
    check(checkpoints("opt"), FlexGen(frame, False, host_attention, CostOptions()).decide({}).plan, there)


def test_long_prompts_pass_in_chunks(checkpoints: Callable[[str], Path], there: Machine) -> None:
    check(checkpoints("qwen3"), make_plan(small_model("qwen3"), on_cpu=0, workload=workload(2, prompt=150)), there)


@pytest.mark.parametrize("batch", [1, 2])
def test_long_prompts_whose_rows_the_host_looks_up_pass_in_chunks(
    checkpoints: Callable[[str], Path], there: Machine, batch: int
) -> None:
    """The rows of all tokens come together; each chunk takes its own."""
    plan = make_plan(small_model("llama"), on_cpu=0, workload=workload(batch, prompt=150))
    table = Residence(select=Select(names="embedding*"), memory="dram", format="f32")
    check(checkpoints("llama"), plan.model_copy(update={"residence": (table, *plan.residence)}), there)


@pytest.mark.parametrize(("seed", "family"), [(1, "opt"), (4, "llama")])
def test_long_prompts_divided_within_halves_make_the_same_tokens(
    checkpoints: Callable[[str], Path], there: Machine, seed: int, family: str
) -> None:
    """Some heads of caches live there, others come."""
    plan = divided_plan(Random(seed), family, workload(2, prompt=150), heads=bool(seed % 2))
    assert {rule.memory for rule in plan.kv} == {"dram", "vram"}
    check(checkpoints(family), plan, there)


def test_weights_do_not_leave_it(checkpoints: Callable[[str], Path], there: Machine) -> None:
    plan = divided_plan(Random(3), "llama", workload(), heads=True)
    assert plan.residence[-1].memory == "vram"
    with pytest.raises(UsageError, match="leave a device that keeps them as its own products read them"):
        Engine.load(on_torch(plan), checkpoints("llama"), there)


@pytest.mark.parametrize("family", ["qwen3", "opt"])
def test_a_window_of_the_cache_makes_the_same_tokens(
    checkpoints: Callable[[str], Path], there: Machine, family: str
) -> None:
    """Pages come and are attended to one by one, for prompts in several passes too."""
    plan = make_paged_plan(small_model(family), page=32, window=96, workload=workload(2, prompt=150))
    check(checkpoints(family), plan, there)


@pytest.mark.parametrize("paged", [False, True])
def test_caches_in_eight_bits_make_the_same_tokens(
    tmp_path: Path, there: Machine, paged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys and values of eleven positions at a time, of a cache or of its pages; beside a host with such caches, whose
    rows they are."""
    most = 11 * 2 * 2 * 32
    monkeypatch.setattr("helmsman.lowering.buffers.EXPANDED_VALUES", most)
    expanded, held, sizes = RowFormat.values, list[ReferenceType[torch.Tensor]](), set[int]()

    def watched(kind: RowFormat, kept: torch.Tensor) -> torch.Tensor:
        values = expanded(kind, kept)
        held.append(ref(values))
        sizes.add(sum(each.numel() for each in (of() for of in held) if each is not None))
        return values

    monkeypatch.setattr(RowFormat, "values", watched)
    model = reshaped(small_model("qwen3"), head_dim=32, position=Rope(theta=1e4, rotary_dim=32), layers=3)
    write_checkpoint(model, tmp_path / "wide", seed=1, fmt="f32")
    plan = make_plan(model, 2, kv="q8_0", workload=workload(2, prompt=100))
    chosen = make_paged_plan(model, page=32, window=96, kv="q8_0", workload=plan.workload) if paged else plan
    alone = make_plan(model, kv="q8_0", workload=plan.workload)
    found, expected = (outcome(tmp_path / "wide", *each) for each in ((on_torch(chosen), there), (alone, two_cpus())))
    assert max(sizes) == 2 * most == cache_expansion_bytes(model, plan.workload) // 4
    assert np.abs(found[1] - expected[1]).max() < EIGHT_BITS[there.accelerators["cuda"][0]] * np.abs(expected[1]).max()
    assert np.array_equal(found[0], expected[0])


def test_divided_attention_over_eight_bits_is_refused() -> None:
    memory = TorchMemory("vram", 1 << 24, torch.device("cpu"))
    keys = memory.alloc(1 << 16, "keys")
    spec = {**stage_spec(divided=True), "kv_format": "q8_0"}
    with pytest.raises(UsageError, match=r"kv_format: divided attention reads f32, f16 and bf16 \(got 'q8_0'\)"):
        cache_of(cast(Any, spec), cast(Any, spec), keys, [], transposed=True)


@pytest.mark.nightly
def test_every_operation_has_a_time_in_a_trace(checkpoints: Callable[[str], Path], there: Machine) -> None:
    plan = on_torch(make_plan(small_model("qwen3"), on_cpu=2, workload=workload()))
    with Engine.load(plan, checkpoints("qwen3"), there) as engine:
        measured = measure(engine, Request(prompts(1), 4, ignore_eos=True), 1, there)
    spans = trace(plan, measured).spans
    theirs = [span for span in spans if span.resource == "loopback" and span.phase == "decode"]
    assert sum(span.end_s > span.start_s for span in theirs) > 0.9 * len(theirs)
    assert all(span.end_s >= span.start_s for span in spans)


def test_a_device_that_is_not_there_is_named(checkpoints: Callable[[str], Path]) -> None:
    plan = on_torch(make_plan(small_model("qwen3"), on_cpu=2, workload=workload()))
    with pytest.raises(HardwareUnavailableError, match="no cuda devices"):
        Engine.load(plan, checkpoints("qwen3"), two_cpus())


def test_its_memory_ends_where_the_record_says(checkpoints: Callable[[str], Path], there: Machine) -> None:
    plan = on_torch(make_plan(small_model("qwen3"), on_cpu=0, workload=workload()), available=100_000)
    with pytest.raises(InfeasibleError, match="out of memory"):
        Engine.load(plan, checkpoints("qwen3"), there)


@pytest.mark.parametrize("changes", [{}, {"reshape": True, "expand": "before-use"}])
def test_four_bit_groups_are_expanded_as_the_host_does(
    checkpoints: Callable[[str], Path], there: Machine, changes: dict[str, Any]
) -> None:
    """Of weights and of caches, which it also writes in groups and turns."""
    frame = make_frame(small_model("opt"), workload(2, 2))
    plan = FlexGen(frame, True, False, CostOptions()).decide({}).plan
    plan = plan.model_copy(update={"schedule": plan.schedule.model_copy(update=changes)})
    found, expected = (outcome(checkpoints("opt"), *each) for each in ((on_torch(plan), there), (plan, two_cpus())))
    assert np.abs(found[1] - expected[1]).max() < TOLERANCE * np.abs(expected[1]).max()
    assert np.array_equal(found[0], expected[0])


def test_pages_are_locked_once() -> None:
    """Buffers that share pages, touch, or lie in each other."""
    assert page_ranges([(4096 * 3 + 8, 100), (4096 * 3 + 200, 4096), (4096 * 9, 4096), (10, 0)]) == [
        (4096 * 3, 2 * 4096),
        (4096 * 9, 4096),
    ]
    assert page_ranges([(0, 3 * 4096), (4096, 10)]) == [(0, 3 * 4096)]
    assert page_ranges([]) == []


def test_every_part_of_attention_merges_exactly() -> None:
    """Parts in any order, empty and unseen ones too, are the whole."""
    rng = torch.Generator().manual_seed(3)
    q, keys, values = (torch.randn(2, 3, n, 16, generator=rng) for n in (4, 37, 37))
    whole, lse = attend_part(q, keys, values, None)
    expected = torch.nn.functional.scaled_dot_product_attention(q, keys, values)
    assert torch.allclose(whole, expected, atol=1e-5)
    found = attend_part(q, keys, values, torch.ones(4, 37, dtype=torch.bool))
    assert not found[0].any()
    for begin, end in ((30, 37), (0, 1), (1, 30)):
        found = merge(found, attend_part(q, keys[:, :, begin:end], values[:, :, begin:end], None))
    assert torch.allclose(found[0], expected, atol=1e-5)
    assert torch.allclose(found[1], lse, atol=1e-5)


def stage_spec(divided: bool, batch: int = 1) -> Any:
    """A stage of a final norm alone."""
    model = small_model("qwen3")
    return {
        **dimensions(model),
        "batch": batch,
        "capacity": 45,
        "max_tokens": 33,
        "kv_format": "f32",
        "attention": "divided" if divided else "fused",
        "rotary_dim": 0,
        **dict.fromkeys(("cos", "sin", "embedding", "positions", "head")),
        "blocks": [],
        "final_norm": {"weight": np.ones(model.hidden, np.float32), "bias": None},
    }


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 200])
def test_workspaces_are_laid_out_as_native_ones(divided: bool, batch: int) -> None:
    check_layout(stage_spec(divided, batch))


def test_workspaces_of_ragged_passes_are_laid_out_as_native_ones() -> None:
    check_layout({**stage_spec(divided=False), "max_tokens": 301, "sequences": 5, "passing": 0})


def check_layout(spec: Any) -> None:
    size = Stage.workspace_size(prepared(spec))
    native = Stage(Pool([0]), prepared(spec), Arena(size).alloc(size, "workspace"), 0)
    found = regions_of(prepared(spec))
    assert found.size == size
    assert found.at == native.regions()


@pytest.mark.parametrize("divided", [False, True])
def test_only_what_reaches_no_further_than_it_reads_from_the_device_is_replayed(divided: bool) -> None:
    """Divided attention takes its reach from the pass: a graph would keep that of the step it was made from."""
    spec = stage_spec(divided)
    vectors = dict.fromkeys(("q", "k", "v", "o", "gate", "up", "down", "norm1", "norm2", "q_norm", "k_norm"))
    block = {**vectors, "keys": None, "values": None}
    memory = TorchMemory("vram", 1 << 24, torch.device("cpu"))
    empty = prepared({**spec, "blocks": [block], "final_norm": None})
    stage = TorchStage(empty, memory.alloc(regions_of(empty).size, "workspace"), 0)
    names = stage.ops
    assert stage.replays(0, len(names)) is not divided
    assert stage.replays(0, names.index("0.append") + 1)
    assert stage.replays(names.index("0.o"), len(names))


def test_a_lane_without_its_device_fails_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not wholly made is given up without an error of its own, which nobody could catch."""

    def refuse(device: torch.device) -> None:
        raise RuntimeError("no driver")

    monkeypatch.setattr("helmsman.executor.devices.torch.lane._stream", refuse)
    with pytest.raises(RuntimeError, match="no driver"):
        TorchLane(torch.device("cuda"))
