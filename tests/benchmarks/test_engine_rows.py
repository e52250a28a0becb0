"""Constants fitted to rows: found again in rows made of them, and the table that the package keeps."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.engine_rows.__main__ import main
from benchmarks.engine_rows.answered import answered_lines
from benchmarks.engine_rows.copies import copy_rate
from benchmarks.engine_rows.devices import device_named
from benchmarks.engine_rows.folds import left_out, summary
from benchmarks.engine_rows.hierarchy import Hierarchy
from benchmarks.engine_rows.models import format_named, model_named
from benchmarks.engine_rows.rows import EngineRow, read_tables
from benchmarks.engine_rows.sweeps import cited
from benchmarks.engine_rows.terms import Question, decode_question, prompt_question
from benchmarks.engine_rows.work import work_of
from benchmarks.strangers.answers import planned
from benchmarks.strangers.rows import OpenRow

from helmsman.hwdb.engine_constants import engine_table
from helmsman.planner.strategies.engines.calibration import HOST_DOUBT

HEAD = (
    "id,source,source_kind,date,gpu,n_gpu,cpu,ram,pcie,model,params_b,quant,weights_gib,engine,split_kind,ngl,n_layers,"
    "n_cpu_moe,split_note,threads,prompt_tokens,gen_tokens,depth_ctx,batch,pp_tok_s,tg_tok_s,metric,quality,note,caution"
)
GPUS = {"RTX 3080": 760e9, "RTX 3090": 936e9, "RTX 3070": 448e9, "RTX 4090": 1008e9, "RTX 4070": 504e9}
OVERHEAD, SHARE = 5e-6, 0.85


def lines() -> list[str]:
    made = []
    for number, (gpu, rate) in enumerate(GPUS.items()):
        for model, quant in (("Llama-2-7B", "Q4_0"), ("Llama-2-7B", "F16"), ("Llama-2-13B", "Q4_0")):
            work = work_of(model, quant, "decode", 1, 64)
            assert work is not None
            seconds = work.operations * OVERHEAD + sum(work.weights.values()) / (rate * SHARE) + work.cache / rate / 0.4
            made.append(
                f"{10 * number + len(made)},a thread,llama-bench,2025,{gpu},1,,,,{model},,{quant},,llama.cpp CUDA,"
                f"full_gpu,all,,,,,512,128,0,1,3000,{1 / seconds:.3f},tg,A,no-FA; build 1,"
            )
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = lines()
    (tmp_path / "single_device_open.csv").write_text("\n".join([HEAD, *rows]) + "\n")
    (tmp_path / "partial_offload_open.csv").write_text(HEAD + "\n")
    eras = "\n".join(f"{row.split(',')[0]},2025+,CUDA" for row in rows)
    (tmp_path / "build_era_open.csv").write_text(f"id,build_era,backend\n{eras}\n")
    return tmp_path


def questions(folder: Path) -> list[Question]:
    return [q for q in map(decode_question, read_tables(folder)) if q is not None]


def test_rows_made_of_constants_are_predicted_without_their_gpu(folder: Path) -> None:
    outcomes = left_out(questions(folder), lambda question: question.device.name)
    said = summary(outcomes)
    assert said.count == 15 and said.p90 < 0.05 and said.covered == 1.0 and said.width > 1.1


def test_a_row_far_off_does_not_pull_the_others(folder: Path) -> None:
    asked = questions(folder)
    asked[0] = replace(asked[0], seconds=3.0 * asked[0].seconds)
    model = Hierarchy(asked)
    everything = np.ones(len(asked), bool)
    said, spread = model.predict(model.fit(everything), everything)
    errors = np.abs(said - np.log([question.seconds for question in asked]))
    assert np.median(errors) < 0.05 < errors[0] and (spread > 0).all()


def test_the_program_writes_the_table_and_prints_the_misses(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = folder / "table.json"
    assert main([str(folder), "--write", str(written)]) == 0
    table = json.loads(written.read_text())
    assert set(table) | {"copies", "latent"} == set(engine_table("llama.cpp"))
    known = table["nodes"]["cuda/gddr/geforce-ampere"]
    assert known["shares"]["4"] == pytest.approx(SHARE, rel=0.1) and known["rows"] == 9
    assert main([str(folder), "--page", str(folder / "page.md")]) == 0
    assert "One GPU left out" in capsys.readouterr().out and "| all | 15 |" in (folder / "page.md").read_text()


def test_what_is_not_known_is_no_question(folder: Path) -> None:
    row: EngineRow = read_tables(folder)[0]
    assert row.era == "2025" and row.backend == "cuda" and not row.flash
    assert prompt_question(row) is not None
    for unknown in (replace(row, gpu="RTX 9999"), replace(row, model="another"), replace(row, quant="?")):
        assert decode_question(unknown) is None and prompt_question(unknown) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA GeForce RTX 3080 10GB", "RTX 3080 10GB"),
        ("Apple M2ultra_192GB", "Apple M2 Ultra 76-core"),
        ("apple-m1-pro-16gb", "Apple M1 Pro 16-core"),
        ("Nvidia RTX 4070 Super", "RTX 4070 SUPER"),
        ("Quadro RTX 6000", "Quadro RTX 6000 24GB"),
        ("RTX 6000 Ada", "RTX 6000 Ada 48GB"),
    ],
)
def test_sources_names_are_devices(text: str, name: str) -> None:
    device = device_named(text, "cuda")
    assert device is not None and device.name == name


def test_the_first_llamas_have_shapes() -> None:
    model = model_named("LLaMA-1-65B")
    assert model is not None and model.layers == 80
    assert [format_named(quant) for quant in ("Q4_K_M", "IQ4_NL - 4.5 bpw", "none")] == ["q4_k", "iq4_nl", None]


def test_the_rate_of_copies_is_measured_again_in_prompts_that_are_predicted_with_the_tables() -> None:
    row = OpenRow(
        number=1, source="one", model="Qwen3-30B-A3B", quant="Q8_0", gpu="RTX 4090 (PCIe 4.0 x16)",
        cpu="AMD Ryzen 9 7950X (16c)", ram_type="2x32GB DDR5-5600", ram_bw_gbs="", engine="llama.cpp b1",
        settings="-ngl 99 --n-cpu-moe 48", context="", prompt_tokens="2048", gen_tokens="128", prefill_tps="",
        decode_tps="", note="", vram_gb="24",
    )  # fmt: skip
    predicted = 2048 / planned(row).predicted.prefill.seconds.mid
    rows = [replace(row, number=n, source=f"source {n}", prefill_tps=str(predicted)) for n in (1, 2)]
    measured = copy_rate(rows, "llama.cpp")
    assert measured is not None and measured["of"] == [1, 2]
    assert measured["rate"] == pytest.approx(engine_table("llama.cpp")["copies"]["rate"], rel=0.05)


def test_the_tables_doubt_of_processors_is_that_of_calibrations() -> None:
    assert engine_table("llama.cpp")["backends"]["cpu"]["doubt"] == HOST_DOUBT


def test_sources_are_cited_whole() -> None:
    assert cited("https://github.com/a/b/pull/2059") == "[github.com/a/b/pull/2059](https://github.com/a/b/pull/2059)"
    assert cited("github:a/b:c/README.md@065bb4f") == "[a/b](https://github.com/a/b/blob/065bb4f/c/README.md)"
    assert cited('page: frankcasanova.net "A | B" (2026)') == 'page: frankcasanova.net "A \\| B" (2026)'


def test_shares_of_rows_that_are_answered(folder: Path) -> None:
    """Of four rows one model is not known here, one processor not stated, and one has a warning."""
    table = folder / "partial_offload_open.csv"
    ran = "llama.cpp CUDA,partial_layers,20,,,,,512,128,0,1,9,9,tg,A,"
    base = f"a thread,llama-bench,2025,RTX 3080,1,{{cpu}},,,{{model}},,Q4_0,,{ran},{{warned}}"
    named = [("AMD Ryzen 9 7950X", "Llama-2-7B", ""), ("AMD Ryzen 9 7950X", "Nobody-3B", ""), ("", "Llama-2-7B", "")]
    named.append(("AMD Ryzen 9 7950X", "Llama-2-7B", "odd"))
    rows = [f"{900 + at},{base.format(cpu=cpu, model=model, warned=odd)}" for at, (cpu, model, odd) in enumerate(named)]
    table.write_text("\n".join([HEAD, *rows]) + "\n")
    lines = list(answered_lines(folder, ()))
    assert "| single_device_open.csv | 15 | 15 | 15 | 100.0% | 100.0% |" in lines
    assert "| partial_offload_open.csv | 3 | 2 | 1 | 50.0% | 100.0% |" in lines
    assert "- partial_offload_open.csv: the processor is not stated: 902" in lines
    assert "- partial_offload_open.csv: no shapes of Nobody-3B are known: 901" in lines
