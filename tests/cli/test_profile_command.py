"""`helm-profile` as a user meets it: files, table, warnings, and every kind of bad input. Measuring is replaced."""

import json
import os
from contextlib import contextmanager
from errno import ENOSPC

import pytest
from layer_machines import loopback_record, two_cpus

from helmsman.cli import output
from helmsman.cli.plan import main as plan
from helmsman.cli.profile import build_parser, main
from helmsman.executor.profile import run as profiler
from helmsman.executor.profile import table
from helmsman.executor.profile.layer_expansion import ExpansionTimes
from helmsman.executor.profile.layer_reshape import TurnTimes
from helmsman.executor.profile.layer_storage import DiskTimes, StorageTimes
from helmsman.executor.profile.layer_times import DeviceTimes
from helmsman.executor.profile.settings import Loopback
from helmsman.executor.profile.table import TableSamples
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.planner.cost.balance import BalancedShares
from helmsman.schemas.hardware import LEFT, OTHERS, Figure, Hardware, Reading
from helmsman.schemas.read import parse_document
from helmsman.schemas.write import whole_file


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "helmsman"


def record(others: float = 0.01) -> Hardware:
    """A machine as it would be measured."""
    known = load_hardware("rtx4060-laptop", None)
    source = next(iter(known.sources))
    share = Figure(value=others, p10=others, p90=others, n=1, source=source)
    reading = Reading(what=OTHERS, device="cpu", conditions={}, unit="share", figure=share)
    return known.model_copy(update={"name": "this", "readings": (reading,)})


@pytest.fixture
def asked(monkeypatch):
    """What the profiler was asked to measure."""
    calls = []

    def measured(machine, loopback, date, tell, folders):
        calls.append(loopback)
        for _ in range(profiler.steps(loopback)):
            tell("something")
        return record()

    monkeypatch.setattr(profiler, "profile", measured)
    return calls


def check_one_line(capsys, *says):
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert all(part in captured.err for part in says), captured.err


