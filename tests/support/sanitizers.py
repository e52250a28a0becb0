"""Helm under the compiler's sanitizers: extension modules built with them, and run by tests and by executed plans.

    python tests/support/sanitizers.py address [PYTEST'S WORDS]   # tests of csrc; undefined behaviour, too
    python tests/support/sanitizers.py plans                      # PLANS edited plans, under the same
    python tests/support/sanitizers.py thread [PYTEST'S WORDS]    # tests with threads of csrc, for data races

All of it is in build/sanitized: a virtual environment for each, which has Helm, and the packages of the one that runs
this. Reports are files of its `reports`, printed at the end; those of undefined behaviour go to standard error (GCC's
library heeds no path beside ASan's) and end their process. Any report makes the exit status another than 0."""

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUPPRESSED = Path(__file__).with_name("thread_sanitizer.supp")

PLANS = 10_000
"""That are executed; of three edited plans two or fewer can be."""
CASES = 1000
"""Edited plans between two lines about how far it is."""
SEED = 22
SECONDS = 30
"""That a plan may take, of processor time: sanitized code takes several times as long as it does otherwise."""

SHARED = {
    "PYTHONMALLOC": "malloc",  # else Python's small objects are pieces of what the sanitizer knows as one
    "HELM_FUZZ_SILENCE": "600",
}


