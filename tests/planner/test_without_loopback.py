"""Machines as engines of others find them: a loopback accelerator is of Helm's executor alone."""

from plans import make_hardware, sharing_hardware
from shapes import small_model

from helmsman.library import plan
from helmsman.planner.machine import without_loopback
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.read import parse_document


def test_the_processors_have_all_of_their_cores() -> None:
    machine = without_loopback(sharing_hardware())
    assert [device.name for device in machine.devices] == ["cpu-all"] and machine.links == ()
    assert [memory.name for memory in machine.memories] == ["dram"] and machine.memories[0].joint is None
    assert parse_document(Hardware, machine.to_json().encode(), "record") == machine


def test_other_accelerators_stay() -> None:
    machine = make_hardware(kind="cuda")
    assert without_loopback(machine) is machine


def test_plans_for_an_engine_leave_it_out() -> None:
    model = small_model("llama")
    question = {"model": model, "hardware": make_hardware(), "prompt_tokens": 8, "output_tokens": 8}
    assert plan({**question, "engine": "llama.cpp"}).plan.label == "llama-cpp -ngl 0"
    assert "loopback" in {device.kind for device in plan({**question, "strategy": "llama-cpp"}).plan.hardware.devices}
