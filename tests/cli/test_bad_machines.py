"""Machines that cannot be, or whose parts do not reach each other: one line, and the right exit code."""

import json

import pytest

from helmsman.cli import plan, sim
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.planner.registry import OF_DENSE

MODEL = ("--model", "Qwen3-0.6B")
MOVING = tuple(name for name in OF_DENSE if name not in ("optimal", "layer-split", "cpu-only", "llama-cpp"))
"""Strategies that keep data in one memory and use it in another."""


def written(path, content):
    path.write_text(json.dumps(content))
    return str(path)


@pytest.fixture
def record():
    return load_hardware("rtx3060-5600x", None).to_dict()


def one_line(capsys):
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("helm-")
    return err


def zero(content, *path):
    for part in path:
        content = content[part]
    content |= {"value": 0.0, "p10": 0.0, "p90": 0.0}


def again(content, table, **other):
    content[table].append({**content[table][0], **other})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: zero(c, "memories", 0, "bandwidth"), "memories.0.bandwidth.p10: slower than"),
        (lambda c: zero(c, "memories", 1, "bandwidth"), "memories.1.bandwidth.p10: slower than"),
        (lambda c: zero(c, "links", 0, "bandwidth"), "links.0.bandwidth.p10: slower than"),
        (lambda c: zero(c, "devices", 1, "read"), "devices.1.read.p10: slower than"),
        (lambda c: zero(c, "links", 0, "managed"), "links.0.managed.p10: too small for a share"),
        (lambda c: again(c, "memories"), "memories: must be unique (got 'dram')"),
        (lambda c: again(c, "devices"), "devices and links: must be unique (got 'cpu')"),
        (lambda c: again(c, "links"), "devices and links: must be unique (got 'h2d')"),
        (lambda c: again(c, "links", name="h2d-2"), "links: must be unique (got 'dram to vram')"),
        (lambda c: again(c, "links", name="cpu", target_memory="dram"), "must be unique (got 'cpu')"),
        (lambda c: c["links"][0].update(target_memory="hbm"), "links.0.target_memory: unknown memory (got 'hbm')"),
        (lambda c: c["links"][0].update(shares="d3h"), "links.0.shares: unknown link (got 'd3h')"),
        (lambda c: c.update(memories=[]), "memories"),
        (lambda c: c.update(devices=c["devices"][1:]), "a machine needs a device of kind cpu"),
    ],
)
def test_records_that_cannot_be(capsys, tmp_path, record, change, says):
    change(record)
    assert plan.main([*MODEL, "--hw", written(tmp_path / "hw.json", record)]) == 5
    line = one_line(capsys)
    assert says in line


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("strategy", MOVING)
def test_nothing_is_moved_between_memories_that_nothing_joins(capsys, tmp_path, record, strategy, kept):
    record["links"] = record["links"][:kept]
    assert plan.main([*MODEL, "--hw", written(tmp_path / "hw.json", record), "--strategy", strategy]) == 2
    line = one_line(capsys)
    assert "no links both ways between dram and vram" in line and "add them to the hardware record" in line


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("strategy", ["optimal", "layer-split", "llama-cpp"])
def test_a_machine_whose_accelerator_is_out_of_reach_plans_on_the_cpu(capsys, tmp_path, record, strategy, kept):
    record["links"] = record["links"][:kept]
    hardware = written(tmp_path / "hw.json", record)
    assert plan.main([*MODEL, "--hw", hardware, "--strategy", strategy, "-v"]) == 0
    out = capsys.readouterr().out
    assert "not used     cuda: no links both ways between dram and vram" in out
    assert "vram: 0 B" in out
    assert plan.main([*MODEL, "--hw", hardware, "--strategy", "llama-cpp", "--ngl", "4"]) == 2


def test_an_accelerator_that_is_reached_comes_before_one_that_is_not(capsys, tmp_path):
    record = load_hardware("rtx3090x2-5950x", None).to_dict()
    record["links"] = [link for link in record["links"] if "vram" not in (link["source_memory"], link["target_memory"])]
    assert plan.main([*MODEL, "--hw", written(tmp_path / "hw.json", record), "-v"]) == 0
    out = capsys.readouterr().out
    assert "vram: 0 B" in out and "vram1: 0 B" not in out
    assert "not used     cuda: no links both ways" in out


@pytest.mark.parametrize("strategy", MOVING)
@pytest.mark.parametrize("machine", ["m1-16gb", "ryzen-ai-max-395-128gb"])
def test_offloading_gains_nothing_in_one_memory(capsys, strategy, machine):
    assert plan.main([*MODEL, "--hw", machine, "--strategy", strategy]) == 2
    line = one_line(capsys)
    assert "share one memory, unified: offloading gains nothing" in line
    assert "use --strategy layer-split: everything is there already" in line


def test_a_plan_for_one_memory_says_so(capsys):
    assert plan.main([*MODEL, "--hw", "m1-16gb"]) == 0
    assert "moving data between memories gains nothing on this machine" in capsys.readouterr().out
    assert plan.main([*MODEL, "--hw", "gh200-96gb"]) == 0
    assert "gains nothing" not in capsys.readouterr().out


@pytest.mark.parametrize("strategy", MOVING)
def test_a_machine_without_an_accelerator_has_nowhere_to_move_to(capsys, strategy):
    assert plan.main([*MODEL, "--hw", "ryzen7950x-cpu", "--strategy", strategy]) == 2
    assert "this machine has no accelerator" in one_line(capsys)


