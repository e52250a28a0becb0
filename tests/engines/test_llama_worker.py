"""The worker that drives llama.cpp: deep caches made of short ones, threads of its programs, and the real engine."""

import struct
import sys
from itertools import cycle, islice
from pathlib import Path

import pytest
from shapes import small_model

from helmsman.engines.engine_process import engine_process, worker_command
from helmsman.engines.fit_support import check_fit
from helmsman.engines.programs import EngineProgram
from helmsman.engines.workers.llama_worker import physical_cores, repeated
from helmsman.executor.checkpoint.gguf_write import write_gguf

LAYERS, CELLS, KEY_ROW, CHANNELS, ELEMENT = 2, 3, 8, 5, 2


def _state(cells: int, transposed: bool) -> bytes:
    """As llama.cpp would write `cells` cells that repeat CELLS of them: every byte names its cell."""
    marks = list(islice(cycle(range(CELLS)), cells))
    state = struct.pack("<IiII", 77, 0, 1, cells) + b"".join(struct.pack("<iIi", at, 1, 0) for at in range(cells))
    state += struct.pack("<II", transposed, LAYERS)
    rows = b"".join(bytes([mark] * KEY_ROW) for mark in marks)
    channels = b"".join(bytes([16 * channel + mark] * ELEMENT) for channel in range(CHANNELS) for mark in marks)
    state += LAYERS * (struct.pack("<iQ", 1, KEY_ROW) + rows)
    if transposed:
        return state + LAYERS * (struct.pack("<iII", 1, ELEMENT, CHANNELS) + channels)
    return state + LAYERS * (struct.pack("<iQ", 1, KEY_ROW) + rows)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("depth", [3, 7, 12])
def test_state_of_a_deep_cache(transposed: bool, depth: int) -> None:
    assert repeated(memoryview(_state(CELLS, transposed)), depth) == _state(depth, transposed)


def test_one_thread_for_every_core(tmp_path: Path) -> None:
    for number, siblings in enumerate(("3", "3", "c", "c")):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings").write_text(siblings)
    assert physical_cores(tmp_path) == 2


@pytest.mark.nightly
def test_a_real_llama_cpp(tmp_path: Path) -> None:
    """Tokens of a prompt and seconds of tests, where the package is at hand."""
    pytest.importorskip("llama_cpp", reason="needs llama-cpp-python: pip install llama-cpp-python")
    place = tmp_path / "m.gguf"
    write_gguf(small_model("llama"), place, 1, "f16")
    program = EngineProgram("llama.cpp", "package", sys.executable)
    settings = {"model": str(place), "context": 64, "flash": "off", "threads": 1}
    with engine_process(worker_command(program, settings), "llama.cpp") as process:
        answers = list(process.answers({"run": [1, 2, 3], "output": 4, "ignore_eos": True}))
        assert [len(answers), answers[-1]] == [5, {"done": True}]
        moments = [answer["at"] for answer in answers[:-1]]
        assert moments == sorted(moments) and process.peak > 0
        assert process.seconds(16, 0, 0) > 0.0 and process.seconds(0, 4, 32) > 0.0
    check_fit(program)
    with engine_process(worker_command(program, {**settings, "fit": 64}), "llama.cpp") as process:
        assert process.seconds(16, 0, 0) > 0.0
