"""helm-run from argv to files: what it prints, what it writes, and one line for every mistake."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from op_plans import make_op_split_plan
from plans import make_hardware, make_plan
from quick_probes import quick_probes
from safetensors.torch import load_file, save_file
from shapes import small_model
from splits import with_storage
from two_cpus import TWO_CPUS

from helmsman.cli.run import main
from helmsman.executor._kernels import DiskFile
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.homes import storage
from helmsman.planner.strategies.streaming.division import pieces
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest, parse_document
from helmsman.schemas.run_report import RunReport
from helmsman.schemas.trace import read_trace
from helmsman.schemas.workload import Workload

MODEL = small_model("llama")

pytestmark = TWO_CPUS

Run = Callable[..., int]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run") / MODEL.name
    write_checkpoint(MODEL, place, seed=1, fmt="f32")
    return place


@pytest.fixture(autouse=True)
def short_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One turn of short probes beside a run: how many there are is asserted where probes are tested."""
    quick_probes(monkeypatch.setattr)


@pytest.fixture
def run(tmp_path: Path, checkpoint: Path) -> Run:
    def call(*argv: str, plan: Plan | None = None, at: Path | None = None) -> int:
        file = tmp_path / "plan.json"
        file.write_text((plan or make_plan(MODEL, 2)).to_json())
        return main([str(file), "--checkpoint", str(at or checkpoint), *argv])

    return call


@pytest.fixture
def tokens(tmp_path: Path) -> Callable[[str], str]:
    def write(content: str) -> str:
        (tmp_path / "tokens").write_text(content)
        return str(tmp_path / "tokens")

    return write


def test_text_streams_and_times_follow(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--text", "Call me", "--output-tokens", "5") == 0
    out = capsys.readouterr().out
    assert "TTFT" in out and "TPOT" in out and "tokens/s" in out


def test_json_is_one_document(run: Run, tokens: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--tokens", tokens("[1, 2, 3]"), "--output-tokens", "5", "--runs", "2", "--json", "--ignore-eos") == 0
    out = capsys.readouterr().out
    document = json.loads(out)
    assert json.loads(parse_document(RunReport, out.encode(), "out").to_json()) == document
    assert len(document["tokens"][0]) == 5 and len(document["text"]) == 1
    assert min(document[each] for each in ("tokens_per_second", "tpot_s", "ttft_s")) > 0 and len(document["runs"]) == 2


@pytest.mark.parametrize("content", ["[1,2,3]", "[[1,2,3]]", " 1 2\n3 "])
def test_token_files_in_every_form(run: Run, tokens: Any, capsys: pytest.CaptureFixture[str], content: str) -> None:
    assert run("--tokens", tokens(content), "--output-tokens", "3", "--json", "--ignore-eos") == 0
    first = json.loads(capsys.readouterr().out)["tokens"]
    assert run("--tokens", tokens("[1,2,3]"), "--output-tokens", "3", "--json", "--ignore-eos") == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == first


def test_a_batch_of_texts(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    plan = make_plan(MODEL, workload=Workload(prompt_tokens=4, output_tokens=4, context=32, batch=2))
    assert run("--text", "abcd", "--text", "efgh", "--json", "--ignore-eos", plan=plan) == 0
    assert [len(row) for row in json.loads(capsys.readouterr().out)["tokens"]] == [4, 4]


def test_the_trace_belongs_to_the_plan(run: Run, tokens: Any, tmp_path: Path) -> None:
    plan = make_plan(MODEL, 2)
    target = tmp_path / "run.parquet"
    assert run("--tokens", tokens("1 2 3"), "--output-tokens", "3", "--trace", str(target), "-q", plan=plan) == 0
    trace = read_trace(target)
    assert trace.info.plan_sha256 == digest(plan) and trace.info.source == "measured"
    assert {span.resource for span in trace.spans} == {"cpu", "loopback", "h2d", "d2h"}
    assert not list(tmp_path.glob(".run.parquet*"))


def other_shape(place: Path) -> None:
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))


def truncated(place: Path) -> None:
    file = next(place.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-1000])


def no_tokenizer(place: Path) -> None:
    (place / "tokenizer.json").unlink()


