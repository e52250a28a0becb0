"""What every command shares, as a shell sees it: standard output, exit codes, one line or one JSON document."""

import argparse
import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helmsman.cli.app import run_command
from helmsman.cli.output import emit, to_json
from helmsman.cli.parser import OF_PLANS, command_parser
from helmsman.cli.plan import build_parser as plan_parser
from helmsman.schemas.errors import BadInputError, HelmError

PROGRAM = """
import sys
from helmsman.cli.app import run_command
from helmsman.cli.output import emit, say, to_json
from helmsman.cli.parser import command_parser

def execute(args):
    if args.out is not None and str(args.out) == "stream":
        say("token ", end="")
    emit(args, to_json({"name": NAME}), lambda: NAME)
    return 0

sys.exit(run_command(command_parser("helm-test", "A test.", "helm-test"), execute, ARGUMENTS))
"""


def shell(
    arguments: list[str], name: str = "x", stdout: int | None = subprocess.PIPE, encoding: str = "utf-8"
) -> tuple[int, bytes, str]:
    """(exit code, output, errors) of a process that prints `name`."""
    program = PROGRAM.replace("ARGUMENTS", repr(arguments)).replace("NAME", ascii(name))
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=stdout, stderr=subprocess.PIPE, env=environment, check=False
    )
    return done.returncode, done.stdout or b"", done.stderr.decode()


@pytest.mark.parametrize("arguments", [["--json"], [], ["--help"], ["--version"], ["--json", "--wrong"]])
def test_a_full_standard_output_is_one_line_and_code_6(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        code, _, errors = shell(arguments, stdout=full.fileno())
    assert (code, errors.count("\n")) == (6, 1), errors
    assert errors.startswith("helm-test: error: standard output: no room on the disk; ")


@pytest.mark.parametrize("arguments", [["--json"], ["--help"]])
def test_a_reader_that_leaves_is_no_failure(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        code, _, errors = shell(arguments, stdout=writer)
    finally:
        os.close(writer)
    assert (code, errors) == (0, "")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_what_cannot_be_encoded_is_escaped(encoding: str) -> None:
    name = "a\udcffb é 世 😀"
    code, out, errors = shell(["--json"], name, encoding=encoding)
    assert (code, errors) == (0, "")
    assert json.loads(out.decode(encoding))["name"] == name
    code, out, errors = shell([], name, encoding=encoding)
    assert (code, errors) == (0, "")
    assert "a\\udcffb" in out.decode(encoding)


def test_surrogates_are_escaped_in_files_too(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    assert shell(["-q", "-o", str(path)], "a\udcff")[0] == 0
    assert json.loads(path.read_bytes())["name"] == "a\udcff"


Run = Callable[..., dict[str, object]]


@pytest.fixture
def failure(capsys: pytest.CaptureFixture[str]) -> Run:
    """The JSON error of a command that raises `error`, or that meets `arguments`."""

    def run(*arguments: str, error: HelmError | None = None) -> dict[str, object]:
        parser = command_parser("helm-test", "A test.", "helm-test")
        parser.add_argument("--model", required=True)
        parser.add_argument("--format", choices=("f32", "f16"))
        parser.add_argument("--batch", type=int)

        def execute(args: argparse.Namespace) -> int:
            if error is not None:
                raise error
            emit(args, to_json({}), lambda: "")
            return 0

        run_command(parser, execute, [*arguments, "--json"])
        found: dict[str, object] = json.loads(capsys.readouterr().out)["error"]
        return found

    return run


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.5, 1.5), (3, 3), (True, True), ("x", "x"), (None, None), ([1, 2], "[1, 2]"),
        (float("inf"), "inf"), (float("nan"), "nan"), ("a\udcff", "a\udcff"),
    ],
)  # fmt: skip
def test_values_keep_their_type_in_json(failure: Run, value: object, shown: object) -> None:
    found = failure("--model", "x", error=BadInputError("bad", value=value))["value"]
    assert (found, type(found)) == (shown, type(shown))


@pytest.mark.parametrize(
    ("arguments", "field", "says"),
    [
        (["--model", "x", "--format", "q9"], "--format", "no such choice"),
        (["--model", "x", "--batch", "x"], "--batch", "invalid int value: 'x'"),
        (["--model"], "--model", "expected one argument"),
        ([], "--model", "required"),
        (["--model", "x", "-q", "-v"], "-v/--verbose", "not allowed with argument"),
        (["--model", "x", "--wrong=3"], "--wrong", "unrecognized argument"),
        (["--model", "x", "stray"], None, "unrecognized arguments: stray"),
    ],
)
def test_what_argparse_refuses_names_its_option(
    failure: Run, arguments: list[str], field: str | None, says: str
) -> None:
    error = failure(*arguments)
    assert (error["code"], error["field"]) == ("usage", field)
    assert says in str(error["message"])
    assert error["remedy"] == ("use f32, f16" if says == "no such choice" else "see helm-test --help")


