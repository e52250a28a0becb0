"""Operation tables: what is measured of a layer, what it becomes in a record, by which key it is found again."""

import shutil
import time
from collections import namedtuple
from dataclasses import replace
from errno import EACCES
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from layer_machines import LATENCY, LAYER, OPT_LAYER, RATE, loopback_record, two_cpus
from together import together

from helmsman.executor._kernels import CopyEngine, DiskFile, packed_size
from helmsman.executor.devices.memory import view
from helmsman.executor.profile import (
    layer_expansion,
    layer_reshape,
    layer_storage,
    layer_times,
    quality,
    table,
)
from helmsman.executor.profile.disturbance import DISTURBANCE
from helmsman.executor.profile.layer import Layers, needed_bytes, stored_bytes
from helmsman.executor.profile.layer_times import restated
from helmsman.executor.profile.layer_traffic import LayerTraffic
from helmsman.executor.profile.quality import Watch
from helmsman.executor.profile.question import LayerQuestion
from helmsman.executor.profile.samples import UnsettledPoints
from helmsman.executor.profile.table import STEPS, TableSamples, measure_table
from helmsman.executor.profile.table_devices import with_turning
from helmsman.executor.profile.table_place import TablePlace
from helmsman.executor.profile.table_record import PART, SWEEP, TOOK, extended
from helmsman.executor.system.interference import CpuTimes, Moment
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.fit import quantile
from helmsman.lowering.graph import Task
from helmsman.lowering.tensors import block_tensors
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.disturbances import disturbed_figures
from helmsman.planner.machine import roles
from helmsman.planner.strategies.op_split.split_rules import SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import HardwareUnavailableError, UsageError
from helmsman.schemas.figures import Source
from helmsman.schemas.formats import size_of
from helmsman.schemas.hardware import LEFT, TABLE, Hardware
from helmsman.schemas.operation_table import required
from helmsman.schemas.read import parse_document
from helmsman.schemas.workload import Workload

QUESTION = LayerQuestion(LAYER, batch=2, context=100)
SOURCE = Source(kind="measured", where="a test", date="2026-01-01", tool="test")


def place(rate: float = RATE, cores: int = 2) -> TablePlace:
    machine = two_cpus(cores)
    return TablePlace.of(loopback_record(machine, rate), machine)