def bad_tokenizer(place: Path) -> None:
    (place / "tokenizer.json").write_text("{}")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (other_shape, "layers"),
        (truncated, "truncated"),
        (no_tokenizer, "there is no tokenizer"),
        (bad_tokenizer, "not a tokenizer"),
    ],
)
def test_a_spoilt_checkpoint_is_bad_input(
    run: Run, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Any, says: str
) -> None:
    place = tmp_path / "spoilt"
    shutil.copytree(checkpoint, place)
    spoil(place)
    assert run("--text", "Call me", at=place) == 5
    check_one_line(capsys, says, str(place))


@pytest.mark.parametrize("name", ["model.layers.1.mlp.up_proj.weight", "model.layers.0.input_layernorm.weight"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(
    run: Run, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, value: float
) -> None:
    place = tmp_path / "spoilt"
    shutil.copytree(checkpoint, place)
    values = load_file(place / "model.safetensors")
    values[name].view(-1)[-1] = value
    save_file(values, place / "model.safetensors")
    assert run("--text", "Call me", at=place) == 5
    check_one_line(capsys, "not finite", name, str(place / "model.safetensors"))


def check_one_line(capsys: pytest.CaptureFixture[str], *says: str) -> None:
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert all(part in captured.err for part in says), captured.err


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        ("[1, 523]", 5, "outside the vocabulary of 523"),
        ("[1, -1]", 5, "outside the vocabulary"),
        ("[1, true]", 5, "not a token id"),
        ('["a"]', 5, "not a token id"),
        ("one two", 5, "not a token id"),
        ("[1, 2", 5, "not valid JSON"),
        ("[]", 2, "the prompt is empty"),
        ("", 2, "the prompt is empty"),
        ("[[1], []]", 2, "the prompt is empty"),
        ("[[1], [2]]", 2, "a batch of 1"),
        (json.dumps([1] * 30), 2, "exceed the plan's context of 32"),
    ],
)
def test_bad_tokens(
    run: Run, tokens: Any, capsys: pytest.CaptureFixture[str], content: str, code: int, says: str
) -> None:
    assert run("--tokens", tokens(content)) == code
    check_one_line(capsys, says)


def test_sequences_of_unequal_length(run: Run, tokens: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plan = make_plan(MODEL, workload=Workload(prompt_tokens=4, output_tokens=4, context=32, batch=2))
    assert run("--tokens", tokens("[[1], [2, 3]]"), plan=plan) == 2
    check_one_line(capsys, "equally long")


def test_an_empty_text(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--text", "") == 2
    check_one_line(capsys, "the prompt is empty")


def test_a_text_that_is_not_utf_8(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--text", "a\udcff") == 5
    check_one_line(capsys, "not UTF-8")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--text", "a", "--output-tokens", "0"], "--output-tokens: a number from 1 to 10^9 is expected (got '0')"),
        (["--text", "a", "--runs", "x"], "--runs: "),
        ([], ""),
    ],
)
def test_bad_arguments(run: Run, capsys: pytest.CaptureFixture[str], argv: list[str], says: str) -> None:
    assert run(*argv) == 2
    check_one_line(capsys, says)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--chat"], "--depth: a conversation begins with what is said"),
        (["--text", "a", "--backend", "torch"], "--depth: only native caches"),
        (["--text", "a", "--kv-cache", "growing"], "--depth: only native caches"),
        (["--text", "a", "--output-tokens", "1", "--trace", "one.parquet"], "--output-tokens: the trace at a depth"),
        (["--text", "a", "--depth", "-1"], "--depth: a number from 1"),
    ],
)
def test_depths_that_cannot_be_measured(run: Run, capsys, monkeypatch, argv: list[str], says: str) -> None:
    monkeypatch.setattr(Engine, "load", lambda *_, **__: pytest.fail("refused too late"))
    assert run("--depth", "2", *argv) == 2
    check_one_line(capsys, says)


