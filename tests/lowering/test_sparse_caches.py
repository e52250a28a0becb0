"""Caches that stand for several tokens, and tokens that choose a few of those before: bytes that are read and kept."""

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.bodies.block_pass import chosen_by, seen_by
from helmsman.lowering.layer_cache import cache_of
from helmsman.lowering.lower import lower
from helmsman.lowering.row_values import row_values
from helmsman.planner.machine import roles
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.layer_rules import SplitQuestion, place
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.workload import Workload


def test_a_chunk_of_a_prompt_reads_what_any_of_its_tokens_chooses() -> None:
    """Keys of 512 tokens that choose 2048 each may be any of the context; those of one token are 2048."""
    chunk, step = Iteration(0, "prefill", 1, 512, 16384), Iteration(0, "decode", 1, 1, 16384)
    assert chosen_by(chunk, 2048).cached == 16384 and chosen_by(step, 2048).cached == 2048
    assert chosen_by(chunk, 2048).pairs == seen_by(chunk, 2048).pairs


def test_entries_of_a_compressed_cache_come_over_the_link_with_its_tokens() -> None:
    """Of DeepSeek-V4-Flash's window 127 tokens, and of every fourth, or 128th, token before an entry."""
    model = load_model("DeepSeek-V4-Flash").with_layers(6)
    machine = roles(load_hardware("a4000-7950x", None).model_copy(update={"tables": ()}))
    work = Workload(prompt_tokens=4096, output_tokens=8, context=4104)
    placed = place(model, machine, work, SplitQuestion("q4_0", kv_offload=True), 0)
    step = mean_step(work)
    brought: dict[int | None, int] = {}
    for task in lower(placed, step).tasks:
        if task.kind == "transfer" and task.payload == "cache":
            brought[task.layer] = brought.get(task.layer, 0) + task.bytes
    for layer in range(6):
        cache = cache_of(model, layer)
        assert cache is not None and cache.reach is not None
        entries = sum(step.past // pool.ratio * pool.width for pool in cache.pools)
        assert brought[layer] == 2 * ((cache.reach - 1) * cache.key_dim + entries)


def test_every_stream_of_hidden_states_has_room() -> None:
    model = load_model("DeepSeek-V4-Flash")
    assert model.streams is not None
    single = row_values(model.model_copy(update={"streams": None}), 1)
    assert row_values(model, 1) - single == (2 * model.streams.streams - 1) * model.hidden
