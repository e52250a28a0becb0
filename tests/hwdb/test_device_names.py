"""Names that drivers, systems, engines and public tables print resolve to devices and models, or are refused."""

import json
import re
import sys
from pathlib import Path
from typing import Literal

import pytest
from together import together

from helmsman.hwdb.catalogue import find_cpu, find_gpu, read_catalogue, reported_gpus
from helmsman.hwdb.compose import compose
from helmsman.hwdb.counted_devices import counted
from helmsman.hwdb.device_names import find_device, read_name
from helmsman.hwdb.load_model import load_model
from helmsman.planner.file_formats import resolve_formats
from helmsman.schemas.errors import BadInputError, UsageError

GIB, MIB = 2**30, 2**20
PUBLISHED = json.loads((Path(__file__).parents[1] / "cases" / "device_names.json").read_bytes())
"""Every device name of three public tables of speeds; null: it names no device, a list: several."""
UNSTATED = re.compile(
    r"not |stated|unnamed|one consumer|series|workstation|GCP|class|Rome|56-core|none|host|x86|GPU 192", re.IGNORECASE
)
"""Of the names that name no device: nothing is stated, a family, a machine, or the other device."""


def resolved(name: str, kind: str) -> str | list[str] | None:
    try:
        bare = re.sub(r"^\d+x ", "", name)
        return (find_gpu(bare) if kind == "gpus" else find_cpu(bare))[0].name
    except UsageError as error:
        assert error.remedy is not None
        return error.remedy.removeprefix("write ").split(" or ") if error.message.startswith("more than one") else None


@pytest.mark.parametrize("kind", ["gpus", "cpus"])
def test_names_of_public_tables_resolve(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = {name: resolved(name, kind) for name in PUBLISHED[kind]}
    assert names == PUBLISHED[kind]
    one = sum(isinstance(answer, str) for answer in names.values())
    several = sum(isinstance(answer, list) for answer in names.values())
    with capsys.disabled():
        sys.stdout.write(f"\n{kind}: {len(names)} names, {one} of one device, {several} of several, rest of none\n")
    assert all(UNSTATED.search(name) for name, answer in names.items() if answer is None)


@together(
    ("name", "device"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 PCIe 40GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM 80GB"),
        ("NVIDIA H100 PCIe", "H100 PCIe 80GB"),
        ("NVIDIA H200", "H200 SXM 141GB"),
        ("NVIDIA GH200 480GB", "GH200 96GB"),
        ("NVIDIA B200", "B200 SXM 180GB"),
        ("Tesla V100-SXM2-16GB", "V100 SXM 16GB"),
        ("Tesla P100-PCIE-16GB", "Tesla P100 PCIe 16GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell 96GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Blackwell Max-Q 96GB"),
        ("AMD Radeon RX 9070 XT", "RX 9070 XT"),
        ("AMD Instinct MI300X", "Instinct MI300X"),
        ("Radeon 8060S Graphics", "Radeon 8060S"),
        ("Intel(R) Arc(TM) B580 Graphics", "Intel Arc B580"),
        ("Intel(R) Iris(R) Xe Graphics", "Intel Iris Xe 96EU"),
        ("Apple M2 Ultra 76-Core GPU", "Apple M2 Ultra 76-core"),
    ],
)
def test_gpus_are_known_as_drivers_print_them(name: str, device: str) -> None:
    assert find_gpu(name)[0].name == device


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("13th Gen Intel(R) Core(TM) i7-13700K", "Intel Core i7-13700K"),
        ("Intel(R) Core(TM) i5-13600KF", "Intel Core i5-13600K"),
        ("Intel(R) Xeon(R) CPU E5-2650 v4 @ 2.20GHz", "Intel Xeon E5-2650 v4"),
        ("AMD EPYC 7713P 64-Core Processor", "AMD EPYC 7713"),
        ("AMD Ryzen Threadripper PRO 3975WX 32-Cores", "AMD Ryzen Threadripper PRO 3975WX"),
        ("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", "AMD Ryzen AI Max+ 395"),
        ("AMD Ryzen 7 5700G with Radeon Graphics", "AMD Ryzen 7 5700G"),
        ("Apple M3 Max", "Apple M3 Max"),
    ],
)
def test_cpus_are_known_as_systems_print_them(name: str, device: str) -> None:
    assert find_cpu(name)[0].name == device


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("RTX 6000", ["Quadro RTX 6000 24GB", "RTX 6000 Ada 48GB"]),
        ("M3 Max", ["Apple M3 Max 30-core", "Apple M3 Max 40-core"]),
        ("Apple M1", ["Apple M1 7-core", "Apple M1 8-core"]),
        ("A100 80GB", ["A100 PCIe 80GB", "A100 SXM 80GB"]),
        ("RTX 5060 Ti", ["RTX 5060 Ti 16GB", "RTX 5060 Ti 8GB"]),
    ],
)
def test_what_means_several_is_refused_with_all_of_them(name: str, candidates: list[str]) -> None:
    answer = resolved(name, "gpus")
    assert isinstance(answer, list) and sorted(answer) == candidates


