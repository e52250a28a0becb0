"""Which device plays which part: the first accelerator within reach, and a CPU that reaches it."""

import pytest

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.planner.machine import check_separate, roles, why_unused
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware


def without(name: str, *memories: str) -> Hardware:
    """A machine of the catalogue without the links that begin or end in all of `memories`."""
    hardware = load_hardware(name, None)
    links = (link for link in hardware.links if not set(memories) <= {link.source_memory, link.target_memory})
    return hardware.model_copy(update={"links": tuple(links)})


def test_the_host_is_the_node_that_reaches_the_gpu():
    whole, far = roles(load_hardware("a100-numa", None)), roles(without("a100-numa", "dram", "vram"))
    assert [found.accelerator.name for found in (whole, far)] == ["cuda", "cuda"]
    assert (whole.host.name, far.host.name) == ("cpu", "cpu1")
    assert whole.unused == ("cpu1",) and why_unused(whole.hardware, "cpu1") == "plans use one CPU, cpu"


def test_the_first_gpu_within_reach_is_used():
    machine = without("rtx3090x2-5950x", "vram")
    found = roles(machine)
    assert found.accelerator.name == "cuda1" and found.unused == ("cuda",)
    assert why_unused(machine, "cuda") == "no links both ways between dram and vram"
    assert why_unused(load_hardware("rtx3090x2-5950x", None), "cuda1") == "the plan uses fewer accelerators"


@pytest.mark.parametrize(
    ("machine", "unified"),
    [("m1-16gb", True), ("ryzen-ai-max-395-128gb", True), ("gh200-96gb", False), ("ryzen7950x-cpu", False)],
)
def test_one_memory_is_told_from_two_that_are_near(machine, unified):
    found = roles(load_hardware(machine, None))
    assert found.unified == unified
    if machine == "gh200-96gb":
        check_separate(found, "flexgen")
        return
    with pytest.raises(UsageError, match="offloading gains nothing" if unified else "no accelerator") as refused:
        check_separate(found, "flexgen")
    assert (refused.value.field, refused.value.value) == ("strategy", "flexgen")
    assert "layer-split" in refused.value.remedy