@pytest.mark.parametrize(
    ("error", "code"), [(MemoryError(), "hardware-unavailable"), (RecursionError("deep"), "bad-input")]
)
def test_too_little_memory_and_too_deep_input_are_errors_of_their_own(
    error: Exception, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(args: argparse.Namespace) -> int:
        raise error

    assert run_command(command_parser("helm-test", "A test.", "helm-test"), execute, ["--json"]) in (5, 6)
    assert json.loads(capsys.readouterr().out)["error"]["code"] == code


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory"),
        (ImportError("libarrow.so: failed to map segment from shared object"), "out of memory"),
        (RuntimeError("can't start new thread"), "no thread can be started"),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), "no thread can be started"),
    ],
)
def test_what_the_system_refuses_is_no_internal_error(
    error: Exception, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(args: argparse.Namespace) -> int:
        raise error

    assert run_command(command_parser("helm-test", "A test.", "helm-test"), execute, ["--json"]) == 6
    assert json.loads(capsys.readouterr().out)["error"]["message"] == message


def test_threads_that_the_system_refuses_are_said_so() -> None:
    """As Python's and C++'s libraries say it."""
    script = (
        "import resource, threading; from helmsman.cli.app import _lack; from helmsman.executor import _kernels\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 2**22, used + 2**22))\n"
        "for start in (threading.Thread(target=print).start, _kernels.Queue, lambda: _kernels.Pool([0])):\n"
        "    try: start()\n"
        "    except (RuntimeError, OSError) as error: print(_lack(error).message)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "no thread can be started\n" * 3


def test_a_zero_byte_is_in_no_argument(failure: Run) -> None:
    error = failure("--model", "a\0b")
    assert (error["code"], error["value"]) == ("usage", "a\0b")


def test_an_error_is_a_line_that_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    def execute(args: argparse.Namespace) -> int:
        raise BadInputError(
            "m" * 10_000, file="f" * 10_000, field="d" * 10_000, value="v" * 10_000, remedy="r" * 10_000
        )

    assert run_command(command_parser("helm-test", "A test.", "helm-test"), execute, []) == 5
    line = capsys.readouterr().err
    assert len(line) < 2500 and line.count("\n") == 1 and "(10000 characters)" in line


def write(path: Path) -> int:
    return shell(["-q", "-o", str(path)])[0]


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "out.json", tmp_path / "link"
    link.symlink_to(target)
    for _ in range(2):  # a link to nothing yet, then to a file
        assert write(link) == 0
        assert link.is_symlink() and json.loads(target.read_text()) == {"name": "x"}
    assert sorted(tmp_path.rglob("*")) == [link, target.parent, target], "no temporary is left"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o666])
def test_a_file_keeps_its_mode(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("")
    path.chmod(mode)
    assert write(path) == 0 and path.read_text()
    assert path.stat().st_mode & 0o777 == mode


def test_two_outputs_and_what_is_read_are_three_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.json").write_text("plan")
    (tmp_path / "link").symlink_to(tmp_path / "plan.json")

    def code(*argv: str) -> int:
        parser = command_parser("helm-test", "A test.", "helm-test")
        parser.add_argument("plan", type=Path)
        parser.add_argument("--trace", type=Path)
        parser.add_argument("--requests", action="append")
        parser.add_argument("--model")
        return run_command(parser, lambda args: 0, [str(tmp_path / "plan.json"), *argv])

    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text("config")
    same = str(tmp_path / "new.json")
    assert code("-o", same, "--trace", str(tmp_path / "other")) == 0
    for argv, said in (
        (("-o", same, "--trace", same), "--trace: is written by -o too"),
        (("-o", str(tmp_path / "plan.json")), "-o: is read as PLAN too"),
        (("--trace", str(tmp_path / "link")), "--trace: is read as PLAN too"),
        (("-o", str(tmp_path / "link"), "--requests", "x"), "-o: is read as PLAN too"),
        (("--model", str(folder), "-o", str(folder / "config.json")), "-o: is read as --model too"),
    ):
        assert code(*argv) == 2
        assert said in capsys.readouterr().err
    assert (tmp_path / "plan.json").read_text() == "plan"
    name = tmp_path / "Qwen3-0.6B"
    name.write_text("a plan that was written before")
    monkeypatch.chdir(tmp_path)
    assert code("--model", "Qwen3-0.6B", "-o", "Qwen3-0.6B") == 0, "a name of the catalogue is no file"
    (tmp_path / "TRACE.CSV").write_text("requests")
    assert code("--requests", "TRACE.CSV", "-o", "TRACE.CSV") == 2
    assert "-o: is read as --requests too" in capsys.readouterr().err


def test_options_of_the_library_are_told_as_flags() -> None:
    """Of the command itself, or of helm-plan where it speaks of how a plan is made; other words stay."""
    parser = command_parser("helm-test", "A test.", "helm-test")
    parser.add_argument("--max-batch")
    text = "give `max_batch`, or plan with `kv_rule` accelerator and a `context` of 40, not `weights`"
    said = "give --max-batch, or plan with --kv-rule accelerator and a --context of 40, not `weights`"
    assert parser.in_flags(text) == said


def test_options_of_plans_that_other_commands_speak_of_are_flags_of_helm_plan() -> None:
    """The executor's remedies name options of helm-plan between backquotes; every command shows these as flags."""
    parser = plan_parser()
    assert all(parser.flag(option) == f"--{option.replace('_', '-')}" for option in OF_PLANS)
    executor = Path(__file__).parents[2] / "executor"
    remedies = " ".join(re.findall(r"plan with(?:out)? `[^\"]*", "".join(map(Path.read_text, executor.rglob("*.py")))))
    named = set(re.findall(r"`([a-z_]+)`", remedies)) - {"backend"}
    assert named and named <= set(OF_PLANS)


@pytest.mark.parametrize(("argv", "own"), [("None", True), ("['models']", False)])
def test_only_a_process_of_the_command_collects_seldom(argv: str, own: bool) -> None:
    """A program that calls a command keeps its garbage collection."""
    code = (
        "import gc, sys; before = gc.get_threshold(); sys.argv = ['helm-list', 'models']; "
        "from helmsman.cli.list import main; "
        f"main({argv}); "
        "print(gc.get_threshold() != before and gc.get_freeze_count() > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(own)
