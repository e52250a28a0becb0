"""arm64 under user-mode emulation: Debian's Python, the packages that tests of kernels import, and the kernels.

All of it is in build/arm64: nothing is installed, and no root is needed. Run as a program, this fetches what is
missing."""

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "arm64"
SYSTEM, PACKAGES, KERNELS = FOLDER / "system", FOLDER / "packages", FOLDER / "cmake"
HELMSMAN, PYTHON = FOLDER / "site", FOLDER / "python3"
TOOLS: Mapping[str, str] = {"qemu-aarch64": "qemu-user", "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu"}
DEBIAN = ("python3.11", "libpython3.11-dev", "libstdc++6")
IMPORTED = ("hypothesis", "numpy", "pydantic", "pytest", "safetensors")
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64")
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"

APT = """APT::Architecture "arm64"; APT::Architectures "arm64"; APT::Install-Recommends "false";
Acquire::Languages "none"; APT::Sandbox::User "root";
Dir::State "{apt}/state"; Dir::State::status "{apt}/status"; Dir::Cache "{apt}/cache"; Dir::Etc "{apt}/etc";
"""
INTERPRETER = """#!/bin/sh
PYTHONPATH={paths} exec qemu-aarch64 -L {system} {system}/usr/bin/python3.11 "$@"
"""


def missing() -> str:
    """Why arm64 cannot be emulated here; empty when it can."""
    tools = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if tools:
        return f"needs {', '.join(tools)}"
    return "" if PACKAGES.exists() else "needs what `make arm64` fetches"


def fetch() -> None:
    """Download and unpack the interpreter and the packages, unless they are there."""
    if not PACKAGES.exists():
        _fetch_system(FOLDER / "apt")
        _fetch_packages()


def build() -> None:
    """Compile the extension modules, put them beside the present Python files, and write the interpreter's script."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    PYTHON.write_text(INTERPRETER.format(paths=f"{HELMSMAN}:{PACKAGES}", system=SYSTEM))
    PYTHON.chmod(0o755)
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": "aarch64",
        "CMAKE_CXX_COMPILER": "aarch64-linux-gnu-g++",
        "CMAKE_CXX_FLAGS": f"-Wno-psabi -idirafter {SYSTEM}/usr/include",  # pyconfig.h is there
        "Python_EXECUTABLE": str(PYTHON),
        "Python_INCLUDE_DIR": str(SYSTEM / "usr/include/python3.11"),  # CMake 4 asks no emulated interpreter
        "pybind11_DIR": _pybind11(),
    }
    _cmake("-S", str(ROOT), "-B", str(KERNELS), *(f"-D{name}={value}" for name, value in options.items()))
    _cmake("--build", str(KERNELS), "--parallel", "2")
    shutil.rmtree(HELMSMAN, ignore_errors=True)
    sources = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "src" / "helmsman", HELMSMAN / "helmsman", ignore=sources)
    _cmake("--install", str(KERNELS), "--prefix", str(HELMSMAN))


def python(*arguments: str, cpu: str = "max") -> subprocess.CompletedProcess[str]:
    """Run the emulated interpreter in the repository, on a processor as `qemu-aarch64 -cpu help` names it."""
    command = ("env", f"QEMU_CPU={cpu}", str(PYTHON), *arguments)
    return subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def _fetch_system(apt: Path) -> None:
    for name in ("state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    (apt / "apt.conf").write_text(APT.format(apt=apt))
    (apt / "etc/sources.list").write_text(f"deb [signed-by={KEYS}] http://deb.debian.org/debian bookworm main\n")
    for action in (("update",), ("install", "--yes", "--download-only", *DEBIAN)):
        _run(("env", f"APT_CONFIG={apt / 'apt.conf'}", "apt-get", "--quiet", *action))
    for archive in sorted((apt / "cache/archives").glob("*.deb")):
        _run(("dpkg-deb", "--extract", str(archive), str(SYSTEM)))
    shutil.rmtree(apt)


def _fetch_packages() -> None:
    platforms = (word for platform in PLATFORMS for word in ("--platform", platform))
    pinned = (f"{name}=={version(name)}" for name in IMPORTED)
    partial = PACKAGES.with_suffix(".partial")
    options = ("--quiet", "--only-binary=:all:", "--implementation", "cp", "--python-version", "3.11")
    _run((sys.executable, "-m", "pip", "install", *options, *platforms, "--target", str(partial), *pinned))
    partial.rename(PACKAGES)


def _pybind11() -> str:
    command = (sys.executable, "-m", "pybind11", "--cmakedir")
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()


def _cmake(*arguments: str) -> None:
    _run((sys.executable, "-m", "cmake", *arguments))


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    fetch()
