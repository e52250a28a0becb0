"""helm-list, and what commands understand of names that are nearly right."""

import json
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from helmsman.cli.list import main
from helmsman.cli.plan import main as plan
from helmsman.hwdb.catalogue import find_cpu, find_gpu
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.file_formats import resolve_formats
from helmsman.planner.registry import FORMER, method
from helmsman.schemas.between_passes import BetweenPasses
from helmsman.schemas.errors import UsageError
from helmsman.schemas.listing import Kind, Listing
from helmsman.schemas.read import parse_document

SMALL = ("--model", "Qwen3-0.6B", "--hw", "rtx4060-laptop", "--prompt-tokens", "32", "--output-tokens", "4")


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_is_listed_for_people_programs_and_completions(
    kind: Kind, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([kind, "--json"]) == 0
    found = parse_document(Listing, capsys.readouterr().out.encode(), "x")
    names = [entry.name for entry in found.entries]
    assert main([kind]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(names) and all(line.startswith(name) for line, name in zip(lines, names, strict=True))
    assert main([kind, "-q", "-o", str(tmp_path / "names.json")]) == 0
    assert capsys.readouterr().out.splitlines() == [name.replace(" ", "_") for name in names]
    assert parse_document(Listing, (tmp_path / "names.json").read_bytes(), "x") == found
    assert all(entry.about for entry in found.entries) and len(set(names)) == len(names)


def test_listed_names_are_understood() -> None:
    def names(kind: Kind) -> list[str]:
        from helmsman.analysis.listing import listing

        return [entry.name for entry in listing(kind).entries]

    assert all(load_model(name).name for name in names("models")[:5])
    assert all(load_hardware(name, None).name for name in names("machines")[:5])
    assert all(find_gpu(name.replace(" ", "_"))[0].name == name for name in names("gpus"))
    assert all(find_cpu(name.replace(" ", "_"))[0].name == name for name in names("cpus"))
    assert all(method(name).name == name for name in names("strategies"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--strategy", "optimum"), "did you mean optimal?"),
        (("--objective", "latencies"), "did you mean latency?"),
        (("--format", "q4km"), "did you mean q4_k"),
        (("--vram-available", "1GiB"), "did you mean --vram-avail?"),
        (("--stratgey", "best"), "did you mean --strategy?"),
        (("--kv-format", "q7"), "use f32, f16, bf16"),
    ],
)
def test_what_is_nearly_right_is_told(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan([*SMALL, *words, "--json"]) == 2
    assert says in json.loads(capsys.readouterr().out)["error"]["remedy"]


def test_names_as_shops_and_files_write_them() -> None:
    assert find_gpu("RTX 4060 8GB")[0].name == find_gpu("GeForce RTX_4060 (8 GB)")[0].name == "RTX 4060"
    assert find_cpu("i5-12400F")[0].name == find_cpu("Intel Core i5-12400F")[0].name == "Intel Core i5-12400"
    assert find_gpu("P40 24GB")[0].name == "Tesla P40" and find_cpu("12400F")[0].name == "Intel Core i5-12400"
    for unknown in ("RTX 4060 16GB", "EPYC 9554F"):
        with pytest.raises(UsageError, match="did you mean"):
            find_gpu(unknown) if "RTX" in unknown else find_cpu(unknown)


def test_a_mixture_is_planned_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    """As a file of that mixture is: values and `down` have more bits in some blocks, the output everywhere."""
    model = load_model("Qwen3-8B")
    most, formats = resolve_formats("q4_k_m", "Qwen3-8B", model)
    assert most == "q4_k" and set(formats.values()) == {"q4_k", "q6_k"}
    assert formats["head.weight", None] == formats["down.weight", 0] == formats["v.weight", 35] == "q6_k"
    assert formats["gate.weight", 0] == formats["embedding.weight", None] == "q4_k"
    assert plan([*SMALL, "--format", "Q4_K_M", "--strategy", "layer-split"]) == 0
    assert "weights, f16 KV" in capsys.readouterr().out
    assert plan([*SMALL, "--format", "FP16", "--strategy", "layer-split"]) == 0


def test_former_names_of_strategies_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    for former, name in FORMER.items():
        assert plan([*SMALL, "--strategy", former, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["strategy"]["name"] == name


def test_processors_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Everything is on them, and it takes what the same processors take in a machine without an accelerator."""
    assert plan([*SMALL, "--strategy", "cpu-only", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["strategy"]["name"] == "cpu-only" and {rule["device"] for rule in made["compute"]} == {"cpu"}
    assert plan(["--model", "Llama-2-70b-hf", *SMALL[2:], "--strategy", "cpu-only", "--json"]) == 3


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_completion_scripts_ask_for_names(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        plan(["--completion", shell])
    script = capsys.readouterr().out
    assert "helm-list models -q" in script
    if shell == "tcsh":
        assert "'c/--model=/`helm-list models -q`/'" in script, "one word"
    if shell == "bash":
        (tmp_path / "script").write_text(script)
        subprocess.run(["bash", "-n", tmp_path / "script"], check=True)


def test_help_begins_with_what_everybody_needs(capsys: pytest.CaptureFixture[str]) -> None:
    """Two screens at most; everything is there on request, and a strategy's own options where it is named."""
    told = {}
    for words in (("--help",), ("--help-all",), ("--strategy", "op-split", "--help")):
        with pytest.raises(SystemExit):
            plan(list(words))
        told[words[-1], len(words)] = capsys.readouterr().out
    short, everything, split = told["--help", 1], told["--help-all", 1], told["--help", 3]
    assert len(short.splitlines()) <= 80 and max(map(len, short.splitlines())) <= 100
    assert "--prefix-tokens" not in short and "--chunks" not in short and "--help-all" in short
    assert all(option in everything for option in ("--prefix-tokens", "--risk", "--chunks", "--percent", "--ngl"))
    assert "--chunks" in split and "--prefix-tokens" in split


def test_every_option_has_a_help_text() -> None:
    from helmsman.cli.plan import build_parser

    assert all(action.help for action in build_parser()._actions)


def test_processors_alone_of_a_measured_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is known of passes that end on other devices goes with these; memory that is shared stays."""
    record = load_hardware("rtx4060-laptop", None)
    figure = record.device("cpu").read.model_copy(update={"value": 1e-4, "p10": 1e-4, "p90": 1e-4})
    between = BetweenPasses(begin={"cpu": figure, "cuda": figure}, submission=figure)
    shared = record.memory("dram").model_copy(update={"name": "big"})
    memories = [each.model_copy(update={"shares": "big"}) if each.name == "dram" else each for each in record.memories]
    known = record.model_copy(update={"between_passes": between, "memories": (*memories, shared)})
    place = tmp_path / "hw.json"
    place.write_text(known.to_json())
    assert plan([*SMALL[:2], "--hw", str(place), "--strategy", "cpu-only", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert set(made["hardware"]["between_passes"]["begin"]) == {"cpu"}
    assert [each["name"] for each in made["hardware"]["memories"]] == ["dram", "big"]