def test_another_card_is_not_taken_for_one() -> None:
    for name in ("NVIDIA GeForce RTX 2080 with Max-Q Design", "AMD Radeon Graphics", "RTX 4060 16GB", ""):
        assert resolved(name, "gpus") is None


@together(
    ("text", "kind", "named"),
    [
        ("2x RTX 3090", "gpu", (2, "RTX 3090")),
        ("2 x RTX 3090", "gpu", (2, "RTX 3090")),
        ("RTX 3090, RTX 3090", "gpu", (2, "RTX 3090")),
        ("RTX 3090 + NVIDIA GeForce RTX 3090", "gpu", (2, "RTX 3090")),
        ("RTX 3090+RTX 3090", "gpu", (2, "RTX 3090")),
        ("2x RTX 3090 and RTX 3090", "gpu", (3, "RTX 3090")),
        ("RTX 3060, RTX 3060 12GB", "gpu", (2, "RTX 3060 12GB")),
        ("NVIDIA GeForce RTX 3090, 24576 MiB, 8.6", "gpu", (1, "RTX 3090")),
        ("NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes", "gpu", (1, "RTX 3090")),
        ("RTX 5090 (PCIe gen5 x16, 56 GB/s)", "gpu", (1, "RTX 5090")),
        ("Apple M1 Pro 16-core, 16-core GPU", "gpu", (1, "Apple M1 Pro 16-core")),
        ("A100 SXM, 80GB", "gpu", (1, "A100 SXM 80GB")),
        ("2x Intel Xeon Gold 6138 (20c each), 20 threads", "cpu", (2, "Intel Xeon Gold 6138")),
        ("Xeon Platinum 8480+ + Xeon Platinum 8480+", "cpu", (2, "Intel Xeon Platinum 8480+")),
        ("Ryzen AI Max+ 395", "cpu", (1, "AMD Ryzen AI Max+ 395")),
        ("7800X3D", "cpu", (1, "AMD Ryzen 7 7800X3D")),
        ("5800x3d", "cpu", (1, "AMD Ryzen 7 5800X3D")),
        ("2x 9800X3D", "cpu", (2, "AMD Ryzen 7 9800X3D")),
    ],
)
def test_equal_devices_are_counted(text: str, kind: Literal["gpu", "cpu"], named: tuple[int, str]) -> None:
    """All behind a comma was dropped, and 7800X3D was 7,800 of something."""
    count, name = counted(text, kind, kind)
    assert (count, (find_gpu if kind == "gpu" else find_cpu)(name)[0].name) == named


@together(
    ("text", "told"),
    [
        ("RTX 3060, RTX 3090", "different devices cannot be composed by name .* write a record of the machine"),
        ("RTX 3090, 2x RTX 4090", "different devices"),
        ("RTX 3090 & 4090", "more than one GPU is called so"),
        ("RTX 3090, GTX 980", "no GPU of the catalogue is called so .*'GTX 980'"),
        ("RTX 3090, AMD Radeon Graphics", "no GPU of the catalogue is called so"),
        ("5x RTX 3090, 4x RTX 3090", "not a number of devices"),
        ("100x RTX 3090", "not a number of devices"),
    ],
)
def test_cards_that_are_not_equal_are_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        counted(text, "gpu", "gpu")
    assert caught.value.field == "gpu" and "\n" not in str(caught.value)


def test_the_digit_of_a_series_may_be_left_out() -> None:
    for name, device in (("ryzen 5600x", "AMD Ryzen 5 5600X"), ("AMD Ryzen 7840U", "AMD Ryzen 7 7840U")):
        assert find_cpu(name)[0].name == device
    rows = [{"name": "AMD Ryzen 5 5600X"}, {"name": "AMD Ryzen 7 5600X"}]
    with pytest.raises(UsageError, match="more than one CPU is called so"):
        find_device("Ryzen 5600X", rows, "cpu", "CPU")


def test_memory_that_drivers_report_tells_cards_apart() -> None:
    name = "NVIDIA GeForce RTX 4090"
    assert reported_gpus(name, 24564 * MIB) == ["RTX 4090"] and reported_gpus(name, 49140 * MIB) == ["RTX 4090 48GB"]
    assert reported_gpus("NVIDIA GeForce RTX 3060", 12288 * MIB) == ["RTX 3060 12GB"]
    assert reported_gpus("Tesla T4", 15360 * MIB) == ["T4"]  # a sixteenth goes to error correction
    assert reported_gpus("", 16368 * MIB, "1002:747e") == ["RX 7800 XT"]
    assert reported_gpus("", 24 * GIB, "1002:744c") == ["RX 7900 XTX"]
    assert reported_gpus("", 16 * GIB, "1002:7550") == ["RX 9070", "RX 9070 XT"]
    assert reported_gpus("", None, "1234:5678") == []