@pytest.fixture(scope="module", autouse=True)
def short():
    """A few rounds of everything once, on a system that does not tell what others do. Times are compared by their
    10th percentile: others are at work on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_times, "ROUNDS", (2, 3))
        patch.setattr(layer_times, "SWEEP_ROUNDS", 1)
        patch.setattr(layer_times, "TIME_LIMIT_S", 0.2)
        patch.setattr(layer_expansion, "ROUNDS", (2, 3))
        patch.setattr(layer_storage, "ROUNDS", (2, 2))
        patch.setattr(quality, "ATTEMPTS", 1)
        patch.setattr(table, "Watch", lambda: Watch(now=lambda: Moment(time.monotonic())))
        yield


@pytest.fixture(scope="module")
def samples() -> TableSamples:
    return measure_table(place(), QUESTION)


@pytest.fixture(scope="module")
def record(samples: TableSamples) -> Hardware:
    return extended(place(), samples, SOURCE)


def row(record: Hardware, op: str):
    return record.tables[0].row(op)


def test_every_operation_has_what_it_takes(record):
    (made,) = record.tables
    assert [each.op for each in made.rows] == [op.name for op in QUESTION.operations]
    assert set(required(made.shape)) <= {each.op for each in made.rows}
    for each in made.rows:
        linear = each.op in {"q", "k", "v", "o", "gate", "up", "down"}
        moved = linear or each.op in {"scores", "wv", "norm1", "norm2", "append"}
        assert each.host.value > 0 and each.accelerator.value > 0
        assert (each.transfer is not None, each.transfer_q4 is not None) == (moved, moved)
        assert (each.decompress is not None) == (linear or each.op in {"scores", "wv"})
        assert each.storage is None
        assert all(figure.n > 0 and figure.value > 0 for figure in each.figures())
    assert (made.host, made.accelerator, made.threads, made.link_busy) == ("cpu", "loopback", 1, True)
    assert parse_document(Hardware, record.to_json().encode(), "x") == record


def transfers(record):
    """(figure, seconds that the link needs at least) of weights, and of past keys and values."""
    for tensor in block_tensors(LAYER, 0):
        if len(tensor.shape) > 1:
            for fmt, found in (("f16", row(record, tensor.op).transfer), ("q4", row(record, tensor.op).transfer_q4)):
                yield found, packed_size(fmt, *tensor.shape) / RATE + LATENCY
    past = size_of(2 * 99 * LAYER.dense.kv_width, "f16")
    for op in ("scores", "wv"):
        yield row(record, op).transfer, past / RATE + LATENCY


def test_transfers_take_no_less_than_the_link_says(record):
    assert all(found.p10 >= 0.99 * least for found, least in transfers(record))


@pytest.mark.nightly
def test_transfers_take_what_the_link_says(record):
    assert all(found.p10 == pytest.approx(least, rel=0.05) for found, least in transfers(record))
    for op in ("scores", "wv"):
        assert row(record, op).transfer_q4.value < row(record, op).transfer.value


def test_quantised_weights_come_as_they_are():
    """And are not expanded; past keys and values still may be."""
    question = replace(QUESTION, format="q4")
    traffic = LayerTraffic(Layers(question, 2**20), CopyEngine(RATE, LATENCY, 0), place().link)
    moved = {(load.column, load.name): load.size for load in traffic.loads}
    for tensor in block_tensors(LAYER, 0):
        if len(tensor.shape) > 1:
            assert moved["transfer", tensor.name] == packed_size("q4", *tensor.shape)
    assert {name for column, name in moved if column == "transfer_q4"} == {"keys", "values"}


def test_a_table_of_quantised_weights_is_of_their_format():
    found = extended(place(), measure_table(place(), replace(QUESTION, format="q8_0")), SOURCE)
    (made,) = found.tables
    assert (made.format, made.kv_format) == ("q8_0", "f16")
    for each in made.rows:
        assert each.host.value > 0 and each.accelerator.value > 0
        assert (each.transfer_q4 is not None) == (each.decompress is not None) == (each.op in {"scores", "wv"})
    work = Workload(prompt_tokens=64, output_tokens=64, context=128, batch=2)
    for fmt, known in (("q8_0", True), ("f16", False)):
        split = OpSplit(Frame(LAYER, roles(found), work, fmt, "f16"), SplitRules(), CostOptions())
        assert (split.costs.table is not None) == known


def test_expanding_is_a_rate_of_the_accelerator(record):
    found = record.device("loopback").decompress
    assert found.n > 0 and 0 < found.p10 <= found.p90


@pytest.mark.nightly
def test_a_matrix_is_expanded_about_as_fast_as_all(record):
    found, whole = record.device("loopback").decompress, row(record, "down")
    size = packed_size("q4", LAYER.hidden, LAYER.dense.ffn) + packed_size("f16", LAYER.hidden, LAYER.dense.ffn)
    assert 0.2 < size / whole.decompress.value / found.value < 5


def test_scores_have_what_the_other_layout_would_add(record):
    """PARK-15: turning the keys and scores as they are, with and without transfers."""
    turned = {r.conditions["link"]: r.figure for r in record.readings if r.what == "reshape" and r.device == "cpu"}
    assert set(turned) == {"idle", "busy"}
    assert all(figure.n == layer_reshape.ROUNDS and figure.value > 0 for figure in turned.values())


def test_turning_is_priced_as_it_was_measured(record, samples):
    """PARK-15: both devices; other sizes are kept, the same size is replaced."""
    costs = CostModel(record, CostOptions())
    for name, turned in samples.reshape.items():
        memory = record.device(name).memory
        task = Task(
            "reshape", "scores.reshape", "decode", name, 2, turned.size, 0, 0, "f16", (memory, memory), layer=0
        )  # fmt: skip
        seconds = quantile(turned.idle, 0.5) * quantile(turned.reads, 0.5) / record.device(name).read.value
        assert costs.price(task).mid == pytest.approx(seconds, rel=0.02)
    known = samples.reshape["cpu"]
    other = replace(known, size=2 * known.size)
    (curve,) = (e for e in with_turning(record.device("cpu"), other, "f16") if e.op == "reshape")
    assert curve.at == (known.size, 2 * known.size)
    again = with_turning(record.device("cpu"), replace(known, idle=[2 * max(known.idle)]), "f16")
    (curve,) = (e for e in again if e.op == "reshape")
    assert len(curve.at) == 1 and curve.share[0].n == 1
    assert {e.format for e in with_turning(record.device("cpu"), other, "bf16") if e.op == "reshape"} == {"f16", "bf16"}


def test_every_part_of_measuring_has_its_seconds(record, samples):
    """PARK-50."""
    parts = {r.conditions["part"]: r.figure.value for r in record.readings if r.what == PART}
    assert len(parts) == STEPS and parts == samples.parts
    assert 0 < sum(parts.values()) <= samples.took_s


def test_what_stayed_disturbed_of_a_table_is_wider_and_named(samples):
    """Each column by what others took while it was measured; of transfers, beside either device."""
    shares = {"host": 0.3, "accelerator": 0.1, "decompress": None, "transfer": 0.2, "transfer_q4": 0.2}
    shaken = replace(
        samples,
        host=replace(samples.host, disturbed=0.3),
        accelerator=replace(samples.accelerator, disturbed=0.1),
        reshape={name: replace(turned, disturbed=0.5) for name, turned in samples.reshape.items()},
        left=UnsettledPoints(disturbed=4, unsteady=1),
    )
    calm, found = (extended(place(), each, SOURCE) for each in (samples, shaken))
    for before, after in zip(calm.tables[0].rows, found.tables[0].rows, strict=True):
        for column, share in shares.items():
            one, other = getattr(before, column), getattr(after, column)
            if one is not None:
                assert other.p90 == pytest.approx(one.p90 / (1.0 - (share or 0.0))) and other.value == one.value
                assert other.disturbed == (share and pytest.approx(share))
    (turning,) = (each for each in found.device("cpu").efficiency if each.op == "reshape")
    assert [share.disturbed for share in turning.share] == [0.5]
    named = {(owner, what) for owner, what, _ in disturbed_figures(found)}
    assert (found.tables[0].name, "q host") in named and (found.tables[0].name, "q transfer") in named
    told = {r.conditions["of"]: r.figure.value for r in found.readings if r.what == DISTURBANCE}
    assert told == {"host": 0.3, "accelerator": 0.1, "turning of keys": 0.5}
    left = {r.conditions["of"]: r.figure.value for r in found.readings if r.what == LEFT}
    assert left == {"disturbed": 4.0, "unsteady": 1.0}
    assert DISTURBANCE not in {r.what for r in calm.readings}


def test_a_disturbed_part_is_measured_again(monkeypatch):
    """Others use one of two processors all the time; half a second passes whenever somebody asks what time it is."""
    monkeypatch.setattr(quality, "ATTEMPTS", 2)
    monkeypatch.setattr(quality, "UNSTEADY", 1e9)
    measured, asked = [], count()

    def counted(*setting, shared):
        measured.append(shared)
        return layer_times.measure_times(*setting, shared=shared)

    def beside_others():
        seconds = 0.5 * next(asked)
        return Moment(seconds, CpuTimes(busy=seconds, total=2.0 * seconds, own=0.0))

    monkeypatch.setattr(table, "measure_times", counted)
    found = measure_table(place(), replace(QUESTION, batch=1, context=1), watch=Watch(beside_others, lambda _: None))
    assert (measured.count(False), measured.count(True)) == (2, 2)
    assert found.left == UnsettledPoints(disturbed=5)
    assert found.host.disturbed == found.moving_disturbed == pytest.approx(0.49)


def test_a_layer_of_learned_positions_and_biases_is_measured():
    found = extended(place(), measure_table(place(), LayerQuestion(OPT_LAYER, context=40, kv_format="bf16")), SOURCE)
    made = found.tables[0]
    assert made.row("gate") is None and made.row("append").transfer is None
    assert made.kv_format == "bf16" and made.row("up").host.value > 0
    bias = 2 * LATENCY + (packed_size("f16", LAYER.dense.ffn, LAYER.hidden) + 4 * LAYER.dense.ffn) / RATE
    assert made.row("up").transfer.p10 >= 0.99 * bias


def test_an_empty_cache_moves_nothing_and_every_part_is_told_of():
    heard = []
    measured = measure_table(place(), LayerQuestion(LAYER, context=1), heard.append)
    assert len(heard) == STEPS
    found = extended(place(), measured, SOURCE).tables[0]
    assert found.row("scores").transfer is None and found.row("wv").decompress is None
    assert found.row("scores").host.value > 0


def test_arrivals_are_what_was_sent():
    layers = Layers(QUESTION, 1 << 20)
    engine = CopyEngine(5e9, 1e-6, two_cpus().cpus[-1])
    traffic = LayerTraffic(layers, engine, loopback_record(two_cpus(), 5e9).link("dram", "vram"))
    traffic.loads = [load for load in traffic.loads if load.column == "transfer"]
    with traffic.flowing():
        while len(traffic.seconds["transfer"].get("down", [])) < 3:
            time.sleep(1e-3)
    blocks = [view(block["up.weight"], np.uint16) for block in layers.blocks]
    at, size = traffic.arrival("up.weight"), layers.blocks[0]["up.weight"].size
    arrived = [view(each.part(at, size), np.uint16) for each in traffic.sets]
    assert all(any(np.array_equal(each, block) for block in blocks) for each in arrived)
    keys = [view(block["keys"], np.uint16).reshape(-1, QUESTION.capacity) for block in layers.blocks]
    at, size = traffic.arrival("keys"), layers.blocks[0]["keys"].size
    arrived = view(traffic.sets[0].part(at, size), np.uint16).reshape(-1, QUESTION.capacity)
    assert any(np.array_equal(arrived[:, :99], each[:, :99]) for each in keys)
    assert not arrived[:, 99:].any()


def test_seconds_are_restated_at_the_recorded_bandwidth():
    assert restated(8000, 1e-6, 8e9, 4e9) == pytest.approx(2.0)  # all of it streams
    assert restated(4000, 1e-6, 8e9, 4e9) == pytest.approx(1.5)
    assert restated(0, 1e-6, 8e9, 4e9) == 1.0
    assert restated(8000, 1e-6, 8e9, 8e9) == 1.0
    assert restated(10**9, 1e-6, 8e9, 16e9) == pytest.approx(0.5)  # served by a cache: never more than all of it


def test_the_host_is_tried_with_fewer_threads():
    found = measure_table(place(cores=4), QUESTION)
    assert list(found.swept) == [1, 2, 3]
    best = min(found.swept, key=lambda threads: found.swept[threads].layer_s)
    assert found.host.threads == best
    made = extended(place(cores=4), found, SOURCE)
    assert made.tables[0].threads == best
    swept = [r.conditions["threads"] for r in made.readings if r.what == "layer"]
    assert swept == [1, 2, 3]
    tried = {
        r.conditions["threads"]: r.figure.value for r in made.readings if r.what == PART and "threads" in r.conditions
    }
    assert list(tried) == [1, 2, 3] and all(seconds > 0 for seconds in tried.values())
    assert sum(tried.values()) <= found.parts[SWEEP]


def test_a_table_is_found_by_all_it_depends_on(record):
    here = replace(place(), hardware=record)
    assert here.known(QUESTION) == record.tables[0]
    same = reshaped(LAYER, name="other", layers=9, vocab=7, eos=(1,))
    assert here.known(replace(QUESTION, model=same)) == record.tables[0]
    others = [
        replace(QUESTION, batch=3), replace(QUESTION, context=101), replace(QUESTION, format="bf16"),
        replace(QUESTION, kv_format="f32"), replace(QUESTION, storage=(Path("/"),)),
        replace(QUESTION, model=reshaped(LAYER, qkv_bias=True)),
    ]  # fmt: skip
    assert [here.known(other) for other in others] == [None] * len(others)
    assert place(rate=2e9).key(QUESTION) != here.key(QUESTION)
    assert place(cores=3).key(QUESTION) != here.key(QUESTION)


def test_a_table_of_the_same_key_is_replaced(record, samples):
    again = extended(replace(place(), hardware=record), replace(samples, took_s=99.0), SOURCE)
    assert len(again.tables) == 1
    took = [r.figure.value for r in again.readings if r.what == TOOK]
    assert took == [99.0]
    other = replace(samples, question=replace(QUESTION, batch=5))
    both = extended(replace(place(), hardware=record), other, SOURCE)
    assert [each.batch for each in both.tables] == [5, 2]
    assert len({r.conditions[TABLE] for r in both.readings if TABLE in r.conditions}) == 2


def test_old_tables_make_room(record, samples, monkeypatch):
    monkeypatch.setattr("helmsman.executor.profile.table_record.TABLES", 2)
    hardware = record
    for batch in (3, 4):
        newer = replace(samples, question=replace(QUESTION, batch=batch))
        hardware = extended(replace(place(), hardware=hardware), newer, SOURCE)
    assert [each.batch for each in hardware.tables] == [4, 3]
    kept = {each.key for each in hardware.tables}
    assert {r.conditions[TABLE] for r in hardware.readings if TABLE in r.conditions} == kept
    assert len([name for name in hardware.sources if name.startswith("table ")]) == 2


def planned(hardware: Hardware, **options: object) -> OpSplit:
    workload = Workload(prompt_tokens=64, output_tokens=71, batch=2, context=136)
    frame = Frame(LAYER, roles(hardware), workload, "f16", "f16")
    return OpSplit(frame, SplitRules(**options), CostOptions())


def test_plans_use_the_table(record):
    """At the table's own context every unit costs what was measured."""
    found = planned(record).table
    columns = dict(zip([unit.op for unit in found.units], zip(found.host, found.weights, strict=True), strict=True))
    assert columns["q"] == pytest.approx((row(record, "q").host.value, row(record, "q").transfer.value))
    assert columns["down"] == pytest.approx((row(record, "down").host.value, row(record, "down").transfer.value))
    assert columns["v"][0] == pytest.approx(row(record, "v").host.value + row(record, "append").host.value)
    packed = planned(record, compress="weights").table
    names = [unit.op for unit in packed.units]
    assert packed.decompress_weights[names.index("up")] == pytest.approx(row(record, "up").decompress.value)


