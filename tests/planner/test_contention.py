"""Predictions know that a memory or link is shared: between the plain schedule and the simulation."""

from dataclasses import replace

import pytest
from lowered import at, busy, graphs, median, pooled, question, ranges
from plain_clock import makespan

from helmsman.planner.machine import roles
from helmsman.planner.prediction.predict import predict_phase
from helmsman.simulator.replay import replay
from helmsman.timing.pools import Pools

QUESTIONS = [
    ("Qwen3-0.6B", "rtx3060-5600x", 16, 1, {}),
    pytest.param("Qwen3-0.6B", "rtx3060-5600x", 64, 1, {}, marks=pytest.mark.nightly),
    pytest.param("Llama-3.1-8B", "rtx3060-5600x", 16, 1, {}, marks=pytest.mark.nightly),
    ("Qwen3-8B", "rtx4060-laptop", 16, 2, {}),
    ("opt-30b", "a4000-7950x", 16, 1, {"compress": "all"}),
    pytest.param("opt-30b", "a4000-7950x", 50, 1, {}, marks=pytest.mark.nightly),
]


def decode_graph(asked):
    return graphs(asked, asked.layout(asked.every_split.best))[1]


@pytest.mark.parametrize(("model", "machine", "batch", "batches", "options"), QUESTIONS)
def test_a_prediction_is_what_the_simulation_takes(model, machine, batch, batches, options):
    """The plain schedule was up to 22 % below it, and the seconds that a memory must work are no better."""
    asked = question(model, machine, batch, batches, **options)
    graph, price = decode_graph(asked), median(asked)
    predicted = predict_phase(graph, asked.costs)
    simulated = replay(graph, price, asked.frame.roles.hardware).makespan
    plain = makespan(graph, price)
    assert max(plain, *busy(asked, graph).values()) <= predicted.seconds.mid * (1 + 1e-9)
    assert predicted.seconds.mid == pytest.approx(simulated, rel=1e-9)
    assert predicted.seconds.low <= predicted.seconds.mid <= predicted.seconds.high
    assert predicted.lower_bound <= predicted.seconds.mid


@pytest.mark.parametrize(("model", "machine", "batch", "batches", "options"), QUESTIONS)
def test_the_search_counts_what_every_memory_and_link_works(model, machine, batch, batches, options):
    """The seconds of a pool per layer, by prefix sums and by the tasks of the lowered plan."""
    asked = question(model, machine, batch, batches, **options)
    shared = {pool.name for pool in asked.search_options.pools}
    assert {"dram", "vram", "link h2d"} <= shared
    without, found = at(asked, pools=(), delays=None), at(asked, delays=None)
    for each in ranges(asked)[::4]:
        split = found.at(*each)
        works = pooled(asked, asked.layout(split))
        expected = max(without.at(*each).seconds, *(works[name] for name in shared))
        assert split.seconds == pytest.approx(expected, rel=1e-5), each


def test_attention_on_the_accelerator_slows_the_host_meanwhile():
    """Caches stream through the host's memory while it computes: the plain schedule is a tenth short, L' half of it."""
    asked = question()
    split, alone = asked.every_split.at(4, 7), at(asked, pools=(), delays=None).at(4, 7)
    fewer, more = graphs(asked, asked.layout(split))
    price, machine = median(asked), asked.frame.roles.hardware
    simulated = (replay(more, price, machine).makespan - replay(fewer, price, machine).makespan) / 4
    steps = [predict_phase(graph, asked.costs).seconds.mid for graph in (fewer, more)]
    assert (steps[1] - steps[0]) / 4 == pytest.approx(simulated, rel=1e-9)
    assert alone.seconds < 0.9 * simulated
    assert alone.seconds < split.seconds < simulated


def test_published_tables_are_not_slowed_again():
    """They were measured while the link was moving: no memory of that machine is full, so no bound of one fires. What
    crosses takes some of the link."""
    asked = question("opt-30b", "a4000-7950x", 50)
    assert asked.costs.table is not None
    without = at(asked, pools=(), delays=None)
    for each in ranges(asked):
        assert asked.every_split.at(*each).seconds == pytest.approx(without.at(*each).seconds, rel=1e-2), each


@pytest.mark.nightly
def test_a_prediction_is_ordered_where_faster_hosts_starve_links():
    """A host at its fastest takes so much of a narrow memory that the pass takes longer than at its median."""
    asked = question()
    hardware = asked.frame.roles.hardware
    host, link = hardware.devices[0], hardware.link("dram", "vram")
    read = host.read.model_copy(update={"value": 4e9, "p10": 2.8e9, "p90": 12e9})
    narrow = hardware.memory("dram").bandwidth.model_copy(update={"value": 30e9, "p10": 30e9, "p90": 30e9})
    exact = link.bandwidth.model_copy(update={"p10": link.bandwidth.value, "p90": link.bandwidth.value})
    changed = hardware.model_copy(
        update={
            "memories": tuple(
                memory.model_copy(update={"bandwidth": narrow}) if memory.name == "dram" else memory
                for memory in hardware.memories
            ),
            "devices": (host.model_copy(update={"read": read}), *hardware.devices[1:]),
            "links": tuple(
                each.model_copy(update={"bandwidth": exact}) if each.name == link.name else each
                for each in hardware.links
            ),
        }
    )
    other = replace(asked, frame=replace(asked.frame, roles=roles(changed)))
    ends = [
        predict_phase(graphs(other, other.layout(other.every_split.at(*each)))[1], other.costs)
        for each in ranges(other)
    ]
    assert all(end.seconds.low <= end.seconds.mid <= end.seconds.high for end in ends)


def test_busy_seconds_are_of_the_physical_memory():
    """Bytes over bandwidth, and never longer than the task itself takes."""
    asked = question()
    hardware = asked.frame.roles.hardware
    task = next(task for task in decode_graph(asked).tasks if task.kind == "transfer")
    pools, rate = Pools(hardware), hardware.memory("dram").bandwidth.value
    assert pools.draws(task, 1.0)["dram"] == pytest.approx(task.bytes / rate)
    assert max(pools.draws(task, 1e-9).values()) == pytest.approx(1e-9)