def test_every_name_of_the_catalogue_is_its_device() -> None:
    for kind in ("gpus", "cpus"):
        rows = read_catalogue(kind)[kind]
        keys = [(read_name(row["name"]).key, read_name(row["name"]).size) for row in rows]
        assert len(set(keys)) == len(rows)
        for row in rows:
            names = resolved(row["name"], kind)
            assert names == row["name"]
            for other in row.get("names", ()):
                answer = resolved(other, kind)
                assert row["name"] in (answer if isinstance(answer, list) else [answer])


def test_graphics_come_in_their_own_chips() -> None:
    gpus = {row["name"] for row in read_catalogue("gpus")["gpus"] if "pcie" not in row}
    inside = {name for row in read_catalogue("cpus")["cpus"] for name in row.get("graphics", ())}
    assert inside <= gpus and {name for name in gpus if name.startswith("Apple")} <= inside
    machine = compose("Radeon 780M", "Ryzen 7 8845HS", 32 * GIB, None)
    assert [device.kind for device in machine.devices] == ["cpu", "rocm"] and not machine.links
    assert compose("RTX 4060 Laptop", "Ryzen 7 8845HS", 32 * GIB, None).links
    assert compose("Intel Arc B580", "i5-12400", 32 * GIB, None).devices[1].kind == "xpu"
    with pytest.raises(UsageError, match="Radeon 8060S, which is in this chip"):
        compose("Radeon 780M", "Ryzen AI Max+ 395", 32 * GIB, None)


@pytest.mark.parametrize(
    ("name", "model", "fmt"),
    [
        ("qwen3:8b-q4_K_M", "Qwen3-8B", "q4_k"),
        ("qwen3:8b", "Qwen3-8B", "q4_k"),
        ("qwen3:30b", "Qwen3-30B-A3B", "q4_k"),
        ("llama3.1:8b", "Llama-3.1-8B", "q4_k"),
        ("Llama 3.1:70b", "Llama-3.1-70B", "q4_k"),
        ("llama3.1:8b-instruct-q8_0", "Llama-3.1-8B", "q8_0"),
        ("gpt-oss:20b", "gpt-oss-20b", "mxfp4"),
        ("gemma3:4b", "gemma-3-4b-it", "q4_k"),
        ("deepseek-r1:671b", "DeepSeek-R1", "q4_k"),
        ("mixtral:8x7b", "Mixtral-8x7B-v0.1", "q4_k"),
        ("phi4", "phi-4", "q4_k"),
        ("phi-4", "phi-4", "f16"),
        ("llama3.2", "Llama-3.2-3B", "q4_k"),
        ("llama3.2:latest", "Llama-3.2-3B", "q4_k"),
        ("llama3.2:1b", "Llama-3.2-1B", "q4_k"),
        ("ollama.com/library/llama3.1", "Llama-3.1-8B", "q4_k"),
        ("gemma3", "gemma-3-4b-it", "q4_k"),
        ("mistral", "Mistral-7B-v0.1", "q4_k"),
        ("Qwen/Qwen3-8B", "Qwen3-8B", "f16"),
        ("unsloth/Qwen3-8B-GGUF", "Qwen3-8B", "q4_k"),
        ("hf.co/unsloth/Qwen3-8B-GGUF:Q4_K_M", "Qwen3-8B", "q4_k"),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "Llama-3.1-8B", "q4_k"),
        ("Qwen3-8B-Q8_0", "Qwen3-8B", "q8_0"),
    ],
)
def test_models_are_known_as_engines_and_hubs_print_them(name: str, model: str, fmt: str) -> None:
    known = load_model(name)
    assert known.name == model and resolve_formats(None, name, known)[0] == fmt
    assert resolve_formats("f32", name, known) == ("f32", {})


@pytest.mark.parametrize(
    "name",
    ["qwen3", "deepseek-r1:8b", "Qwen3-30B-A3B-Instruct-2507", "qwen2.5-coder:14b", "Qwen/Qwen3-8B-AWQ", "a:b:c"],
)
def test_models_of_another_structure_are_not_taken_for_one(name: str) -> None:
    with pytest.raises((UsageError, BadInputError)):
        load_model(name)


def test_a_format_that_nobody_plans_by_name_is_refused() -> None:
    name = "unsloth/Qwen3-8B-GGUF:UD-Q4_K_XL"
    with pytest.raises(UsageError, match="ud-q4_k_xl") as caught:
        resolve_formats(None, name, load_model(name))
    assert caught.value.field == "format" and resolve_formats("q4_k_m", name, load_model(name))[0] == "q4_k"
