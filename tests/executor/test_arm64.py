"""The kernels on arm64, cross-compiled and run by the tests of every other processor under user-mode emulation."""

import pytest
from arm64 import HELMSMAN, build, missing, python

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(bool(missing()), reason=missing())]

NAMES = "from helmsman.executor import _kernels; print(*_kernels.supported_isas())"
MODULES = (
    "attention_spans",
    "blocks",
    "cache_rows",
    "compress",
    "kernels_experts",
    "kernels_gates",
    "kernels_linear",
    "kernels_memory",
    "kernels_quantised",
    "kernels_recurrent",
    "kernels_router",
    "kernels_split_attention",
    "quantised_blocks",
    "stage_native",
    "stage_quantised",
    "stage_segments",
)
OTHER_PROCESSES = "test_copies_take_precedence_where_that_is_permitted_and_work_where_it_is_not"
"""A test that starts the interpreter again, which only the emulator can run."""
PATHS = f"pythonpath={HELMSMAN} tests/support tests/executor ."


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    build()


@pytest.mark.parametrize(
    ("cpu", "names"),
    [
        ("max", "neonbf16 neoni8mm neondot neon portable"),
        ("neoverse-n1", "neondot neon portable"),
        ("cortex-a53", "neon portable"),
    ],
)
def test_tables_are_those_of_the_processor(cpu: str, names: str) -> None:
    assert python("-c", NAMES, cpu=cpu).stdout.split() == names.split()


@pytest.mark.parametrize("module", MODULES)
def test_what_is_true_of_kernels_is_true_on_arm64(module: str) -> None:
    options = ("-q", "-p", "no:cacheprovider", "-o", PATHS, "-k", f"not {OTHER_PROCESSES}")
    ran = python("-m", "pytest", *options, f"tests/executor/test_{module}.py")
    assert ran.returncode == 0, ran.stdout


def test_processors_without_dot_products_multiply_quantised_weights_too() -> None:
    options = ("-q", "-p", "no:cacheprovider", "-o", PATHS)
    ran = python("-m", "pytest", *options, "tests/executor/test_kernels_quantised.py", cpu="cortex-a53")
    assert ran.returncode == 0, ran.stdout
