"""Another GPU in a machine: as if composed so, with processors and host memory as they were."""

import pytest

from helmsman.hwdb.compose import compose
from helmsman.hwdb.edits import edited
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.read import parse_document
from helmsman.studies.questions.upgrades import single_upgrades

LAPTOP = "rtx4060-laptop"


def test_a_card_is_exchanged_and_all_else_stays() -> None:
    machine = load_hardware(LAPTOP, None)
    changed = edited(machine, "gpu=RTX 3090")
    assert changed.device("cuda").product == "RTX 3090" and changed.memory("vram").capacity == 24 * 2**30
    assert changed.device("cpu") == machine.device("cpu") and changed.memory("dram") == machine.memory("dram")
    composed = compose("RTX 3090", "Intel Core i7-13700H", 16 * 10**9, None)
    assert changed.device("cuda") == composed.device("cuda") and changed.links == composed.links
    assert parse_document(Hardware, changed.to_json().encode(), "x") == changed


def test_a_machine_without_a_card_gets_some() -> None:
    changed = edited(load_hardware("ryzen7950x-cpu", None), "gpu=2x RTX 3060 12GB")
    assert [device.kind for device in changed.devices] == ["cpu", "cuda", "cuda"]
    assert {link.kind for link in changed.links} == {"pcie4x8"}, "two cards divide a slot's lanes"


def test_cards_of_boards_with_a_fabric_are_joined_by_it() -> None:
    parts = "Intel Xeon Platinum 8480+", 10**12, None
    two, one = compose("2x H100 SXM", *parts), edited(compose("RTX 4090", *parts), "gpu=H100 SXM")
    assert edited(compose("RTX 4090", *parts), "gpu=H100 SXM + H100 SXM").links == two.links
    more = edited(one, "+1 gpu")
    assert set(more.links) == set(two.links) and parse_document(Hardware, more.to_json().encode(), "x") == more
    assert edited(compose("L40S", *parts), "+1 gpu").link("vram", "vram1") is None


def test_what_is_no_card_is_refused() -> None:
    for machine, edit, told in (
        (LAPTOP, "gpu=Apple M1 8-core", "part of a chip"),
        (LAPTOP, "gpu=RTX 9999", "no GPU of the catalogue"),
        ("m1-16gb", "gpu=RTX 3090", "part of its chip"),
    ):
        with pytest.raises(UsageError, match=told):
            edited(load_hardware(machine, None), edit)


def test_upgrades_are_such_as_apply() -> None:
    laptop, chip, alone = (single_upgrades(load_hardware(name, None)) for name in (LAPTOP, "m1-16gb", "ryzen7950x-cpu"))
    assert {"gpu=RTX 3060 12GB", "+1 gpu", "link=x2", "dram_bw=x2", "ram=x2"} <= set(laptop)
    assert chip == ("ram=x2", "dram_bw=x2")
    assert "gpu=RTX 3090" in alone and "+1 gpu" not in alone
    assert not [edit for edit in single_upgrades(load_hardware("rtx5090-9950x", None)) if "3060" in edit]
    for name, edits in ((LAPTOP, laptop), ("m1-16gb", chip), ("ryzen7950x-cpu", alone)):
        assert all(edited(load_hardware(name, None), edit).name.endswith(edit) for edit in edits)