def test_storage_is_measured_and_becomes_a_memory(tmp_path):
    asked = replace(QUESTION, storage=(tmp_path,))
    hardware = extended(place(), measure_table(place(), asked), SOURCE)
    disk = hardware.memory("disk")
    assert (disk.kind, disk.product) == ("nvme", str(tmp_path)) and 0 < disk.available <= disk.capacity
    assert hardware.link("disk", "vram").name == "disk-s2d" and hardware.link("disk", "dram") is not None
    for op in ("q", "k", "v", "o", "gate", "up", "down"):
        assert row(hardware, op).storage.value > 0
    assert row(hardware, "scores").storage is None
    assert list(tmp_path.iterdir()) == []
    stored = planned(hardware, storage=("disk",)).table
    assert all(stored.storage[place_] > 0 for place_, unit in enumerate(stored.units) if unit.op in {"q", "up"})


def test_several_devices_share_every_weight(tmp_path):
    folders = (tmp_path / "a", tmp_path / "b")
    for folder in folders:
        folder.mkdir()
    found = measure_table(place(), replace(QUESTION, storage=folders))
    assert sum(disk.share for disk in found.storage.disks) == pytest.approx(1.0)
    assert all(disk.share >= 0 for disk in found.storage.disks)
    hardware = extended(place(), found, SOURCE)
    (balanced,) = (r for r in hardware.readings if r.what == PART and "iterations" in r.conditions)
    assert balanced.conditions["iterations"] == len(found.storage.balancing.history) >= 1
    assert 0 < balanced.figure.value <= found.parts["storage"]
    assert {memory.name for memory in hardware.memories if memory.kind == "nvme"} == {"disk", "disk2"}
    assert all(row(hardware, op).storage.value > 0 for op in ("q", "up"))
    again = extended(replace(place(), hardware=hardware), found, SOURCE)
    assert [link.name for link in again.links] == [link.name for link in hardware.links]


