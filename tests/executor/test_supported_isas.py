"""The tables of kernels that are offered are those for which the system says that the processor has the units."""

import platform
from pathlib import Path

import pytest

from helmsman.executor import _kernels as kernels

AVX2 = {"avx2", "fma", "f16c"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
VNNI = AVX512 | {"avx512_vnni"}
NEEDED = {
    "amx": VNNI | {"avx512_bf16", "amx_tile", "amx_bf16"},
    "avx512bf16": VNNI | {"avx512_bf16"},
    "avx512vnni": VNNI,
    "avx512": AVX512,
    "avxvnni": AVX2 | {"avx_vnni"},
    "avx2": AVX2,
    "portable": set[str](),
}
"""By table, the flags of /proc/cpuinfo that it needs; the best first."""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="flags are called so on x86-64")
def test_tables_are_those_that_the_processor_has_units_for() -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = set(next(line for line in lines if line.startswith("flags")).partition(":")[2].split())
    expected = [name for name, needed in NEEDED.items() if needed <= flags]
    offered = kernels.supported_isas()
    asked = {"amx", "avxvnni"}  # a process asks for tiles and may be refused; old systems do not tell of AVX-VNNI
    assert [name for name in offered if name not in asked] == [name for name in expected if name not in asked]
    assert ("amx" in offered) <= ("amx" in expected)
