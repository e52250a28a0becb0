"""Two real folders from measuring to running: profile, plan and run with weights striped over both."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daily import one_in
from layer_machines import loopback_record, two_cpus
from plans import make_plan
from shapes import small_model

from helmsman.cli.plan import main as plan
from helmsman.cli.profile import main as profile
from helmsman.cli.run import main as run
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.profile import layer_expansion, layer_storage, layer_times, quality
from helmsman.executor.system.machine import Machine
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.plan import Plan, Residence
from helmsman.schemas.read import read_document

MODEL = small_model("llama")
SECONDS = {
    "host": 1e-5, "accelerator": 1e-5, "transfer": 1e-4, "transfer_q4": 1e-4, "decompress": 1e-5, "storage": 1e-6
}  # fmt: skip
"""Seconds that an operation table of this plan has in each of its columns."""
PROMPTS = [list(range(5, 13)), list(range(20, 28))]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stripe") / MODEL.name
    write_checkpoint(MODEL, place, seed=1, fmt="f32")
    return place


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that name two folders."""
    return [option for _ in range(2) for option in ("--storage", str(tmp_path_factory.mktemp("device")))]


@pytest.fixture(scope="module")
def profiled(checkpoint: Path, folders: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A record with a table of the model and both folders, in the cache, in which storage is fast and nothing depends
    on how fast this machine was, so that plans use it."""
    kept = tmp_path_factory.mktemp("cache")
    (kept / "helmsman").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(kept))
        machine = two_cpus()
        patch.setattr(Machine, "this", classmethod(lambda _: machine))
        for module in (layer_times, layer_storage, layer_expansion):  # what was measured is written anew below
            patch.setattr(module, "ROUNDS", (1, 1))
            patch.setattr(module, "TIME_LIMIT_S", 0.1)
        patch.setattr(quality, "ATTEMPTS", 1)
        patch.setattr(quality, "FIRST_WAITS_S", 0.0)
        (kept / "helmsman" / "profile-1.json").write_text(loopback_record(machine).to_json())
        made = kept / "made.json"
        shape = ["--context", "40", "--batch", "2"]
        assert profile(["--model", str(checkpoint), *shape, *folders, "-q", "-o", str(made)]) == 0
        record = json.loads(made.read_text())
        for row in record["tables"][0]["rows"]:
            for column in SECONDS.keys() & row.keys():
                settle(row[column], SECONDS[column])
        for disk in (each for each in (*record["memories"], *record["links"]) if each["kind"] in ("nvme", "file")):
            settle(disk["bandwidth"], 1e10)
            if "latency" in disk:
                settle(disk["latency"], 1e-6)
            disk.pop("slows", None)
        (kept / "helmsman" / "profile-9.json").write_text(json.dumps(record))
        yield


def settle(figure: dict[str, Any], value: float) -> None:
    """Write `value` instead of what this machine took."""
    figure |= dict.fromkeys(("value", "p10", "p90"), value)
    figure.pop("disturbed", None)


def tokens_of(plan: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    prompts = plan.with_name("prompts.json")
    prompts.write_text(json.dumps(PROMPTS))
    argv = [str(plan), "--checkpoint", str(checkpoint), "--tokens", str(prompts), "--ignore-eos", "--json", *options]
    assert run(argv) == 0
    told = capsys.readouterr()
    expected = "no direct reads", "disturbed: "  # warnings: of these folders, of a record made beside other work
    assert all(any(words in line for words in expected) for line in told.err.splitlines())
    return json.loads(told.out)["tokens"]


def changed(plan: Plan, rules: list[Residence], **changes: Any) -> Plan:
    """The plan with `changes` to some of its rules."""
    residence = tuple(rule.model_copy(update=changes) if rule in rules else rule for rule in plan.residence)
    return plan.model_copy(update={"residence": residence})


@pytest.mark.parametrize("path", ["direct", "bounce"])
@pytest.mark.parametrize("fmt", one_in(2, ["f16", "q4"]))
@pytest.mark.usefixtures("profiled")
def test_a_planned_stripe_is_run(
    checkpoint: Path,
    folders: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    path: str,
    fmt: StoredFormat,
) -> None:
    """The same tokens as all on the CPU; compressed, as the same groups from host memory.

    Where all fits, going through host memory gains nothing, nor do groups that are read as fast: there the chosen plan
    is changed."""
    file, other = tmp_path / "plan.json", tmp_path / "other.json"
    shape = ["--prompt-tokens", "8", "--output-tokens", "8", "--context", "40", "--batch", "2"]
    asked = ["--model", str(checkpoint), "--hw", "this", *shape, "--strategy", "op-split", "--no-cpu-offload"]
    assert plan([*asked, "--nvme", "direct", "-q", "-o", str(file)]) == 0
    found = read_document(Plan, file)
    stored = [rule for rule in found.residence if rule.stripes]
    assert {(rule.memory, *rule.replicas, rule.path) for rule in stored} == {("disk", "disk2", "direct")}
    file.write_text(changed(found, stored, path=path, format=fmt).to_json())
    if fmt == "q4":
        at_home = {"memory": "dram", "replicas": (), "stripes": (), "path": "pinned"}
        other.write_text(changed(found, stored, format=fmt, **at_home).to_json())
    else:
        other.write_text(make_plan(MODEL, weights="f16", kv="f16", workload=found.workload).to_json())
    assert tokens_of(file, checkpoint, capsys, *folders) == tokens_of(other, checkpoint, capsys)
    assert not any(list(Path(folder).iterdir()) for folder in folders[1::2])