@together("size", [1, 4096, 18432, 3 * 4096])
@together("shares", [(0.92, 0.08), (0.0, 1.0), (1.0, 0.0), (0.4, 0.3, 0.3)])
def test_parts_of_a_weight_begin_at_blocks(size, shares):
    parts = layer_storage._parts(size, shares)
    assert sum(parts) == size and all(part >= 0 for part in parts)
    assert all(part % 4096 == 0 for part in parts[:-1])


def test_an_interrupted_measurement_leaves_nothing_on_storage(tmp_path, monkeypatch):
    def interrupt(*_):
        assert not list(tmp_path.iterdir()), "the file has lost its name by then"
        raise KeyboardInterrupt

    monkeypatch.setattr(layer_storage, "_round", interrupt)
    with pytest.raises(KeyboardInterrupt):
        measure_table(place(), replace(QUESTION, storage=(tmp_path,)))
    assert not list(tmp_path.iterdir())


def test_a_file_system_without_direct_reads_is_noticed(tmp_path, monkeypatch):
    def buffered(path: str, size: int, direct: bool, create: bool) -> DiskFile:
        return DiskFile(path, size, False, create)

    monkeypatch.setattr(layer_storage, "DiskFile", buffered)
    found = measure_table(place(), replace(QUESTION, storage=(tmp_path,)))
    (reading,) = (r for r in extended(place(), found, SOURCE).readings if r.what == "share")
    assert reading.conditions["direct"] == 0