@pytest.fixture
def split(capsys):
    assert plan.main(["--model", "Qwen3-14B", "--hw", "rtx3060-5600x", "--strategy", "layer-split", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda rules: rules["residence"][-1].update(memory="tape"),
            "no such memory in the plan's hardware (got 'tape')",
        ),
        (lambda rules: rules["compute"][-1].update(device="tpu"), "no such device in the plan's hardware (got 'tpu')"),
    ],
)
def test_plans_of_what_the_machine_lacks(capsys, tmp_path, split, change, says):
    change(split)
    assert sim.main([written(tmp_path / "plan.json", split)]) == 5
    assert says in one_line(capsys)


def test_nothing_is_pinned_where_nothing_works(capsys, tmp_path):
    assert (
        plan.main(["--model", "opt-1.3b", "--hw", "a100-optane", "--strategy", "all-cpu", "--home", "optane", "--json"])
        == 0
    )
    made = json.loads(capsys.readouterr().out)
    for rule in made["residence"]:
        rule["path"] = "pin-on-transfer"
    assert sim.main([written(tmp_path / "plan.json", made)]) == 5
    assert "residence.0.path: no device works in optane" in one_line(capsys)


def test_a_plan_that_uses_memories_which_nothing_joins(capsys, tmp_path, split):
    from helmsman.schemas.hardware import Hardware
    from helmsman.schemas.read import digest, parse_document

    split["hardware"]["links"] = []
    split["hardware_sha256"] = digest(parse_document(Hardware, json.dumps(split["hardware"]).encode(), "hw"))
    assert sim.main([written(tmp_path / "plan.json", split)]) == 5
    line = one_line(capsys)
    assert "no link from memory dram to memory vram; add a link, or keep the data where it is used" in line


@pytest.mark.parametrize(
    ("argv", "field"),
    [
        (("--gpu", "9x RTX 3090", "--cpu", "5950X", "--ram", "64GB"), "--gpu"),
        (("--gpu", "RTX 3060, RTX 3090", "--cpu", "5950X", "--ram", "64GB"), "--gpu"),
        (("--gpu", "2x RTX 3090", "--cpu", "5950X", "--ram", "64GB", "--peer", "fast"), "--peer"),
        (("--gpu", "2x RTX 3090", "--cpu", "5950X", "--ram", "64GB", "--peer", "0GB/s"), "--peer"),
        (("--gpu", "RTX 3090", "--cpu", "5950X", "--ram", "64GB", "--peer", "56GB/s"), "--peer"),
        (("--hw", "rtx3060-5600x", "--prefix-tokens", "128"), "--prefix-tokens"),
        (("--hw", "rtx3060-5600x", "--prefix-tokens", "-1"), "--prefix-tokens"),
        (("--hw", "rtx3060-5600x", "--strategy", "vllm", "--kv-rule", "lmcache"), "--kv-rule"),
        (("--hw", "rtx3060-5600x", "--strategy", "vllm", "--kv-rule", "headinfer"), "--kv-rule"),
        (("--hw", "rtx3060-5600x", "--strategy", "vllm", "--kv-store", "dram"), "--kv-store"),
        (
            (
                "--hw", "rtx3060-5600x", "--strategy", "all-cpu", "--prefix-tokens", "9", "--kv-rule", "lmcache",
                "--kv-store", "tape",
            ),
            "--kv-store",
        ),
        (("--hw", "rtx3060-5600x", "--strategy", "flexgen", "--managed"), "--managed"),
        (("--hw", "rtx3060-5600x", "--strategy", "all-cpu", "--inclusive"), "--inclusive"),
        (("--hw", "a100-fsdax", "--strategy", "flexgen", "--percent", "50,0,50", "--nvme", "direct"), "--nvme"),
        (("--hw", "rtx3060-5600x", "--strategy", "layerwise-map", "--nvme", "bounce"), "--nvme"),
        (("--hw", "rtx3060-5600x", "--strategy", "optimal", "--nvme", "bounce"), "--nvme"),
        (("--hw", "a100-fsdax", "--strategy", "optimal", "--nvme", "direct"), "--nvme"),
        (("--hw", "a100x2-dgx", "--strategy", "optimal", "--home", "vram1"), "--home"),
        (("--hw", "a100-optane", "--strategy", "optimal", "--home", "tape"), "--home"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense(capsys, argv, field):
    assert plan.main([*MODEL, *argv]) == 2
    assert one_line(capsys).startswith(f"helm-plan: error: {field}: ")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--cpu", "Ryzen 7 7840U"), "the chip's own GPU, Radeon 780M, is left out: name it as --gpu to plan with it"),
        (("--cpu", "EPYC 9554", "--gpu", "2x H100 SXM"), "360.00 GB/s a direction between every two GPUs: NVLink 4"),
        (("--cpu", "Ryzen 7 7840U", "--gpu", "Radeon 780M"), None),
        (("--cpu", "EPYC 9554", "--gpu", "2x H100 SXM", "--peer", "100GB/s"), None),
    ],
)
def test_what_is_assumed_of_gpus_is_said_in_a_line(capsys, argv, says):
    assert plan.main([*MODEL, "--ram", "32GB", "--strategy", "layer-split", *argv]) == 0
    err = capsys.readouterr().err
    assert err == "" if says is None else err.startswith(f"warning: assumed: {says}") and err.count("\n") == 1
    assert plan.main([*MODEL, "--ram", "32GB", "--strategy", "layer-split", *argv, "-q"]) == 0
    assert capsys.readouterr().err == ""


def test_what_is_assumed_is_said_once(capsys):
    """The machine was composed for the best format, and once more for its plan."""
    assert plan.main([*MODEL, "--ram", "32GB", "--cpu", "Ryzen 7 7840U", "--format", "best", "--jobs", "1"]) == 0
    assert capsys.readouterr().err.count("left out") == 1