@dataclass(frozen=True)
class Sanitizer:
    """A build, what has to be loaded before the interpreter, a program with a fault, and the tests that it runs."""

    name: str
    checks: str
    libraries: Sequence[str]
    options: Mapping[str, str]
    fault: str
    tests: Sequence[str]
    left_out: Sequence[str] = ()

    @property
    def folder(self) -> Path:
        """Where all of it is."""
        return ROOT / "build" / "sanitized" / self.name

    @property
    def python(self) -> Path:
        """The interpreter that imports sanitized modules."""
        return self.folder / "environment" / "bin" / "python"

    def build(self) -> None:
        """Compile the extension modules, and put them beside the present Python files."""
        environment = self.folder / "environment"
        venv.create(environment, symlinks=True)
        packages = environment / "lib" / Path(sysconfig.get_path("purelib")).parent.name / "site-packages"
        (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        shutil.rmtree(packages / "helmsman", ignore_errors=True)
        sources = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / "src" / "helmsman", packages / "helmsman", ignore=sources)
        options = {
            "CMAKE_BUILD_TYPE": "Debug",  # assertions and lines; optimised all the same, as each target says
            "CMAKE_CXX_FLAGS": "-D_GLIBCXX_ASSERTIONS",  # vectors' bounds
            "CMAKE_CXX_FLAGS_DEBUG": "-g1",  # lines are all that reports tell, and variables take longer than code
            "HELM_SANITIZE": self.checks,
            "Python_EXECUTABLE": sys.executable,
            "pybind11_DIR": _printed(sys.executable, "-m", "pybind11", "--cmakedir"),
        }
        built = str(self.folder / "cmake")
        _cmake("-S", str(ROOT), "-B", built, *(f"-D{name}={value}" for name, value in options.items()))
        _cmake("--build", built, "--parallel", "2")
        _cmake("--install", built, "--prefix", str(packages))

    def run(self, *words: str, paths: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """Run the interpreter in the repository; what it prints to standard output is returned."""
        return subprocess.run(self._command(*words), cwd=ROOT, env=self._environment(paths), text=True,
                              stdout=subprocess.PIPE, check=False)  # fmt: skip

    def test(self, words: Sequence[str]) -> int:
        """Run tests, as pytest's words say; the exit status."""
        left_out = (f"--deselect={test}" for test in self.left_out)
        paths = "pythonpath=tests/support tests/executor tests/fuzz ."
        options = (
            "-o",
            paths,
            "-p",
            "no:cacheprovider",
            "--capture",
            "sys",
            "-n",
            "2",
            "--dist",
            "loadfile",
            *left_out,
        )
        command = self._command("-m", "pytest", *options, *(words or self.tests))
        return subprocess.run(command, cwd=ROOT, env=self._environment(()), check=False).returncode

    def reports(self) -> list[Path]:
        """What the sanitizer has found since the last `clear`."""
        return sorted((self.folder / "reports").iterdir())

    def expect_fault(self) -> None:
        """Fail unless a program with a fault is reported: there are no reports either where nothing is watched."""
        self.clear()
        self.run("-c", self.fault)
        assert self.reports(), f"{self.name}: a fault was not reported"
        self.clear()

    def clear(self) -> None:
        """Remove reports of earlier runs."""
        shutil.rmtree(self.folder / "reports", ignore_errors=True)
        (self.folder / "reports").mkdir(parents=True)

    def _command(self, *words: str) -> Sequence[str]:
        # Shadow memory has fixed addresses, which others must not have been given at random.
        return ("setarch", platform.machine(), "--addr-no-randomize", str(self.python), *words)

    def _environment(self, paths: Sequence[str]) -> Mapping[str, str]:
        loaded = (_printed("g++", f"-print-file-name={library}") for library in self.libraries)
        reports = f"log_path={self.folder / 'reports' / 'report'}"
        options = {name: f"{value}:{reports}" for name, value in self.options.items()}
        there = os.pathsep.join(str(ROOT / path) for path in paths)
        return {**os.environ, **SHARED, **options, "LD_PRELOAD": os.pathsep.join(loaded), "PYTHONPATH": there}


BEYOND_A_PIECE = """
import ctypes
from helmsman.executor._kernels import Arena
piece = Arena(2**20).alloc(100, "a piece")
ctypes.memset((ctypes.c_char * 100).from_buffer(piece), 0, 101)
"""
TWO_COPIES_AT_ONCE = """
from helmsman.executor._kernels import Arena, CopyEngine
size, arena, engines = 2**20, Arena(2**22), [CopyEngine(1e9, 0.0, -1) for _ in range(2)]
source, target = arena.alloc(size, "source"), arena.alloc(size, "target")
tickets = [engine.submit(target, 0, source, 0, size) for engine in engines]
for engine, ticket in zip(engines, tickets):
    engine.wait(ticket)
"""

DISK = "tests/executor/test_disk.py"
KERNELS_MEMORY = "tests/executor/test_kernels_memory.py"
AT_A_DEPTH = "tests/executor/test_pager.py::test_a_run_at_a_depth_has_the_steps_of_one_with_the_prompt"
"""It probes memory, which takes minutes."""
BOUNDED = (
    "tests/e2e/test_memory_limits.py",
    "tests/executor/test_room.py",
    "tests/executor/test_template_process.py",
    "tests/executor/test_quantised_loading.py::test_loading_takes_the_home_and_one_tensor",
)
"""They bound memory or address space, of which a sanitizer takes its part: shadow memory is terabytes."""

# The interpreter keeps what it has until it ends: leaks of its own would hide all others.
ADDRESS = Sanitizer(
    "address",
    "address,undefined",
    ("libasan.so", "libubsan.so", "libstdc++.so"),
    {
        # Returned frames are not watched: GCC 12.2 puts them on a stack that is aligned to 32 bytes, where AVX-512
        # registers are saved to 64 (GCC's bug 110027).
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=0:handle_abort=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    },
    BEYOND_A_PIECE,
    ("tests/executor", "tests/scheduler", "tests/simulator", "tests/service", "tests/e2e"),
    (
        # It preloads a library in ASan's place.
        f"{DISK}::test_file_systems_without_direct_transfers_are_used_buffered",
        AT_A_DEPTH,
        *BOUNDED,
    ),
)
THREAD = Sanitizer(
    "thread",
    "thread",
    ("libtsan.so", "libstdc++.so"),
    # Arrow's allocator holds more locks at a fork than those that look for deadlocks can count.
    {"TSAN_OPTIONS": f"suppressions={SUPPRESSED}:history_size=7:die_after_fork=0:detect_deadlocks=0"},
    TWO_COPIES_AT_ONCE,
    ("tests/executor", "tests/service", "tests/e2e/test_served.py"),
    (
        # It counts threads: one is TSan's own.
        f"{KERNELS_MEMORY}::test_copies_take_precedence_where_that_is_permitted_and_work_where_it_is_not",
        # It preloads a library in TSan's place.
        f"{DISK}::test_file_systems_without_direct_transfers_are_used_buffered",
        # Probes of memory take minutes; and traffic beside what is measured writes where that does, on purpose.
        AT_A_DEPTH,
        "tests/executor/test_graphs.py::test_helm_run_through_graphs",
        *(f"tests/executor/test_{name}.py" for name in ("probe", "profile", "profile_run", "profile_table")),
        *BOUNDED,
    ),
)


def execute_plans(sanitizer: Sanitizer) -> int:
    """Execute edited plans until PLANS of them have been; the exit status."""
    paths = ("tests/support", "tests/executor", "tests/fuzz", ".")
    options = ("--json", "--no-memory-limit", "--seconds", str(SECONDS), "--seed", str(SEED), "--cases", str(CASES))
    executed, first = 0, 0
    while executed < PLANS:
        done = sanitizer.run("tests/fuzz/harness.py", *options, "--first", str(first), "plan-executed", paths=paths)
        if done.returncode != 0:
            sys.stderr.write(done.stdout)
            return done.returncode
        executed, first = executed + json.loads(done.stdout)["accepted"], first + CASES
        sys.stderr.write(f"{executed} of {first} edited plans executed\n")
    return 0


def _printed(*command: str) -> str:
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()


def _cmake(*arguments: str) -> None:
    subprocess.run((sys.executable, "-m", "cmake", *arguments), check=True, stdout=sys.stderr)


def main(words: Sequence[str]) -> int:
    """Build, and run what the first word says; the exit status."""
    what, *others = words
    sanitizer = THREAD if what == "thread" else ADDRESS
    sanitizer.build()
    sanitizer.expect_fault()
    status = execute_plans(sanitizer) if what == "plans" else sanitizer.test(others)
    for report in sanitizer.reports():
        sys.stderr.write(report.read_text())
    sys.stderr.write(f"{len(sanitizer.reports())} reports in {sanitizer.folder / 'reports'}\n")
    return status or bool(sanitizer.reports())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