def test_places_without_room_are_noticed_before_measuring(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="is not a folder"):
        measure_table(place(), replace(QUESTION, storage=(tmp_path / "absent",)))
    small = Machine((0, 1), needed_bytes(QUESTION, 2 << 20), 2 << 20)
    with pytest.raises(HardwareUnavailableError, match="copies of the layer"):
        table.check_room(small, QUESTION)
    usage = namedtuple("Usage", "total used free")
    free = stored_bytes(QUESTION)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(free, 0, free))
    with pytest.raises(HardwareUnavailableError, match="are free"):
        table.check_room(two_cpus(), replace(QUESTION, storage=(tmp_path,)))


def test_a_folder_that_cannot_be_written_is_noticed(tmp_path, monkeypatch):
    def refused(**_: object) -> None:
        raise PermissionError(EACCES, "Permission denied")

    monkeypatch.setattr(layer_storage, "TemporaryFile", refused)
    with pytest.raises(UsageError, match="cannot be written"):
        table.check_room(two_cpus(), replace(QUESTION, storage=(tmp_path,)))


def test_a_record_must_have_an_accelerator_of_this_machine():
    machine = two_cpus()
    hardware = loopback_record(machine)
    alone = hardware.model_copy(update={"devices": hardware.devices[:1], "links": ()})
    with pytest.raises(HardwareUnavailableError, match="need an accelerator"):
        TablePlace.of(alone, machine)
    elsewhere = hardware.model_copy(update={"host": hardware.host.model_copy(update={"cpu": "another"})})
    with pytest.raises(HardwareUnavailableError, match="another machine"):
        TablePlace.of(elsewhere, machine)
