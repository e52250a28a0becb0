"""Events, queues and copies that wait for each other."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helmsman.executor._kernels import (
    Arena,
    Buffer,
    CopyEngine,
    DiskFile,
    Event,
    Pool,
    Queue,
    Stage,
    Submissions,
    pack,
    packed_size,
)
from helmsman.executor.devices.move_calls import Move, Pieces, Signals, submit_move
from helmsman.executor.stages.dense import prepared
from helmsman.executor.system.machine import Machine

SIZE = 8192
CPU = Machine.this().cpus[0]


def _buffers(count: int) -> list[Buffer]:
    arena = Arena(count * SIZE)
    return [arena.alloc(SIZE, "test") for _ in range(count)]


def _file(folder: Path) -> DiskFile:
    file = DiskFile(str(folder / "tier"), SIZE, False, True)
    file.write(0, bytes([7]) * SIZE, SIZE)
    return file


def test_queues_and_engines_wait_for_each_other(tmp_path: Path) -> None:
    file, (a, b, c) = _file(tmp_path), _buffers(3)
    first, second, one, two = Queue(), Queue(0), CopyEngine(1e9, 1e-3, -1), CopyEngine(1e9, 1e-3, -1)
    read, copied, back, last = (Event() for _ in range(4))
    times = np.zeros((4, 2))
    second.read(file, 0, c, 0, 64, times[3], [back], last)
    two.submit(c, 0, b, 0, SIZE, [copied], back, times[2])
    one.submit(b, 0, a, 0, SIZE, wait=[read], done=copied, times=times[1])
    assert not last.done
    first.read(file, 0, a, 0, SIZE, times[0], [], read)
    last.wait()
    second.synchronize()
    assert bytes(memoryview(c)) == bytes([7]) * SIZE
    assert (times[1:, 0] >= times[:-1, 1]).all()
    assert read.time <= copied.time <= back.time <= last.time
    last.clear()
    assert not last.done
    with pytest.raises(ValueError, match="not been signalled"):
        _ = last.time


def test_a_failed_item_signals_and_is_raised_once(tmp_path: Path) -> None:
    path, (target,) = tmp_path / "tier", _buffers(1)
    file, queue, failed, later = _file(tmp_path), Queue(), Event(), Event()
    path.write_bytes(b"")
    queue.read(file, 0, target, 0, SIZE, done=failed)
    queue.read(file, 0, target, 0, SIZE, done=later)
    failed.wait()
    later.wait()
    with pytest.raises(OSError, match="tier"):
        queue.synchronize()
    queue.check()


def test_dropping_a_queue_with_pending_items_hangs_nobody(tmp_path: Path) -> None:
    file, (target, source) = _file(tmp_path), _buffers(2)
    queue, engine, never, ends = Queue(), CopyEngine(1e9, 0.0, -1), Event(), [Event(), Event()]
    times = np.zeros(2)
    for _ in range(3):
        queue.read(file, 0, target, 0, SIZE, times, [never], ends[0])
        engine.submit(target, 0, source, 0, SIZE, [never], ends[1], np.zeros(2))
    del queue, engine
    for end in ends:
        end.wait()
    assert not times.any()


def _norm_stage(width: int) -> tuple[Stage, Buffer]:
    """A stage that only norms the last token of a sequence."""
    arena = Arena(1 << 20)
    spec: Any = dict.fromkeys(("cos", "sin", "embedding", "positions", "head"))
    spec |= {"hidden": width, "heads": 1, "kv_heads": 1, "head_dim": width, "ffn": width, "vocab": 1, "norm": "rms"}
    spec |= {"norm_eps": 1e-6, "activation": "relu", "batch": 1, "capacity": 8, "max_tokens": 4, "kv_format": "f32"}
    spec |= {"rotary_dim": 0, "blocks": [], "final_norm": {"weight": np.ones(width, np.float32), "bias": None}}
    workspace = arena.alloc(Stage.workspace_size(prepared(spec)), "workspace")
    return Stage(Pool([CPU]), prepared(spec), workspace, 0), workspace


def test_a_queue_runs_a_stage() -> None:
    """In order, after what it waits for; its operations are stamped, and it is done when its values are there."""
    width, tokens = 16, 3
    stage, workspace = _norm_stage(width)
    source, target, later = _buffers(3)
    values = np.random.default_rng(3).standard_normal((tokens, width)).astype(np.float32)
    np.frombuffer(memoryview(source), np.float32)[: values.size] = values.ravel()
    queue, engine, begin, done = Queue(), CopyEngine(1e9, 5e-3, -1), Event(), Event()
    stamps, times = np.zeros(2), np.zeros(2)
    queue.run(stage, source, None, tokens, 0, stamps, wait=[begin], done=done)
    assert not done.done
    engine.submit(target, 0, later, 0, 64, done=begin, times=times)
    done.wait()
    queue.check()
    assert times[1] <= stamps[0] <= stamps[1] <= done.time
    at = stage.regions()["normed"]["offset"] // 4
    found = np.frombuffer(memoryview(workspace), np.float32)[at : at + width]
    wanted = values[-1] / np.sqrt((values[-1] ** 2).mean() + 1e-6)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_what_a_stage_refuses_a_queue_refuses_at_once() -> None:
    stage, _ = _norm_stage(16)
    queue, (source,) = Queue(), _buffers(1)
    with pytest.raises(ValueError, match="exceed max_tokens"):
        queue.run(stage, source, None, 5, 0, np.zeros(2))
    with pytest.raises(ValueError, match="no range of operations"):
        queue.run(stage, source, None, 1, 0, np.zeros(2), 1, 1)
    queue.synchronize()


def test_waiting_lets_python_go_on() -> None:
    """What is waited for is only begun by another thread of Python, as a rule while this one waits."""
    event, (a, b) = Event(), _buffers(2)
    engine = CopyEngine(1e9, 0.0, -1)

    def begin() -> None:
        time.sleep(0.02)
        engine.submit(a, 0, b, 0, 1, done=event)

    thread = threading.Thread(target=begin)
    thread.start()
    event.wait()
    thread.join()
    assert event.done


def test_a_queue_decompresses_in_order() -> None:
    rows, columns = 32, 64
    values = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    source, target = _buffers(2)
    assert packed_size("q4", rows, columns) <= SIZE
    pack(values, "f32", source, "q4", rows, columns)
    queue, times = Queue(), np.zeros((20, 2))
    for row in times:
        queue.decompress(Pool([0]), source, target, "f32", rows, columns, row)
    queue.synchronize()
    assert (times[1:, 0] >= times[:-1, 1]).all()
    assert np.frombuffer(memoryview(target), np.float32).any()


def test_strided_copies_move_their_pieces_only() -> None:
    a, b = _buffers(2)
    source = np.frombuffer(memoryview(a), np.uint16)
    source[:] = np.arange(SIZE // 2)
    engine = CopyEngine(1e6, 1e-3, -1)
    ticket = engine.submit_strided(b, 2, (1024, 32), a, 4, (512, 16), (4, 10), 2)
    start, end = engine.wait(ticket)
    expected = np.zeros(SIZE // 2, np.uint16)
    for i in range(4):
        for j in range(10):
            expected[1 + i * 512 + j * 16] = source[2 + i * 256 + j * 8]
    np.testing.assert_array_equal(np.frombuffer(memoryview(b), np.uint16), expected)
    assert 1e-3 + 80e-6 <= end - start < 0.02
    with pytest.raises(ValueError, match="do not fit"):
        engine.submit_strided(b, 0, (4096, 1024), a, 0, (0, 0), (2, 5), 2)


def test_prepared_submissions_are_made_in_order_with_every_pass() -> None:
    """Of a chunk, as many bytes as its tokens have; what Python submits takes its turn among the others."""
    a, b = _buffers(2)
    np.frombuffer(memoryview(a), np.uint8)[:] = np.arange(SIZE) % 251
    engine, done, calls = CopyEngine(1e12, 0.0, -1), [Event(), Event()], list[tuple[int, int, bool]]()
    every, times = Submissions(), np.zeros(2)
    every.move(engine, Move(a, 0, b, 0, Pieces(per_token=8)), (1, 4), [], done[0], times.data)
    every.call(lambda tokens, past: (done[0].wait(), calls.append((tokens, past, not done[1].done)))[0])
    rows = Pieces(2, counts=(1, 3), rows=1, at_past=64, source_strides=(0, 16), target_strides=(0, 32))
    every.move(engine, Move(a, 0, b, 4096, rows), (0, 1 << 62), done[:1], done[1])
    for past in (0, 3):
        np.frombuffer(memoryview(b), np.uint8)[:] = 0
        for event in done:
            event.clear()
        every.submit(6, past)
        done[1].wait()
        expected = np.zeros(SIZE, np.uint8)
        expected[: 8 * 2] = np.arange(16)
        for row in range(18):
            at, begin = 4096 + 64 * past + 32 * row, 64 * past + 16 * row
            expected[at : at + 2] = np.arange(begin, begin + 2) % 251
        np.testing.assert_array_equal(np.frombuffer(memoryview(b), np.uint8), expected)
    assert calls == [(6, 0, True), (6, 3, True)]
    assert times[1] > times[0] > 0
    with pytest.raises(ValueError, match="do not fit"):
        every.submit(6, SIZE)


@pytest.mark.parametrize("by_token", [False, True])
def test_of_a_past_beyond_its_reach_a_move_takes_the_last_tokens(by_token: bool) -> None:
    """Submitted with a pass and by Python alike; tokens of 2 bytes, 4 apart where they are pieces of their own."""
    a, b = _buffers(2)
    np.frombuffer(memoryview(a), np.uint8)[:] = np.arange(SIZE) % 251
    apart = 4 if by_token else 2
    pieces = Pieces(per_past=2, reach=5, skips=(2, 2))
    if by_token:
        pieces = Pieces(2, counts=(1, 1), pasts=1, source_strides=(0, 2), target_strides=(0, 4), reach=5, skips=(2, 4))
    move, engine, done, every = Move(a, 0, b, 64, pieces), CopyEngine(1e12, 0.0, -1), Event(), Submissions()
    every.move(engine, move, (0, 1 << 62), [], done)
    by_python = submit_move(engine, move, Signals(np.zeros(2).data, (), done))
    for submit in (every.submit, by_python):
        for past in (3, 5, 9):
            np.frombuffer(memoryview(b), np.uint8)[:] = 0
            done.clear()
            submit(1, past)
            done.wait()
            expected = np.zeros(SIZE, np.uint8)
            for token in range(max(0, past - 5), past):
                expected[64 + apart * token : 66 + apart * token] = [2 * token, 2 * token + 1]
            np.testing.assert_array_equal(np.frombuffer(memoryview(b), np.uint8), expected)
            assert move.total(1, past) == 2 * min(past, 5)