def test_a_profile_is_written_kept_and_used_by_this(cache, asked, capsys, tmp_path):
    assert main(["--loopback", "cores=1,vram=64MiB", "-o", str(tmp_path / "p.json")]) == 0
    assert asked[0].vram == 64 << 20
    out = capsys.readouterr().out
    (kept,) = cache.iterdir()
    assert str(kept) in out and "--hw this" in out and "disturbed" not in out
    assert kept.read_bytes() == (tmp_path / "p.json").read_bytes()
    assert parse_document(Hardware, kept.read_bytes(), "kept") == record()
    assert plan(["--model", "Qwen3-8B", "--hw", "this", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hardware"]["name"] == "this"


def test_json_is_the_record_and_nothing_else(cache, asked, capsys):
    assert main(["--json"]) == 0
    captured = capsys.readouterr()
    assert asked == [None] and captured.err == ""
    assert parse_document(Hardware, captured.out.encode(), "stdout") == record()


def test_quiet_prints_nothing(cache, asked, capsys):
    assert main(["-q"]) == 0
    assert capsys.readouterr().out == ""
    assert len(list(cache.iterdir())) == 1


def test_a_disturbed_profile_says_so(cache, monkeypatch, capsys):
    monkeypatch.setattr(profiler, "profile", lambda *_, **__: record(others=0.31))
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "other processes took 31% of the CPU time in all, and no point was left disturbed" in out
    left = record(others=0.31)
    point = left.readings[0].model_copy(update={"what": "disturbance", "conditions": {"of": "stage"}})
    monkeypatch.setattr(
        profiler, "profile", lambda *_, **__: left.model_copy(update={"readings": (*left.readings, point)})
    )
    assert main([]) == 0
    assert "disturbed: 1 points stayed disturbed, up to 31%; their figures have wider" in capsys.readouterr().out


def test_a_profile_says_what_stayed_unsteady(cache, monkeypatch, capsys):
    calm = record()
    share = calm.readings[0]
    for count in (0.0, 2.0):
        figure = share.figure.model_copy(update={"value": count, "p10": count, "p90": count})
        left = share.model_copy(update={"what": LEFT, "conditions": {"of": "unsteady"}, "figure": figure})
        monkeypatch.setattr(
            profiler, "profile", lambda *_, left=left, **__: calm.model_copy(update={"readings": (left,)})
        )
        assert main([]) == 0
        assert ("unsteady: 2 points" in capsys.readouterr().out) == (count > 0)


@pytest.mark.parametrize(
    "settings",
    ["", ",", "cores=0", "cores=x", "vram=1e400GB", "vram=-1GB", "link=1e400GB/s", "speed=3", "cores=1,cores=1"],
)
def test_bad_settings_are_noticed_before_measuring(cache, asked, capsys, settings):
    assert main(["--loopback", settings]) == 2
    check_one_line(capsys, "--loopback", "helm-profile: error: ")
    assert asked == []


def test_a_loopback_that_takes_every_core_is_not_there(cache, capsys):
    assert main(["--loopback", "cores=100000"]) == 6
    check_one_line(capsys, "--loopback cores", "usable CPUs")


def test_the_defaults_of_a_loopback_are_in_the_help():
    assert "cores=1,vram=512MiB,link=2GB/s,latency=20us" in build_parser().format_help().split("example:")[0]


@pytest.mark.parametrize("place", ["nowhere/p.json", "."])
def test_an_unwritable_place_is_noticed_before_measuring(cache, asked, capsys, tmp_path, place):
    assert main(["-o", str(tmp_path / place)]) == 2
    check_one_line(capsys, str(tmp_path / place), "cannot be written", "another place")
    assert asked == []


def test_a_cache_that_cannot_be_made_is_noticed_before_measuring(cache, asked, capsys):
    cache.parent.write_text("a file where the folder should be")
    assert main([]) == 2
    check_one_line(capsys, str(cache), "XDG_CACHE_HOME")
    assert asked == []


def test_errors_are_json_under_json(cache, asked, capsys):
    assert main(["--json", "--loopback", ""]) == 2
    captured = capsys.readouterr()
    error = json.loads(captured.out)["error"]
    assert (error["code"], error["field"]) == ("usage", "--loopback") and "--loopback" in captured.err


def test_checking_places_leaves_nothing(cache, monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(profiler, "profile", interrupted)
    assert main(["-o", str(tmp_path / "p.json")]) == 130
    assert list(cache.iterdir()) == [] and not (tmp_path / "p.json").exists()


def test_the_file_asked_for_is_written_even_when_the_cache_fails(cache, asked, monkeypatch, capsys, tmp_path):
    """Its own file comes first; the one that did not fit is not left half-written."""
    written = []

    @contextmanager
    def second_is_too_much(path):
        with whole_file(path) as stream:
            written.append(path)
            yield stream
            if len(written) == 2:
                raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(output, "whole_file", second_is_too_much)
    assert main(["--json", "-o", str(tmp_path / "p.json")]) == 6
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "hardware-unavailable"
    assert parse_document(Hardware, (tmp_path / "p.json").read_bytes(), "p.json") == record()
    assert list(cache.iterdir()) == []


QUICK = ["--model", "Qwen3-0.6B", "--context", "100"]


@pytest.fixture
def here(monkeypatch):
    """A machine with two CPUs."""
    found = two_cpus()
    monkeypatch.setattr(Machine, "this", classmethod(lambda _: found))
    return found


@pytest.fixture
def profiled(cache, here):
    """A record with a loopback accelerator, as made before."""
    cache.mkdir(parents=True)
    (cache / "profile-1.json").write_text(loopback_record(here).to_json())
    return cache


@pytest.fixture
def tabled(monkeypatch):
    """The questions that were measured; every operation takes 2 ms."""
    calls = []

    def measured(place, question, tell):
        calls.append(question)
        for _ in range(table.STEPS):
            tell("something")
        names = [op.name for op in question.operations]
        times = DeviceTimes(1, False, {op: [2e-3] for op in names}, {op: [1e-3] for op in names}, [1e10])
        slower = DeviceTimes(2, False, {op: [4e-3] for op in names}, took_s=1.5)
        linear = {op: [3e-3] for op in names if op in ("q", "k", "v", "o", "gate", "up", "down")}
        disks = [DiskTimes(f, 10**9, f.name != "buffered", 1.0, [1e9], [1e9], [1e-4]) for f in question.storage]
        balanced = BalancedShares((1.0,), (((1.0,), (2.0,)),) * 3)
        return TableSamples(
            question, times, {1: times, 2: slower}, times, {"transfer": linear, "transfer_q4": linear}, {"cpu": [1e9]},
            {"cpu": TurnTimes(10**6, [1e-3], [2e-3], [1e10])},
            ExpansionTimes(linear, [5e9]), StorageTimes(disks, linear, balanced, 0.7) if disks else None, 12.5, 0.2,
            {"host by threads": 4.5, "storage": 8.0},
        )  # fmt: skip

    monkeypatch.setattr(table, "measure_table", measured)
    return calls


def test_a_table_extends_the_newest_record(profiled, tabled, asked, capsys, tmp_path):
    assert main([*QUICK, "--batch", "8", "--kv-format", "bf16", "-o", str(tmp_path / "p.json")]) == 0
    assert asked == [] and (tabled[0].batch, tabled[0].context, tabled[0].kv_format) == (8, 100, "bf16")
    out = capsys.readouterr().out
    assert "one layer of Qwen3-0.6B, batch 8, 100 tokens" in out and "measured in 12.5 s" in out
    assert "measured in 12.5 s: host by threads 4.5 s, storage 8.0 s" in out
    assert "reshape on cpu, link idle: 1.0000 ms to turn the keys, 1.00 GB/s, +100% of scores" in out
    swept = [line.split() for line in out.splitlines() if line.startswith("  host on")]
    assert [(line[2], line[-1] == "used") for line in swept] == [("1", True), ("2", False)] and "1.5" in swept[1]
    assert "other processes took 20%" in out and "--hw this" in out
    assert ["down", "2.0000", "2.0000", "3.0000", "3.0000", "3.0000"] in [line.split() for line in out.splitlines()]
    (made,) = load_hardware("this", profiled).tables
    assert made.row("up").host.value == 2e-3
    assert (tmp_path / "p.json").read_bytes() == max(
        profiled.iterdir(), key=lambda p: p.stat().st_mtime_ns
    ).read_bytes()
    assert plan(["--model", "Qwen3-0.6B", "--hw", "this", "--strategy", "op-split", "--batch", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["strategy"]["options"]["operation_table"] is True


def test_what_was_measured_is_not_measured_again(profiled, tabled, capsys):
    assert main(QUICK) == 0 and main([*QUICK, "--format", "bf16"]) == 0
    kept = set(profiled.iterdir())
    capsys.readouterr()
    assert main(QUICK) == 0
    out = capsys.readouterr().out
    assert "measured before; --again measures it again" in out and "f16 weights" in out and "2.0000" in out
    assert len(tabled) == 2 and set(profiled.iterdir()) == kept
    assert main([*QUICK, "--json"]) == 0
    assert len(parse_document(Hardware, capsys.readouterr().out.encode(), "stdout").tables) == 2
    assert main([*QUICK, "--again"]) == 0
    assert len(tabled) == 3 and len(load_hardware("this", profiled).tables) == 2


def test_a_new_profile_of_the_same_machine_keeps_its_tables(profiled, here, tabled, monkeypatch, capsys):
    """PARK-49: found by its key in an older record, restated at the new plain read; another link is another key."""
    assert main(QUICK) == 0
    before = load_hardware("this", profiled)
    slower = loopback_record(here, 1.00001e9).to_json().replace("8000000000.0", "4000000000.0")
    monkeypatch.setattr(profiler, "profile", lambda *_, **__: parse_document(Hardware, slower.encode(), "x"))
    assert main(["--loopback", "cores=1,link=1GB/s"]) == 0 and not load_hardware("this", profiled).tables
    (profiled / "profile-0.json").write_text("broken")
    os.utime(profiled / "profile-0.json", (0, 0))
    capsys.readouterr()
    assert main(QUICK) == 0
    assert "with another profile of this machine" in capsys.readouterr().out and len(tabled) == 1
    after = load_hardware("this", profiled)
    assert [table.key for table in after.tables] == [table.key for table in before.tables]
    was, now = (record.tables[0].row("down") for record in (before, after))
    size = 1024 * 3072 * 2
    assert now.host.value == pytest.approx(was.host.value + size / 8e9, rel=1e-6)
    assert now.transfer == was.transfer
    assert after.device("loopback").decompress == before.device("loopback").decompress
    assert after.device("cpu").read.value == 4e9
    readings = [r for r in after.readings if r.conditions.get("table") == after.tables[0].key]
    assert readings == [r for r in before.readings if "table" in r.conditions]
    assert main(QUICK) == 0 and len(tabled) == 1
    assert main([*QUICK, "--again"]) == 0 and len(tabled) == 2


def test_without_a_record_both_are_made(cache, here, tabled, monkeypatch, capsys):
    loopbacks = []

    def measured(machine, loopback, date, tell, folders):
        loopbacks.append(loopback)
        return loopback_record(here, loopback.link)

    monkeypatch.setattr(profiler, "profile", measured)
    assert main(QUICK) == 0
    out = capsys.readouterr().out
    assert "cores, reads" in out and "one layer of" in out
    assert len(load_hardware("this", cache).tables) == 1 and loopbacks == [Loopback()]
    assert main([*QUICK, "--loopback", "cores=1,link=1GB/s"]) == 0
    assert loopbacks[1].link == 1e9 and len(tabled) == 2


def test_storage_that_is_read_through_the_page_cache_is_told_of(profiled, tabled, capsys, tmp_path):
    folders = [tmp_path / "direct", tmp_path / "buffered"]
    for folder in folders:
        folder.mkdir()
    assert main([*QUICK, "--storage", str(folders[0]), "--storage", str(folders[1])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "no direct reads" in line and "buffered" in line.split(":")[0]]
    assert not [line for line in lines if "no direct reads" in line and "/direct:" in line]
    assert any("balancing of storage 0.7 s of that, 3 iterations" in line for line in lines)
    assert load_hardware("this", profiled).memory("disk2").kind == "nvme"


def test_an_interrupted_measurement_leaves_nothing(profiled, here, monkeypatch, capsys, tmp_path):
    """Ctrl-C: one line, 130, no record."""

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(table, "measure_table", interrupt)
    kept = set(profiled.iterdir())
    assert main([*QUICK, "-o", str(tmp_path / "p.json")]) == 130
    assert capsys.readouterr() == ("", "helm-profile: interrupted\n")
    assert set(profiled.iterdir()) == kept and not (tmp_path / "p.json").exists()


def test_a_record_without_a_loopback_has_no_tables(cache, here, tabled, capsys):
    cache.mkdir(parents=True)
    hardware = loopback_record(here)
    alone = hardware.model_copy(
        update={"devices": hardware.devices[:1], "links": (), "memories": hardware.memories[:1]}
    )
    (cache / "profile-1.json").write_text(alone.to_json())
    assert main(QUICK) == 6
    check_one_line(capsys, "need an accelerator", "--loopback")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--batch", "2"], 2, "--batch"), (["--again"], 2, "--again"), (["--storage", "x"], 2, "--storage"),
        (["--model", "no-such-model"], 2, "no-such-model"), ([*QUICK, "--batch", "0"], 2, "--batch"),
        ([*QUICK, "--context", "0"], 2, "--context"), ([*QUICK, "--context", "1000000"], 2, "context"),
        ([*QUICK, "--storage", "no/such/folder"], 2, "--storage"), ([*QUICK, "--kv-format", "q8_0"], 2, "--kv-format"),
        (["--model", "Qwen2.5-0.5B", "--format", "q4_k"], 2, "--format"),
        ([*QUICK, "--batch", "900000"], 6, "--batch"),
    ],
)  # fmt: skip
def test_bad_questions_are_noticed_before_measuring(profiled, tabled, asked, capsys, arguments, code, says):
    assert main(arguments) == code
    check_one_line(capsys, says)
    assert tabled == [] and asked == []
