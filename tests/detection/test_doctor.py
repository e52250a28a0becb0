"""helm-doctor says what is here and what is missing, on one screen, wherever it is asked."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from control_groups import limited_group
from looked_at import GIB, PLAIN, cpuinfo, looked_at

from helmsman import library
from helmsman.cli.doctor import lines, main
from helmsman.detection import cuda_driver
from helmsman.detection.system import ObservedSystem
from helmsman.diagnosis import diagnose
from helmsman.hwdb.detected_hardware import hardware_of
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.schemas.doctor_report import DoctorReport
from helmsman.schemas.read import parse_document

KERNELS = ("avx2", "portable")
SCREEN = (40, 100)
"""Lines, and letters of the longest."""


def report_of(system: ObservedSystem, profiles: Path | None, kernels: tuple[str, ...] = KERNELS) -> DoctorReport:
    report = diagnose(system, profiles, kernels, 1e9)
    text = list(lines(report))
    assert len(text) <= SCREEN[0] and max(map(len, text)) <= SCREEN[1]
    assert parse_document(DoctorReport, report.to_json().encode(), "doctor") == report
    return report


def missing(report: DoctorReport) -> dict[str, str | None]:
    return {need.purpose: need.missing for need in report.needs}


def test_a_plain_machine_without_a_gpu(tmp_path: Path) -> None:
    report = report_of(looked_at(tmp_path, PLAIN), tmp_path / "cache")
    lacks = missing(report)
    assert all(lacks[purpose] is None for purpose in ("plan", "profile", "run"))
    assert lacks["gpu"] == "no GPU is here" and lacks["serve"] == "aiohttp, prometheus-client not installed"
    assert lacks["engines"] == "no engine is on the path" and report.profile is None and report.assumed
    assert all(need.remedy for need in report.needs if need.missing)


def test_a_container_with_a_limit_of_memory(tmp_path: Path) -> None:
    group = {"sys/fs/cgroup/memory.max": str(GIB), "sys/fs/cgroup/memory.current": str(GIB // 2)}
    report = report_of(looked_at(tmp_path, {**PLAIN, **group}), tmp_path / "cache")
    assert missing(report)["plan"] is None and missing(report)["run"] == "536.87 MB of memory are free"
    assert any(" by the control group" in line for line in lines(report))
    throttled = {**group, "sys/fs/cgroup/memory.max": "max", "sys/fs/cgroup/memory.high": str(2 * GIB)}
    report = report_of(looked_at(tmp_path / "high", {**PLAIN, **throttled}), tmp_path / "cache")
    assert report.machine.memory.allowed == 2 * GIB
    group["sys/fs/cgroup/memory.max"] = str(GIB // 2)
    report = report_of(looked_at(tmp_path, {**PLAIN, **group}), tmp_path / "cache")
    assert missing(report)["plan"] == "536.87 MB of memory"


@pytest.mark.parametrize(
    ("programs", "packages"),
    [
        ({"nvidia-smi": "printf '\\033[0mNVRM: \\001 API mismatch\\n'; exit 9"}, {}),
        ({}, {"nvidia-ml-py": "13"}),
    ],
)
def test_a_broken_driver(tmp_path: Path, programs: dict[str, str], packages: dict[str, str]) -> None:
    pynvml = ModuleType("pynvml")  # without any function
    report = report_of(looked_at(tmp_path, PLAIN, programs, packages, pynvml), tmp_path / "cache")
    assert [problem.what for problem in report.problems] == ["NVIDIA driver"]
    assert str(missing(report)["gpu"]).startswith("NVIDIA driver: ") and missing(report)["run"] is None
    assert all(line.isprintable() for line in lines(report))


@pytest.mark.parametrize(
    ("driver", "told"),
    [
        ("echo 'libcuda.so.1: file too short'; exit 1", "libcuda.so.1 cannot be used: libcuda.so.1: file too short"),
        ("kill -SEGV $$", "by signal 11"),
    ],
)
def test_a_library_that_programs_cannot_use(tmp_path: Path, driver: str, told: str) -> None:
    smi = {"nvidia-smi": "echo 'NVIDIA GeForce RTX 4090, 24564, 23000, 00000000:01:00.0, 4, 1, 16'"}
    report = report_of(looked_at(tmp_path, PLAIN, smi, {"torch": "2"}, driver=driver), tmp_path / "cache")
    assert len(report.machine.gpus) == 1, "nvidia-smi lists the card all the same"
    assert told in str(missing(report)["gpu"]) and "libcuda" in report.problems[0].remedy
    assert any(line.endswith("does not work: see the problem above") for line in lines(report))


def test_the_child_that_opens_the_library_says_why_it_cannot(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")
    command = [sys.executable, "-I", "-S", str(Path(cuda_driver.__file__).with_name("cuda_child.py")), "load"]
    ended = subprocess.run(command, capture_output=True, text=True, env={"LD_LIBRARY_PATH": str(tmp_path)}, check=False)
    assert ended.returncode == 1 and "libcuda.so.1" in ended.stdout and not ended.stderr


def test_a_link_is_told_as_it_is_under_load(tmp_path: Path) -> None:
    smi = {"nvidia-smi": "echo 'NVIDIA GeForce RTX 4090, 24564, 23000, 00000000:01:00.0, 4, 1, 16'"}
    loaded = r"printf '0000:01:00.0\t8.0 GT/s PCIe\t8\n'"
    report = report_of(looked_at(tmp_path, PLAIN, smi, driver=loaded), tmp_path / "cache")
    assert "PCIe 3 x8 under load, of 4 that both ends can do" in " ".join(" ".join(lines(report)).split())
    link = hardware_of(report.machine).hardware.link("dram", "vram")
    assert link is not None and link.kind == "pcie3x8" and not any("idle" in line for line in report.assumed)


def test_a_processor_without_avx2(tmp_path: Path) -> None:
    old = {**PLAIN, "proc/cpuinfo": cpuinfo("Intel(R) Xeon(R) CPU X5650", 6, 2, "sse4_2", "GenuineIntel")}
    report = report_of(looked_at(tmp_path, old), tmp_path / "cache", ("portable",))
    assert "no AVX2" in report.problems[0].problem and missing(report)["run"] is None
    assert not report.machine.processor.flags or "avx2" not in report.machine.processor.flags
    assert missing(report_of(looked_at(tmp_path, old), tmp_path / "cache", ()))["run"] is not None


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "cache", Path("/proc/helmsman"), None):
        report = report_of(looked_at(tmp_path, PLAIN), place)
        assert missing(report)["profile"] == "profiles cannot be kept" and missing(report)["plan"] is None
        assert "XDG_CACHE_HOME" in report.problems[0].remedy
        assert diagnose(looked_at(tmp_path, PLAIN), place, KERNELS, 1e9, repair=True).repaired == ()


def test_a_machine_with_everything(tmp_path: Path) -> None:
    smi = "echo 'NVIDIA GeForce RTX 4090, 24564, 23000, 00000000:01:00.0, 4, 1, 16'"
    programs = {"nvidia-smi": smi, "ollama": "", "llama-server": "", "llama-bench": ""}
    names = ("torch", "transformers", "aiohttp", "fastapi", "uvicorn", "prometheus-client")
    report = report_of(looked_at(tmp_path, PLAIN, programs, dict.fromkeys(names, "1")), tmp_path / "cache")
    assert set(missing(report).values()) == {None} and not report.problems
    assert [engine.name for engine in report.engines] == ["llama-server", "llama-bench", "ollama"]


def test_folders_are_made_and_profiles_of_other_machines_told(tmp_path: Path) -> None:
    cache, system = tmp_path / "a" / "cache", looked_at(tmp_path, PLAIN)
    report = diagnose(system, cache, KERNELS, 1e9, repair=True)
    assert cache.is_dir() and report.repaired == (f"made the folder {cache}",)
    assert diagnose(system, cache, KERNELS, 1e9, repair=True).repaired == ()
    known = load_hardware("rtx4060-laptop", None).to_dict()
    known["host"] = {"cpu": "another", "cores": 4, "ram": GIB}
    (cache / "profile-1.json").write_text(json.dumps(known))
    os.utime(cache / "profile-1.json", (1e9 - 86400, 1e9 - 86400))
    profile = report_of(system, cache).profile
    assert profile is not None and profile.age_days == 1.0 and profile.stale == "it is of another processor, another"


def test_many_models_and_cards_fit_on_a_screen(tmp_path: Path) -> None:
    smi = "; ".join(
        f"echo 'NVIDIA H100 80GB HBM3, 81559, 81000, 00000000:{number:02}:00.0, 5, 5, 16'" for number in range(8)
    )
    for number in range(50):
        place = tmp_path / "home" / ".cache" / "llama.cpp" / f"model-{number}.gguf"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("x")
    report = report_of(looked_at(tmp_path, PLAIN, {"nvidia-smi": smi}), tmp_path / "cache")
    assert len(report.models) == 50 and len(report.machine.gpus) == 8


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield tmp_path


def test_the_command_prints_a_document_and_ends_with_what_is_missing(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["--json", "--fix"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == "helm.doctor/1" and (here / "helmsman").is_dir()
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert "helm-plan" in printed and printed.count("\n") <= SCREEN[0]
    empty = looked_at(here, PLAIN)
    monkeypatch.setattr(library, "diagnose", lambda repair: diagnose(empty, None, KERNELS, 1e9, repair))
    assert main(["--for", "gpu"]) == 6
    assert "no GPU is here" in capsys.readouterr().err
    assert main(["--for", "plan", "--for", "run"]) == 0


def test_a_real_limit_of_memory_is_found() -> None:
    script = "import json; from helmsman.library import diagnose; print(diagnose().to_json())"
    with limited_group(3 * GIB) as members:
        shell = f"echo $$ > {members}; exec {sys.executable} -c '{script}'"
        ended = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout)["machine"]["memory"]["allowed"] == 3 * GIB


EMULATOR = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")


@pytest.mark.skipif(EMULATOR is None, reason="needs Debian's qemu-user, which emulates a processor without AVX2")
def test_an_emulated_processor_without_avx2_has_portable_kernels() -> None:
    script = "from helmsman.library import diagnose; print(diagnose().to_json())"
    command = [str(EMULATOR), "-cpu", "Nehalem", sys.executable, "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(ended.stdout)
    assert report["kernels"] == ["portable"] and "no AVX2" in report["problems"][0]["problem"]