def test_a_depth_of_nothing_is_none(run: Run, tokens, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for options in ([], ["--depth", "0"]):
        assert run("--tokens", tokens("[1, 2, 3]"), "--output-tokens", "2", "--json", *options) == 0
        found.append(json.loads(capsys.readouterr().out)["tokens"])
    assert found[0] == found[1]


def test_a_depth_under_caches_that_move(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--text", "a", "--depth", "2", plan=make_op_split_plan(MODEL, 0, 3)) == 2
    check_one_line(capsys, "--depth: keys and values of this plan move")


@pytest.mark.parametrize(
    "argv",
    [
        ["--temperature", "-1"],
        ["--temperature", "warm"],
        ["--temperature", "nan"],
        ["--top-p", "0"],
        ["--top-k", "-3"],
        ["--min-p", "2"],
        ["--seed", "-1"],
        ["--stop", ""],
    ],
)
def test_sampling_that_makes_no_sense(run: Run, capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    assert run("--text", "a", *argv) == 2
    check_one_line(capsys, argv[0])


def test_a_stop_is_neither_printed_nor_passed(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = ("--text", "Call me", "--output-tokens", "12", "--ignore-eos", "--temperature", "1.2", "--seed", "5")
    assert run(*drawn, "--json") == 0
    whole = json.loads(capsys.readouterr().out)["text"][0]
    stop = whole[4:6]
    assert run(*drawn, "--stop", stop, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["text"] == [whole[: whole.index(stop)]] and len(found["tokens"][0]) < 12
    assert run(*drawn, "--stop", stop) == 0
    assert capsys.readouterr().out.startswith(found["text"][0] + "\nTTFT")
    assert run("--text", "a", "--temperature", "0.5", "--stop", "x", "--output-tokens", "2") == 0


@pytest.mark.parametrize("kind", ["cuda", "rocm", "metal"])
def test_a_device_that_is_not_there(run: Run, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    assert run("--text", "a", plan=make_plan(MODEL, 2, hardware=make_hardware(kind=kind))) == 6
    check_one_line(capsys, "device loopback", kind)


def test_a_plan_that_does_not_fit(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--text", "a", plan=make_plan(MODEL, 1, hardware=make_hardware(vram=1 << 20))) == 3
    check_one_line(capsys, "vram", "plan.json")


def test_missing_files(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--text", "a", at=tmp_path / "nowhere") == 5
    check_one_line(capsys, "nowhere")
    assert run("--tokens", str(tmp_path / "no-tokens")) == 5
    check_one_line(capsys, "no-tokens")
    assert main([str(tmp_path / "no-plan"), "--checkpoint", str(tmp_path), "--text", "a"]) == 5
    check_one_line(capsys, "no-plan")


@pytest.mark.parametrize("option", ["--trace", "-o"])
def test_an_unwritable_place_is_noticed_before_loading(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr(Engine, "load", lambda *_, **__: pytest.fail("loaded"))
    assert run("--text", "a", "-q", option, str(tmp_path / "nowhere" / "run.parquet")) == 2
    check_one_line(capsys, "run.parquet", "cannot be written")


def test_the_instruction_set_can_be_forced(
    run: Run, tokens: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HELM_CPU_ISA", "sse9")
    assert run("--tokens", tokens("1 2")) == 6
    check_one_line(capsys, "HELM_CPU_ISA", "sse9", "portable")


def test_a_lower_instruction_set_makes_the_same_tokens(
    run: Run, tmp_path: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--text", "Call me", "--json", plan=make_plan(MODEL)) == 0
    argv = [str(tmp_path / "plan.json"), "--checkpoint", str(checkpoint), "--text", "Call me", "--json"]
    code = "import sys; from helmsman.cli.run import main; sys.exit(main())"
    portable = os.environ | {"HELM_CPU_ISA": "portable"}
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, check=True, env=portable)
    assert json.loads(capsys.readouterr().out)["tokens"] == json.loads(done.stdout)["tokens"]


def test_the_sequences_of_a_batch_are_printed_at_the_end(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    plan = make_plan(MODEL, workload=Workload(prompt_tokens=4, output_tokens=4, context=32, batch=2))
    assert run("--text", "abcd", "--text", "efgh", "--json", plan=plan) == 0
    texts = json.loads(capsys.readouterr().out)["text"]
    assert run("--text", "abcd", "--text", "efgh", plan=plan) == 0
    assert capsys.readouterr().out.startswith("\n".join(texts))


def test_a_failure_in_its_own_process_has_no_traceback(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "plan.json").write_text(make_plan(MODEL).to_json())
    argv = [str(tmp_path / "plan.json"), "--checkpoint", str(checkpoint), "--tokens", "/nonexistent", "--json"]
    code = "import sys; from helmsman.cli.run import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, check=False)
    assert done.returncode == 5 and done.stderr.count("\n") == 1
    assert json.loads(done.stdout)["error"]["code"] == "bad-input"


@pytest.mark.parametrize("moment", ["first token", "loading"])
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, checkpoint: Path, moment: str) -> None:
    """Ctrl-C: one line, 130, and neither a trace nor a report nor files on storage."""
    folder = tmp_path / "made"
    folder.mkdir()
    (tmp_path / "plan.json").write_text(split_plan(stored=True).to_json())
    (tmp_path / "tokens").write_text("[[5, 6, 7, 8], [9, 10, 11, 12]]")
    argv = [str(tmp_path / "plan.json"), "--checkpoint", str(checkpoint), "--tokens", str(tmp_path / "tokens")]
    made = ["--storage", str(folder), "--trace", str(folder / "t.parquet"), "-o", str(folder / "r.json")]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED[moment], *argv, *made], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "helm-run: interrupted\n")
    assert not list(folder.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_end_leaves_nothing(tmp_path: Path, checkpoint: Path, number: signal.Signals) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    (tmp_path / "plan.json").write_text(split_plan(stored=True).to_json())
    (tmp_path / "tokens").write_text("[[5, 6, 7, 8], [9, 10, 11, 12]]")
    argv = [str(tmp_path / "plan.json"), "--checkpoint", str(checkpoint), "--tokens", str(tmp_path / "tokens")]
    code = INTERRUPTED["loading"].replace("signal.signal(signal.SIGINT", f"signal.signal(signal.{number.name}")
    code = code.replace("signal.default_int_handler", "signal.SIG_DFL").replace("SIGINT)", f"{number.name})")
    done = subprocess.run(
        [sys.executable, "-c", code, *argv, "--storage", str(folder)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (128 + number, f"helm-run: ended by {number.name}\n")
    assert not list(folder.iterdir())


@pytest.mark.parametrize("option", ["-o", "--trace"])
def test_what_is_read_is_not_written(run: Run, tokens: Any, capsys: pytest.CaptureFixture[str], option: str) -> None:
    prompt = tokens("1 2 3")
    assert run("--tokens", prompt, option, prompt) == 2
    check_one_line(capsys, f"{option}: is read as --tokens too")
    assert Path(prompt).read_text() == "1 2 3"


_INTERRUPT = "import os, signal, sys; from helmsman.cli.run import main; import helmsman.executor.{module} as m; "
_INTERRUPT += "signal.signal(signal.SIGINT, signal.default_int_handler); "  # background jobs of shells ignore it
_INTERRUPT += "f = {place}; {place} = lambda *a, **k: (os.kill(os.getpid(), signal.SIGINT), f(*a, **k))[1]; "
_INTERRUPT += "sys.exit(main())"
INTERRUPTED = {
    "first token": _INTERRUPT.format(module="engine", place="m.Engine._chosen"),
    "loading": _INTERRUPT.format(module="homes.storage", place="m.Storage.write"),
}
"""The signal arrives in the middle: before what a pass chose is known, or as a weight is about to be stored."""


def split_plan(*, batches: int = 1, direct: bool = True, stored: bool = False, **changes: Any) -> Plan:
    work = Workload(prompt_tokens=4, output_tokens=6, context=32, batch=2, batches=batches)
    hardware = with_storage(make_hardware(), "nvme0", direct=direct) if stored else make_hardware()
    from_storage = {"stored": ("up", "down"), "storage": ("nvme0",), "path": "direct" if direct else "bounce"}
    units = len(pieces(MODEL, {}))
    return make_op_split_plan(
        MODEL, 4, units, workload=work, hardware=hardware, **(from_storage if stored else {}), **changes
    )


PROMPTS = [[5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16], [17, 18, 19, 20]]


def made(run: Run, capsys: pytest.CaptureFixture[str], prompts: str, plan: Plan, *argv: str) -> list[list[int]]:
    assert run("--tokens", prompts, "--json", "--ignore-eos", *argv, plan=plan) == 0
    found: list[list[int]] = json.loads(capsys.readouterr().out)["tokens"]
    return found


def test_batches_of_a_zig_zag_plan_are_given_together(
    run: Run, tokens: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = make_plan(MODEL, workload=Workload(prompt_tokens=4, output_tokens=6, context=32, batch=4))
    file = tokens(json.dumps(PROMPTS))
    assert made(run, capsys, file, split_plan(batches=2)) == made(run, capsys, file, whole)
    assert run("--tokens", tokens(json.dumps(PROMPTS[:2])), plan=split_plan(batches=2)) == 2
    check_one_line(capsys, "a batch of 4")


@pytest.mark.parametrize("direct", [True, False])
def test_weights_on_storage(
    run: Run, tokens: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], direct: bool
) -> None:
    file, folder = tokens(json.dumps(PROMPTS[:2])), tmp_path / "storage"
    folder.mkdir()
    plan = split_plan(direct=direct, stored=True)
    assert made(run, capsys, file, plan, "--storage", str(folder)) == made(run, capsys, file, split_plan())
    assert run("--tokens", file, plan=plan) == 2
    check_one_line(capsys, "--storage", "nvme0")
    assert run("--tokens", file, "--storage", str(tmp_path / "nowhere"), plan=plan) == 2
    check_one_line(capsys, "nowhere", "cannot be written")


def test_a_file_system_without_direct_reads_is_warned_about(
    run: Run, tokens: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "DiskFile", lambda path, size, direct, create: DiskFile(path, size, False, create))
    file = tokens(json.dumps(PROMPTS[:2]))
    assert run("--tokens", file, "--storage", str(tmp_path), "-q", plan=split_plan(stored=True)) == 0
    captured = capsys.readouterr()
    assert "helm-run: warning: " in captured.err and "no direct reads" in captured.err
    assert captured.err.count("\n") == 1


def test_the_trace_of_a_split_has_every_lane(run: Run, tokens: Any, tmp_path: Path) -> None:
    plan, target = split_plan(), tmp_path / "run.parquet"
    assert run("--tokens", tokens(json.dumps(PROMPTS[:2])), "--trace", str(target), "-q", plan=plan) == 0
    trace = read_trace(target)
    assert trace.info.plan_sha256 == digest(plan)
    assert {"cpu", "loopback", "h2d", "h2d:activations", "d2h", "d2h:activations"} == {s.resource for s in trace.spans}
    assert {probe.name for probe in trace.info.probes} == {"cpu", "loopback", "h2d", "d2h"}


def talk(run: Run, monkeypatch: pytest.MonkeyPatch, lines: str, *argv: str, context: int = 96) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    work = Workload(prompt_tokens=16, output_tokens=8, context=context)
    return run("--chat", *argv, plan=make_plan(MODEL, 2, workload=work))


def test_a_conversation_answers_line_by_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = ("--output-tokens", "6", "--temperature", "1", "--seed", "1")
    assert talk(run, monkeypatch, "Hello\n\nAgain", *drawn, "-v") == 0
    captured = capsys.readouterr()
    assert captured.err.count("prompt tokens computed, 6 made, length") == 2
    assert "no chat template; a plain one is used" in captured.err
    assert talk(run, monkeypatch, "Hello\n\nAgain", *drawn) == 0
    assert capsys.readouterr().out == captured.out != ""
    assert talk(run, monkeypatch, "Hello\n\nAgain", *drawn, "--system", "Be brief.") == 0
    assert capsys.readouterr().out != captured.out
    assert talk(run, monkeypatch, "") == 0


def test_a_conversation_needs_an_open_input(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert run("--chat", plan=make_plan(MODEL, 2)) == 2
    assert "standard input is closed" in capsys.readouterr().err


def test_a_conversation_ends_where_the_context_does(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert talk(run, monkeypatch, "Hello\nnever read\n", context=40) == 0
    captured = capsys.readouterr()
    assert "the context of 40 tokens is full" in captured.err and captured.out
    assert talk(run, monkeypatch, "x" * 50, context=40) == 0
    captured = capsys.readouterr()
    assert "the context of 40 tokens is full" in captured.err and captured.out == ""


def test_ctrl_c_ends_a_conversation(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "generate", interrupted)
    assert talk(run, monkeypatch, "Hello\nmore\n") == 0
    assert "interrupted" not in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["--json"], ["--runs", "2"], ["--trace", "t"], ["--temperature", "-1"]])
def test_what_does_not_go_with_a_conversation(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, argv: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert talk(run, monkeypatch, "Hello\n", *argv) == 2
    captured = capsys.readouterr()
    assert argv[0] in captured.out + captured.err


def test_a_system_prompt_is_of_a_conversation(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--text", "a", "--system", "b") == 2
    check_one_line(capsys, "--system")
