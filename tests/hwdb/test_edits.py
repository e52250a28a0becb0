"""Machines with something changed: each edit changes what it says, and nothing else."""

from dataclasses import replace

import pytest
from together import together

from helmsman.hwdb.compose import Parts, assemble
from helmsman.hwdb.edits import AS_IT_IS, EDITS, check_edit, edited
from helmsman.hwdb.interval_ends import uncertain
from helmsman.hwdb.load_hardware import load_hardware, system_names
from helmsman.hwdb.percentiles import duration_at, rate_at
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import UNEDITED, Edited, Hardware
from helmsman.schemas.read import parse_document

LAPTOP = load_hardware("rtx4060-laptop", None)
EXAMPLES = {
    "vram": "x1.5",
    "ram": "x2",
    "vram_bw": "x1.5",
    "dram_bw": "x0.5",
    "link": "pcie5x16",
    "gpu": "RTX 3090",
    "gpu_flops": "x2",
    "cpu_flops": "x2",
}


def test_as_it_is_changes_nothing() -> None:
    assert edited(LAPTOP, AS_IT_IS) is LAPTOP


def test_memory_grows_and_what_is_kept_for_others_stays() -> None:
    before, after = LAPTOP.memory("vram"), edited(LAPTOP, "vram=12GB").memory("vram")
    assert after.capacity == 12 * 2**30
    assert after.capacity - after.available == before.capacity - before.available
    assert edited(LAPTOP, "ram=x2").memory("dram").capacity == 2 * LAPTOP.memory("dram").capacity


def test_a_faster_memory_is_read_faster_by_its_devices_alone() -> None:
    after = edited(LAPTOP, "dram_bw=x1.5")
    assert after.memory("dram").bandwidth.value == pytest.approx(1.5 * LAPTOP.memory("dram").bandwidth.value)
    assert after.device("cpu").read.value == pytest.approx(1.5 * LAPTOP.device("cpu").read.value)
    assert after.device("cuda") == LAPTOP.device("cuda") and after.memory("vram") == LAPTOP.memory("vram")
    assert edited(LAPTOP, "vram_bw=300GB/s").memory("vram").bandwidth.value == pytest.approx(300e9)


def test_devices_keep_what_edits_multiplied_their_rates_by() -> None:
    after = edited(LAPTOP, "vram_bw=x1.5,gpu_flops=x0.5,vram_bw=x2").device("cuda")
    assert after.edited == Edited(read=3.0, flops=0.5)
    assert edited(LAPTOP, "vram_bw=x2").device("cpu").edited == UNEDITED
    assert "edited" not in LAPTOP.to_json() and '"edited"' in edited(LAPTOP, "cpu_flops=x2").to_json()
    assert edited(LAPTOP, "vram_bw=x2,gpu=RTX 3090").device("cuda").edited == UNEDITED


def test_a_wider_link_is_as_much_faster_as_it_has_more_lanes() -> None:
    after = edited(LAPTOP, "link=pcie4x16")
    for before, link in zip(LAPTOP.links, after.links, strict=True):
        assert link.bandwidth.value == pytest.approx(2 * before.bandwidth.value) and link.kind == "pcie4x16"
    assert [link.bandwidth.value for link in edited(LAPTOP, "link=8GB/s").links] == pytest.approx([8e9, 8e9])


def test_another_gpu_is_what_a_machine_of_two_is_made_of() -> None:
    one = Parts("x", "AMD EPYC 7413", 128 * 10**9, "RTX 3090", 1, "pcie4x16")
    two = assemble(replace(one, gpus=2))
    more = edited(assemble(one), "+1 gpu")
    assert (more.memories, more.devices, more.links) == (two.memories, two.devices, two.links)
    assert edited(assemble(one), "+2 gpus") == edited(assemble(one), "+2 gpus")


def test_links_between_gpus_reach_the_new_one() -> None:
    parts = Parts("x", "AMD EPYC 7413", 128 * 10**9, "RTX 3090", 2, "pcie4x16", peer=50e9)
    three = edited(assemble(parts), "+1 gpu")
    ends = {(link.source_memory, link.target_memory) for link in three.links if link.kind == "peer"}
    vram = ("vram", "vram1", "vram2")
    assert ends == {(one, other) for one in vram for other in vram if one != other}


@pytest.mark.parametrize("name", system_names())
def test_edited_machines_of_the_catalogue_are_valid_records(name: str) -> None:
    hardware = load_hardware(name, None)
    for text in (*(f"{edit}={value}" for edit, value in EXAMPLES.items()), "+1 gpu"):
        try:
            changed = edited(hardware, text)
        except UsageError as error:
            assert error.remedy or error.message
            continue
        assert parse_document(Hardware, changed.to_json().encode(), "x") == changed
        assert changed.name == f"{hardware.name} with {text}"
        assert set(hardware.sources) <= set(changed.sources)


def test_every_edit_has_an_example_here() -> None:
    assert set(EXAMPLES) == set(EDITS)


@together(
    "text",
    [
        "vram",
        "vram=",
        "vram=12",
        "speed=x2",
        "vram=x0",
        "vram=xNaN",
        "+0 gpu",
        "+9 gpus",
        "link=pcie9x3",
        "gpu_flops=3",
    ],
)
def test_what_is_no_edit_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        edited(LAPTOP, text)
    assert caught.value.field in ("changes", "link")


def test_edits_of_gpus_do_not_apply_without_one() -> None:
    cpu = load_hardware("epyc9554-cpu", None)
    for text in ("vram=12GB", "vram_bw=x2", "link=pcie4x8", "gpu_flops=x2", "+1 gpu"):
        with pytest.raises(UsageError, match="no GPU"):
            edited(cpu, text)


def test_figures_go_to_either_end_of_their_interval() -> None:
    for name in uncertain(LAPTOP):
        for end in ("low", "high"):
            assert edited(LAPTOP, f"{name}={end}") != LAPTOP
    read, latency = LAPTOP.device("cuda").read, LAPTOP.links[0].latency
    bandwidth = LAPTOP.links[0].bandwidth
    assert edited(LAPTOP, "h2d.bandwidth=low").links[0].bandwidth.value == rate_at(bandwidth, "low")
    assert edited(LAPTOP, "h2d.latency=high").links[0].latency.value == duration_at(latency, "high")
    assert read.p10 == read.p90 and "cuda.read" not in uncertain(LAPTOP)
    with pytest.raises(UsageError, match="no such figure"):
        edited(LAPTOP, "tpu.read=low")
    with pytest.raises(UsageError, match="not an end"):
        edited(LAPTOP, "cuda.read=middle")


def test_an_edit_is_checked_without_a_machine() -> None:
    for text in (AS_IT_IS, "+1 gpu", "vram=12GB,link=pcie4x8", "cuda.read=low"):
        check_edit(text)
    with pytest.raises(UsageError, match="not an edit"):
        check_edit("vram=12GB,colour=red")
