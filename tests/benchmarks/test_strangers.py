"""Rows of others' measurements: answered as their sources state them, or refused by reason; pairs of placements."""

from pathlib import Path

import pytest
from benchmarks.strangers.__main__ import main
from benchmarks.strangers.answers import answer
from benchmarks.strangers.machines import machine_of
from benchmarks.strangers.models import format_of, model_of
from benchmarks.strangers.pairs import pairs_of
from benchmarks.strangers.placements import placement_of
from benchmarks.strangers.rows import COLUMNS, OpenRow, UnansweredError, read_rows

ROW = {
    "source": "a thread", "model": "Qwen3-30B-A3B-Instruct-2507", "quant": "Q4_0", "gpu": "RTX 4080 (PCIe 4.0 x16)",
    "cpu": "AMD Ryzen 9 7950X (16c)", "ram_type": "2x32GB DDR5-5600", "ram_bw_gbs": "", "engine": "llama.cpp b1",
    "settings": "-ngl 99 --n-cpu-moe 36", "context": "", "prompt_tokens": "", "gen_tokens": "", "prefill_tps": "",
    "decode_tps": "40", "note": "", "vram_gb": "16",
}  # fmt: skip


def row(**columns: str) -> OpenRow:
    return OpenRow(1, **{**ROW, **columns})


def written(path: Path, *rows: OpenRow) -> Path:
    lines = [",".join(f'"{getattr(one, column)}"' for column in COLUMNS) for one in rows]
    path.write_text("\n".join([",".join(COLUMNS), *lines]) + "\n")
    return path


def test_a_row_is_answered_by_its_own_machine_and_placement() -> None:
    machine = machine_of(row(ram_bw_gbs="61.5"), 64 * 2**30)
    assert machine.device("cpu").read.value == machine.memory("dram").bandwidth.value == 61.5e9
    assert machine.memory("dram").product == "DDR5-5600, 2 channels"
    given = answer(row())
    assert given.reason == "" and given.prefill is None and given.decode is not None
    assert dict(given.errors()) == {"decode": given.decode / 40 - 1}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"model": "Qwen3.8-Flash-Next 125B-A6B"}, "no shapes"),
        ({"cpu": "not stated"}, "processor is not stated"),
        ({"gpu": "RTX 9999"}, "gpu RTX 9999"),
        ({"engine": "Krasis"}, "rules that no strategy has"),
        ({"engine": "KT-Kernel + SGLang"}, "placement is not stated"),
        ({"engine": "llama.cpp moe-cache fork"}, "cached"),
        ({"settings": "hybrid"}, "placement is not stated"),
        ({"quant": "not stated"}, "no format"),
        ({"settings": "--n-cpu-moe 36 -ser 6,1"}, "more is changed"),
        ({"settings": "--n-cpu-moe 36, MTP"}, "more is changed"),
        ({"settings": "--n-cpu-moe 36, 8 concurrent"}, "more is changed"),
        ({"cpu": "16-thread CPU (unnamed)"}, "processor is not stated"),
        ({"settings": "all but the last 3 layers"}, "placement is not stated"),
    ],
)
def test_others_are_left_by_reason(columns: dict[str, str], reason: str) -> None:
    given = answer(row(**columns))
    assert reason in given.reason and given.lack is not None


@pytest.mark.parametrize(
    "columns",
    [
        {"cpu": "not stated", "settings": "fully in VRAM", "gpu": "RTX 5090"},
        {"cpu": "Intel Xeon QYFS ES (8480-class, 56c)"},
        {"settings": "--n-cpu-moe 36, no MTP"},
        {"model": "qwen2.5-coder:14b", "engine": "ollama", "settings": "-ngl 49"},
        {"model": "DeepSeek-V4-Pro", "engine": "KTransformers", "settings": "--kt-num-gpu-experts 0", "gpu": "B200"},
    ],
)
def test_what_a_row_says_in_other_words_is_answered(columns: dict[str, str]) -> None:
    assert answer(row(**columns)).reason == ""


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ("-ngl 63 -ot exps=CPU -t 24", {"cpu_moe": True, "threads": 24}),
        ("CPU only, th 13", {"ngl": 0, "threads": 13}),
        ("28 MoE layers on CPU", {"n_cpu_moe": 28}),
        ("-ot ffn of layers 46-47 =CPU", {"override_tensor": r"blk\.(46|47)\.ffn.*=CPU"}),
        ("FFN of layers 0-44 on GPU", {"override_tensor": r"blk\.(45|46|47)\.ffn.*=CPU"}),
        ("-rtr -ot exps=CPU", {"cpu_moe": True, "no_op_offload": True}),
        ("--fit on", {"fit": True}),
        ("-ngl 20", {"ngl": 20}),
    ],
)
def test_settings_are_read_as_flags(settings: str, flags: dict[str, object]) -> None:
    stated = row(settings=settings)
    assert placement_of(stated, model_of(stated)).flags == {**flags, "flash_attn": "on"}


def test_the_bytes_of_a_file_say_which_format_a_mixture_is_nearest_to() -> None:
    model = model_of(row())
    assert format_of(row(quant="Q4_K_M"), model) == "q4_k"
    assert format_of(row(quant="Q4_K_M 16.8 GiB"), model) == "q4_k"
    assert format_of(row(quant="custom 30 GiB"), model) == "q8_0"


def test_pairs_are_of_one_machine_and_two_placements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The slower placement has more experts with the processors; two runs of the other are one."""
    fewer = row(settings="-ngl 99 --n-cpu-moe 20", decode_tps="60")
    elsewhere = row(settings="-ngl 99 --n-cpu-moe 20", decode_tps="60", cpu="AMD Ryzen 9 9950X")
    again = row(settings="-ngl 99 --n-cpu-moe 20", decode_tps="50")
    file = written(tmp_path / "rows.csv", row(), fewer, elsewhere, row(settings="unknown"), again)
    pairs = list(pairs_of(answer(one) for one in read_rows(file)))
    numbers = [[run.row.number for run in runs] for pair in pairs for runs in (pair.one, pair.other)]
    assert numbers == [[1], [2, 5]] and pairs[0].phase == "decode"
    assert pairs[0].right and pairs[0].measured == pytest.approx(40 / 55) and pairs[0].said < 1
    assert main([str(file)]) == 0
    assert "4 of 5 rows are answered" in capsys.readouterr().out
    with pytest.raises(UnansweredError, match="no column"):
        (tmp_path / "other.csv").write_text("source\nx\n")
        read_rows(tmp_path / "other.csv")
