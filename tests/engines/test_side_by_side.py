"""`helm-bench --engine`: engines in turns, in llama-bench's columns."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_engine import fake_python
from shapes import small_model

from helmsman.cli import bench as helm_bench
from helmsman.engines.bench_text import bench_csv
from helmsman.engines.llama_command import LlamaCommand
from helmsman.engines.programs import EngineProgram
from helmsman.engines.sides import HelmSide, LlamaBenchSide
from helmsman.executor.checkpoint.gguf_write import write_gguf
from helmsman.executor.measuring import bench as benching
from helmsman.schemas.engine_bench import EngineBench
from helmsman.schemas.read import read_document

Bench = Callable[..., tuple[int, str, str]]


@pytest.fixture
def bench(tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Bench:
    place = tmp_path / "m.gguf"
    write_gguf(small_model("llama"), place, 1, "f16")
    monkeypatch.setattr(HelmSide, "seconds", lambda side, tests: tuple(0.25 for _ in tests))
    python = fake_python(tmp_path)

    def call(*argv: object) -> tuple[int, str, str]:
        words = (place, "--engine-python", python, "--hw", "rtx4060-laptop", *argv)
        return helm_bench.main(list(map(str, words))), *capsys.readouterr()

    return call


def test_engines_stand_beside_each_other(bench: Bench, tmp_path: Path) -> None:
    asked = ("--engine", "helm,llama.cpp", "-p", 8, "-n", 5, "-d", 0, "-r", 2, "-o", tmp_path / "bench.json")
    code, out, err = bench(*asked)
    assert code == 0, err
    rows = [line.strip("|").split("|") for line in out.splitlines() if " ± " in line and line.startswith("|")]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert [(row[5], row[6], row[7]) for row in cells] == [
        ("helm", "pp8", "32.00 ± 0.00"), ("llama.cpp", "pp8", "16.00 ± 0.00"),
        ("helm", "tg5", "20.00 ± 0.00"), ("llama.cpp", "tg5", "10.00 ± 0.00"),
    ]  # fmt: skip
    assert all(row[8] != "-" for row in cells) and "llama.cpp: llama.cpp (llama-cpp-python 9.9): llama-server" in out
    document = read_document(EngineBench, tmp_path / "bench.json")
    listed = list(csv.DictReader(io.StringIO(bench_csv(document))))
    assert [row["engine"] for row in listed] == ["helm", "llama.cpp"] * 2
    assert float(listed[1]["avg_ts"]) == document.engines[1].results[0].avg_ts == 16.0
    assert len(document.engines[0].results[0].samples_ns) == 2


@pytest.mark.parametrize(("words", "said"), [(("helm,vllm",), "no engine that is compared"), (("helm,",), "no name")])
def test_engines_that_are_not_compared(bench: Bench, words: tuple[str, ...], said: str) -> None:
    code, _, err = bench("--engine", *words)
    assert code == 2 and said in err


def test_seconds_by_llama_bench(tmp_path: Path) -> None:
    program = tmp_path / "llama-bench"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/flags\necho \'[{{"avg_ns": 250000000}}]\'\n')
    program.chmod(0o755)
    side = LlamaBenchSide(
        EngineProgram("llama.cpp", "llama-bench", str(program)), LlamaCommand.of("-fa on -t 2"), Path("m.gguf")
    )
    assert side.seconds([benching.Test(8, 0, 0), benching.Test(0, 4, 16)]) == (0.25, 0.25)
    assert (tmp_path / "flags").read_text().splitlines() == [
        "-m m.gguf -fa 1 -t 2 -p 8 -n 0 -d 0 -r 1 -o json", "-m m.gguf -fa 1 -t 2 -p 0 -n 4 -d 16 -r 1 -o json"
    ]  # fmt: skip
