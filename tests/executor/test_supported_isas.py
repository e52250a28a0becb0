"""The tables of kernels that are offered are those for which the system says that the processor has the units."""

import platform
from pathlib import Path

from helmsman.executor import _kernels as kernels

AVX2 = {"avx2", "fma", "f16c"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
VNNI = AVX512 | {"avx512_vnni"}
NEEDED: dict[str, dict[str, set[str]]] = {
    "x86_64": {
        "amx": VNNI | {"avx512_bf16", "amx_tile", "amx_bf16"},
        "avx512bf16": VNNI | {"avx512_bf16"},
        "avx512vnni": VNNI,
        "avx512": AVX512,
        "avxvnni": AVX2 | {"avx_vnni"},
        "avx2": AVX2,
    },
    "aarch64": {
        "neonbf16": {"asimddp", "i8mm", "bf16"},
        "neoni8mm": {"asimddp", "i8mm"},
        "neondot": {"asimddp"},
        "neon": set(),
    },
}
"""By processor family and table, the flags of /proc/cpuinfo that a table needs; the best first."""
REFUSED = {"amx", "avxvnni"}
"""Tables that a processor with the flags may lack: the system may refuse tiles, and old ones do not list AVX-VNNI."""


def test_tables_are_those_that_the_processor_has_units_for() -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    line = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    flags, offered = set(line.partition(":")[2].split()), kernels.supported_isas()
    tables = NEEDED.get(platform.machine(), {})
    expected = [*(name for name, needed in tables.items() if needed <= flags), "portable"]
    assert [name for name in offered if name not in REFUSED] == [name for name in expected if name not in REFUSED]
    assert ("amx" in offered) <= ("amx" in expected)
