"""Examples in Markdown pages, run for real: commands and what they print, Python sessions, files that readers write.

In a page

- a block `console` has commands after `$ ` and below each what it prints; a command without anything below may print
  what it likes. `...` stands for whatever differs from machine to machine, within a line, or alone for several lines;
- a block `pycon` is a Python session, as doctest has it;
- a block with `title="FILE"` is written to that file, in the folder where the page's commands run; further blocks of
  the same file go on with it;
- a comment before a block changes that: `<!-- not run: why -->`, `<!-- nightly: why -->` (run by nightly tests alone),
  `<!-- may exit with 4, 6: why -->`.

Commands of Helm run in this process; a few others that a page may need are known by name (`_OTHERS`)."""

import difflib
import doctest
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

_BLOCK = re.compile(
    r"(?:^<!-- (?P<told>[^\n]*?) -->\n+)?^```(?P<head>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_TITLE = re.compile(r'title="([^"]+)"')
_CODES = re.compile(r"may exit with ([\d, ]+)")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code of a page: its line, language, text, the file that it is, and what a comment says of it."""

    line: int
    language: str
    text: str
    file: str | None
    told: str

    def runs(self, *, nightly: bool) -> bool:
        """Whether it is run, by default or in nightly tests."""
        return not self.told.startswith("not run") and (nightly or not self.told.startswith("nightly"))

    @property
    def codes(self) -> set[int]:
        """The exit codes that its commands may have."""
        told = _CODES.match(self.told)
        return {0, *(map(int, told[1].split(",")) if told else ())}


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the blocks of code of a page."""
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        head, title = found["head"], _TITLE.search(found["head"])
        line = text[: found.start("head")].count("\n") + 1
        yield Block(line, head.split(" ")[0], found["text"], title and title[1], found["told"] or "")


def commands_of(block: Block) -> Iterator[tuple[int, str, str]]:
    """Yield the commands of a console block: line, command with its continued lines, and what it should print."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    line = block.line + 1 + parts[0].count("\n")
    for part in parts[1:]:
        command = re.match(r"(?:[^\n]*\\\n)*[^\n]*\n?", part)
        assert command is not None
        yield line, command[0].replace("\\\n", " ").strip(), part[command.end() :]
        line += part.count("\n")


@dataclass
class PageRun:
    """Runs a page's blocks in a folder. `stands_for`: commands that something else is run for, by their first words."""

    page: Path
    folder: Path
    capture: pytest.CaptureFixture[str]
    nightly: bool = False
    stands_for: dict[str, Callable[[list[str]], int]] = field(default_factory=dict)
    names: dict[str, object] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)

    def run(self) -> int:
        """Run every block that is run by default, or nightly; return how many were."""
        blocks = [block for block in blocks_of(self.page) if block.runs(nightly=self.nightly)]
        return sum(self._block(block) for block in blocks)

    def _block(self, block: Block) -> bool:
        if block.file is not None:
            place = self.folder / block.file
            place.parent.mkdir(parents=True, exist_ok=True)
            before = place.read_text() + "\n\n" if block.file in self.written else ""
            place.write_text(before + block.text)
            self.written.add(block.file)
        elif block.language == "console":
            for line, command, wanted in commands_of(block):
                self._command(block, line, command, wanted)
        elif block.language == "pycon":
            self._session(block)
        else:
            return False
        return True

    def _command(self, block: Block, line: int, command: str, wanted: str) -> None:
        self.capture.readouterr()
        words = shlex.split(command, comments=True)
        code = self._call(words)
        told = self.capture.readouterr()
        printed = (told.out + told.err, told.out) if code else (told.out,)
        where = f"{self.page.name}:{line}: {command}"
        assert code in block.codes, f"{where}\nexit code {code}\n{told.out}{told.err}"
        if wanted.strip():
            self._compare(where, wanted, *printed)

    def _compare(self, where: str, wanted: str, *printed: str) -> None:
        """Compare what is printed, with or without the line of an error, but for spaces at the ends of lines and empty
        lines at the end."""
        lines = _lines(wanted)
        if not any(matches(lines, _lines(told)) for told in printed):
            raise AssertionError("\n".join([where, *difflib.ndiff(lines, _lines(printed[0]))]))

    def _call(self, words: list[str]) -> int:
        for name, other in self.stands_for.items():
            if " ".join(words).startswith(name):
                return other(words)
        if words[0] in SCRIPTS:
            module, function = SCRIPTS[words[0]].split(":")
            try:
                code: int = getattr(import_module(module), function)(words[1:])
            except SystemExit as ended:
                return int(ended.code or 0)
            return code
        return _OTHERS[words[0]](self.folder, words)

    def _session(self, block: Block) -> None:
        test = doctest.DocTestParser().get_doctest(block.text, self.names, self.page.name, str(self.page), block.line)
        told: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
        failed = runner.run(test, out=told.append, clear_globs=False).failed
        self.names.update(test.globs)
        assert not failed, "".join(told)


def matches(wanted: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether lines are as wanted; `...` in a line stands for any text, and by itself for any number of lines."""
    reached = {0}  # numbers of printed lines that the wanted ones so far may have used up
    for line in wanted:
        if line.strip() == "...":
            reached = set(range(min(reached), len(printed) + 1))
        else:
            pattern = re.compile(".*".join(map(re.escape, line.split("..."))))
            reached = {n + 1 for n in reached if n < len(printed) and pattern.fullmatch(printed[n])}
        if not reached:
            return False
    return len(printed) in reached


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _mkdir(folder: Path, words: Sequence[str]) -> int:
    for name in words[1:]:
        if not name.startswith("-"):
            (folder / name).mkdir(parents=True, exist_ok=True)
    return 0


def _python(folder: Path, words: Sequence[str]) -> int:
    done = subprocess.run([sys.executable, *words[1:]], cwd=folder, capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout + done.stderr)
    return done.returncode


def _pytest(folder: Path, words: Sequence[str]) -> int:
    return _python(folder, ["python", "-m", "pytest", "-p", "no:cacheprovider", *words[1:]])


_OTHERS: dict[str, Callable[[Path, Sequence[str]], int]] = {"mkdir": _mkdir, "python": _python, "pytest": _pytest}
"""What readers type beside Helm's commands."""
