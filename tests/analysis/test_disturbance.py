"""A plan on a disturbed record: which figures, how much wider its interval is, and the same from the command line."""

import json
from pathlib import Path

import pytest

from helmsman.analysis.disturbance import disturbance_line, disturbance_of, disturbed_record, with_evidence
from helmsman.cli import plan as helm_plan
from helmsman.hwdb.fit import exact
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.planner.decide import evidence
from helmsman.planner.disturbed import disturbed_figures, undisturbed
from helmsman.planner.predict import predict
from helmsman.schemas.between_passes import BetweenPasses
from helmsman.schemas.figures import disturbed_figure
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan
from helmsman.simulator.pricing import cost_model


def disturbed(hardware: Hardware, share: float = 0.3) -> Hardware:
    """The record whose host reads were disturbed."""
    host = hardware.devices[0]
    host = host.model_copy(update={"read": disturbed_figure(host.read, share)})
    return hardware.model_copy(update={"devices": (host, *hardware.devices[1:])})


def without_time_between(hardware: Hardware) -> Hardware:
    """The record with no time between tasks, measured: what would be assumed is more than all of a small step."""
    none = exact(0.0, hardware.devices[0].read.source)
    links = tuple(link.model_copy(update={"handover": none}) for link in hardware.links)
    devices = tuple(device.model_copy(update={"join": none}) for device in hardware.devices)
    passes = BetweenPasses(begin={hardware.devices[0].name: none}, submission=none)
    return hardware.model_copy(update={"links": links, "devices": devices, "between_passes": passes})


def on(plan: Plan, hardware: Hardware) -> Plan:
    moved = plan.model_copy(update={"hardware": hardware})
    return moved.model_copy(update={"predicted": predict(moved, cost_model(moved))})


def test_an_undisturbed_plan_says_nothing(plan: Plan) -> None:
    assert disturbance_of(plan) is None and disturbed_record(plan.hardware) is None
    assert list(disturbed_figures(plan.hardware)) == []


def test_the_interval_is_wider_and_the_line_says_by_how_much(plan: Plan) -> None:
    quiet = on(plan, without_time_between(plan.hardware))
    found = disturbance_of(on(plan, disturbed(quiet.hardware)))
    assert found is not None and found.figures == ("cpu read",) and found.most == 0.3
    assert found.quiet.low == pytest.approx(quiet.predicted.decode.seconds.low)
    assert found.quiet.high == pytest.approx(quiet.predicted.decode.seconds.high)
    assert found.step.mid == quiet.predicted.decode.seconds.mid
    assert found.step.high > found.quiet.high and found.step.low < found.quiet.low and found.wider > 0.3
    line = disturbance_line(found)
    assert "1 figures (cpu read): others took up to 30%" in line and f"{found.wider:.0%} wider" in line
    assert "run helm-profile when nothing else runs" in line and "\n" not in line


def test_a_plan_keeps_it_as_evidence(plan: Plan) -> None:
    moved = on(plan, disturbed(plan.hardware))
    found = disturbance_of(moved)
    assert found is not None
    marked = [each for each in evidence(moved.hardware) if each.disturbed]
    assert [(each.what, each.disturbed) for each in marked] == [("cpu read bytes/s", 0.3)]
    kept = {each.what: each.value for each in with_evidence(moved, found).evidence}
    assert kept["decode s undisturbed, high"] == found.quiet.high


def test_what_a_plan_does_not_use_disturbs_it_not(plan: Plan) -> None:
    spare = plan.hardware.memories[0]
    spare = spare.model_copy(update={"bandwidth": disturbed_figure(spare.bandwidth, 0.5)})
    hardware = plan.hardware.model_copy(update={"memories": (spare, *plan.hardware.memories[1:])})
    assert disturbance_of(plan.model_copy(update={"hardware": hardware})) is None


def test_time_between_tasks_and_joint_rates_are_named_too(plan: Plan) -> None:
    usual = plan.hardware.devices[0].read
    memory, device, link = plan.hardware.memories[0], plan.hardware.devices[0], plan.hardware.links[0]
    shaken = disturbed_figure(usual, 0.2)
    changed = {
        "memories": (memory.model_copy(update={"joint": shaken}),),
        "devices": (device.model_copy(update={"join": shaken}),),
        "links": (link.model_copy(update={"handover": shaken}),),
    }
    named = {f"{owner} {what}" for owner, what, _ in disturbed_figures(plan.hardware.model_copy(update=changed))}
    assert named == {f"{memory.name} joint bandwidth", f"{device.name} join", f"{link.name} hand-over"}


def test_without_disturbance_a_record_is_what_its_samples_said(plan: Plan) -> None:
    back = undisturbed(disturbed(plan.hardware))
    assert back.devices[0].read.p10 == pytest.approx(plan.hardware.devices[0].read.p10)
    assert back.devices[1:] == plan.hardware.devices[1:]


def test_the_command_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "machine.json"
    path.write_text(disturbed(load_hardware("rtx4060-laptop", None)).to_json())
    words = ["--model", "Qwen3-8B", "--hw", str(path), "--format", "bf16", "--strategy", "layer-split"]
    assert helm_plan.main(words) == 0
    out = capsys.readouterr().out
    assert out.count("\ndisturbed    1 figures (") == 1
    assert helm_plan.main([*words, "--json"]) == 0
    marked = [each for each in json.loads(capsys.readouterr().out)["evidence"] if "disturbed" in each]
    assert [each["disturbed"] for each in marked] == [0.3]


def test_a_disturbed_time_between_passes_is_named(plan: Plan) -> None:
    quiet = without_time_between(plan.hardware)
    name = quiet.devices[0].name
    begin = disturbed_figure(exact(1e-4, quiet.devices[0].read.source), 0.3)
    assert quiet.between_passes is not None
    passes = quiet.between_passes.model_copy(update={"begin": {name: begin}})
    found = disturbance_of(on(plan, quiet.model_copy(update={"between_passes": passes})))
    assert found is not None and found.figures == (f"{name} time between passes",)
