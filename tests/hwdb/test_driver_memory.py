"""Memory as drivers report it, against totals that programs printed."""

import pytest

from helmsman.hwdb.catalogue import find_gpu
from helmsman.hwdb.driver_memory import GIB, reported_bytes

STATED = {
    "RTX 4090": 23.52,
    "T4": 14.56,
    "A10G": 22.07,
    "L40S": 44.39,
    "A100 SXM 80GB": 79.14,
    "H100 SXM 80GB": 79.19,
    "RTX 5090": 31.37,
    "RTX PRO 6000 Blackwell 96GB": 94.97,
}
"""GiB: PyTorch's total_memory (RTX 4090: LLMServingSim@da26736), total_gpu_memory of vLLM's logs that people posted."""


@pytest.mark.parametrize(("name", "stated"), STATED.items())
def test_cards_report_what_programs_print(name: str, stated: float) -> None:
    gpu, _ = find_gpu(name)
    assert reported_bytes(gpu.name, gpu.capacity) / GIB == pytest.approx(stated, abs=0.2)


def test_gddr_loses_a_sixteenth_where_errors_are_corrected() -> None:
    assert reported_bytes("A40", 48 * GIB) < reported_bytes("RTX A6000", 48 * GIB) - 2.9 * GIB
