"""`helm-profile` as a user meets it: files, table, warnings, and every kind of bad input. Measuring is replaced."""

import json
from errno import ENOSPC

import pytest

from helmsman.cli import app
from helmsman.cli.plan import main as plan
from helmsman.cli.profile import build_parser, main
from helmsman.executor.profile import run as profiler
from helmsman.executor.profile.readings import OTHERS
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.schemas.hardware import Figure, Hardware, Reading
from helmsman.schemas.read import parse_document


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

    def measured(machine, loopback, date, tell):
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
    monkeypatch.setattr(profiler, "profile", lambda *_: record(others=0.31))
    assert main([]) == 0
    assert "disturbed: other processes took 31% of the CPU time; measure again" in capsys.readouterr().out


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
    assert (error["code"], error["field"], captured.err) == ("usage", "--loopback", "")


def test_checking_places_leaves_nothing(cache, monkeypatch, tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(profiler, "profile", interrupted)
    assert main(["-o", str(tmp_path / "p.json")]) == 130
    assert list(cache.iterdir()) == [] and not (tmp_path / "p.json").exists()


def test_the_file_asked_for_is_written_even_when_the_cache_fails(cache, asked, monkeypatch, capsys, tmp_path):
    """Its own file comes first; the one that did not fit is not left half-written."""
    written = []

    def second_is_too_much(stream, data):
        written.append(data)
        stream.write(data if len(written) == 1 else data[:100])
        if len(written) == 2:
            raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(app, "_write_all", second_is_too_much)
    assert main(["--json", "-o", str(tmp_path / "p.json")]) == 6
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "hardware-unavailable"
    assert parse_document(Hardware, (tmp_path / "p.json").read_bytes(), "p.json") == record()
    assert list(cache.iterdir()) == []
