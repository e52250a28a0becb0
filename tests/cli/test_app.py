"""What every command shares, as a shell sees it: standard output, exit codes, one line or one JSON document."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helmsman.cli.app import command_parser, emit, run_command, to_json
from helmsman.schemas.errors import BadInputError, HelmError

PROGRAM = """
import sys
from helmsman.cli.app import command_parser, emit, run_command, say, to_json

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
        (["--model", "x", "--format", "q9"], "--format", "invalid choice: 'q9'"),
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
    assert error["remedy"] == "see helm-test --help"
