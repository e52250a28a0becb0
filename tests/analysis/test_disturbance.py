"""A plan on a disturbed record: which figures, how much wider its interval is, and the same from the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fewer_blocks import fewer_blocks
from pydantic import BaseModel

from helmsman.analysis.disturbance import disturbance_line, disturbance_of, disturbed_record, with_evidence
from helmsman.cli import check as helm_check
from helmsman.cli import plan as helm_plan
from helmsman.cli import run as helm_run
from helmsman.cli import serve as helm_serve
from helmsman.cli import sim as helm_sim
from helmsman.hwdb.fit import exact
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.decision import evidence
from helmsman.planner.disturbances import disturbed_figures, undisturbed
from helmsman.planner.prediction.predict import predict
from helmsman.schemas.between_passes import BetweenPasses
from helmsman.schemas.figures import Figure, disturbed_figure
from helmsman.schemas.hardware import LEFT, OTHERS, Efficiency, Hardware, Interrupts, Reading
from helmsman.schemas.operation_table import COLUMNS, BlockShape, OperationRow, OperationTable, required
from helmsman.schemas.plan import Plan


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
    memory = plan.hardware.memories[0]
    shaken = disturbed_figure(memory.bandwidth, 0.5)
    spare = memory.model_copy(update={"name": "spare", "bandwidth": shaken})
    known = memory.model_copy(update={"bandwidth": shaken, "joint": memory.bandwidth})
    for memories in ((*plan.hardware.memories, spare), (known, *plan.hardware.memories[1:])):
        hardware = plan.hardware.model_copy(update={"memories": memories})
        assert disturbance_of(plan.model_copy(update={"hardware": hardware})) is None


@pytest.mark.parametrize(
    ("field", "called"),
    [("bandwidth", "memory bandwidth"), ("joint", "joint bandwidth"), ("joint_compute", "joint arithmetic")],
)
def test_what_devices_share_of_a_memory_is_named(plan: Plan, field: str, called: str) -> None:
    memory = plan.hardware.memories[0]
    wider = memory.model_copy(update={field: disturbed_figure(memory.bandwidth, 0.5)})
    moved = on(plan, plan.hardware.model_copy(update={"memories": (wider, *plan.hardware.memories[1:])}))
    found = disturbance_of(moved)
    assert found is not None and found.figures == (f"{memory.name} {called}",)
    kept = {each.what: each.disturbed for each in evidence(moved.hardware)}
    assert kept[f"{memory.name} {called}"] == 0.5


def everything_measured(hardware: Hardware) -> Hardware:
    """The record with a figure of every kind that profiles and tables measure."""
    usual = exact(0.5, hardware.devices[0].read.source)
    rate = hardware.devices[0].read
    parts = {"launch": usual, "overhead": usual, "join": usual, "request": usual, "elementwise": rate}
    curve = Efficiency(bound="memory", at=(1.0,), share=(usual,))
    device = hardware.devices[0].model_copy(update={**parts, "decompress": rate, "efficiency": (curve,)})
    memory = hardware.memories[0].model_copy(update={"joint": rate, "joint_compute": usual})
    interrupts = {device.name: Interrupts(small=usual, large=usual)}
    times = {"overhead": usual, "handover": usual, "slows": {device.name: usual}, "interrupts": interrupts}
    shape = BlockShape(hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, gated=True)
    rows = tuple(OperationRow(op=op, **dict.fromkeys(COLUMNS, usual)) for op in required(shape))
    table = OperationTable(
        shape=shape, batch=1, context=8, host="cpu", accelerator="cuda", key="a" * 64, rows=rows
    )  # fmt: skip
    return hardware.model_copy(
        update={
            "devices": (device, *hardware.devices[1:]),
            "memories": (memory, *hardware.memories[1:]),
            "links": (hardware.links[0].model_copy(update=times), *hardware.links[1:]),
            "between_passes": BetweenPasses(begin={device.name: usual}, submission=usual),
            "tables": (table,),
        }
    )


def shaken(part: Any) -> Any:
    """A part of a record with every figure in it disturbed."""
    if isinstance(part, Figure):
        return disturbed_figure(part, 0.2)
    if isinstance(part, BaseModel):
        return part.model_copy(update={name: shaken(getattr(part, name)) for name in type(part).model_fields})
    if isinstance(part, tuple):
        return tuple(shaken(each) for each in part)
    return {key: shaken(value) for key, value in part.items()} if isinstance(part, dict) else part


def test_no_figure_is_disturbed_without_a_name(plan: Plan) -> None:
    hardware: Hardware = shaken(everything_measured(plan.hardware))
    figures = hardware.to_json().count('"disturbed"')
    named = [f"{owner} {what}" for owner, what, _ in disturbed_figures(hardware)]
    assert len(named) == len(set(named)) == figures


def test_a_table_disturbs_the_plans_that_it_prices(plan: Plan) -> None:
    hardware = everything_measured(plan.hardware)
    table: OperationTable = shaken(hardware.tables[0]).model_copy(update={"format": "bf16", "kv_format": "bf16"})
    hardware = plan.hardware.model_copy(update={"tables": (table,)})
    options = {**plan.strategy.options, "operation_table": True}
    alone, priced = (
        on(plan.model_copy(update={"strategy": plan.strategy.model_copy(update={"options": chosen})}), hardware)
        for chosen in (plan.strategy.options, options)
    )
    assert disturbance_of(alone) is None
    found = disturbance_of(priced)
    assert found is not None and f"table {'a' * 16} q host" in found.figures


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


def laptop(tmp_path: Path, change: Callable[[Hardware], Hardware]) -> list[str]:
    """A question about a changed record of a laptop, whose answer uses host and accelerator."""
    path = tmp_path / "machine.json"
    path.write_text(change(load_hardware("rtx4060-laptop", None)).to_json())
    model = fewer_blocks(tmp_path, "Qwen3-8B", 6)
    return [
        "--model", model, "--hw", str(path), "--vram-avail", "2GB", "--format", "bf16", "--strategy", "layer-split"
    ]  # fmt: skip


def with_disturbed_joint_rate(hardware: Hardware) -> Hardware:
    memory = hardware.memory(hardware.devices[0].memory)
    joint = disturbed_figure(memory.bandwidth, 0.4)
    memories = tuple(
        each.model_copy(update={"joint": joint}) if each.name == memory.name else each for each in hardware.memories
    )
    return hardware.model_copy(update={"memories": memories})


def test_the_command_says_so_of_a_joint_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert helm_plan.main(laptop(tmp_path, with_disturbed_joint_rate)) == 0
    assert "joint bandwidth): others took up to 40%" in capsys.readouterr().out


def of_before_marks(hardware: Hardware) -> Hardware:
    """As a profile beside others was, before disturbed points were measured again and marked."""
    share = exact(0.3, hardware.devices[0].read.source)
    reading = Reading(what=OTHERS, device=hardware.devices[0].name, conditions={}, unit="share", figure=share)
    return hardware.model_copy(update={"readings": (reading,)})


def with_none_left(hardware: Hardware) -> Hardware:
    old = of_before_marks(hardware)
    none = exact(0.0, hardware.devices[0].read.source)
    left = Reading(
        what=LEFT, device=hardware.devices[0].name, conditions={"of": "disturbed"}, unit="points", figure=none
    )
    return old.model_copy(update={"readings": (*old.readings, left)})


@pytest.mark.parametrize(
    ("change", "said"),
    [(disturbed, "others took up to 30%"), (of_before_marks, "others used 30% of the processors")],
)
def test_commands_on_a_plan_warn_of_its_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Hardware], Hardware], said: str
) -> None:
    made = str(tmp_path / "plan.json")
    assert helm_plan.main([*laptop(tmp_path, change), "-o", made]) == 0
    assert (said in capsys.readouterr().err) == (change is of_before_marks)
    assert helm_sim.main([made, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) and err.count("\n") == 1 and said in err
    assert helm_sim.main([made, "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    nowhere = str(tmp_path / "nowhere")
    for command in (helm_run.main, helm_serve.main):
        more = ["--text", "a"] if command is helm_run.main else ["--port", "0"]
        assert command([made, "--checkpoint", nowhere, *more]) != 0
        assert capsys.readouterr().err.count(said) == 1
    assert helm_check.main([made, "--measured", nowhere]) == 5
    assert capsys.readouterr().err.count(said) == 1


def test_a_profile_that_waited_for_quiet_spells_is_no_reason_to_warn(plan: Plan) -> None:
    assert disturbed_record(with_none_left(plan.hardware)) is None
    assert disturbed_record(of_before_marks(plan.hardware)) is not None


def test_a_disturbed_time_between_passes_is_named(plan: Plan) -> None:
    quiet = without_time_between(plan.hardware)
    name = quiet.devices[0].name
    begin = disturbed_figure(exact(1e-4, quiet.devices[0].read.source), 0.3)
    assert quiet.between_passes is not None
    passes = quiet.between_passes.model_copy(update={"begin": {name: begin}})
    found = disturbance_of(on(plan, quiet.model_copy(update={"between_passes": passes})))
    assert found is not None and found.figures == (f"{name} time between passes",)
