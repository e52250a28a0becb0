"""Names in the product's Python: classes of one name, values that are not nouns, constants without a subject."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/helmsman"

SHARED_CLASS_NAMES = frozenset({"Part", "Region", "Seconds"})
"""Class names that two files may have; 20 at most."""

MAX_SHARED_CLASS_NAMES = 20

VAGUE_NAMES = ("found", "each")
"""Names that do not say what a value is."""

MAX_VAGUE_NAMES = 200
"""The number of uses of `VAGUE_NAMES` that the product stays below."""

VAGUE_BEGINNINGS = ("So many", "So often")
"""Beginnings of a constant's docstring that leave out what is counted or limited."""


_TEXTS = re.compile(r'"""[\s\S]*?"""|#.*')
"""Docstrings and comments."""
_CLASS = re.compile(r"^\s*class (\w+)", re.MULTILINE)
_VAGUE = re.compile(rf"\b(?:{'|'.join(VAGUE_NAMES)})\b")
_BEGINNING = re.compile(rf'"""(?:{"|".join(VAGUE_BEGINNINGS)})')


@dataclass
class Names:
    """Of all files, whose paths begin at the root: the files of every class name, the number of uses of `VAGUE_NAMES`
    by file, and the constants whose docstrings begin with `VAGUE_BEGINNINGS`."""

    classes: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    vague: Counter[str] = field(default_factory=Counter)
    constants: list[str] = field(default_factory=list)

    def add(self, path: str, text: str) -> None:
        """Take a file. Syntax trees, which take seconds for all files, are made of those that have such words."""
        code = _TEXTS.sub("", text)
        for name in _CLASS.findall(code):
            self.classes[name].append(path)
        if not _VAGUE.search(code) and not _BEGINNING.search(text):
            return
        for node in ast.walk(ast.parse(text)):
            self.vague[path] += name_of(node) in VAGUE_NAMES
            if isinstance(node, ast.Module | ast.ClassDef):
                vague = (name for name, docstring in constants(node.body) if docstring.startswith(VAGUE_BEGINNINGS))
                self.constants.extend(f"{path}: {name}" for name in vague)


@cache
def names() -> Names:
    """Return what there is in the product's files."""
    rooms = [room.resolve() for room in PACKAGE.iterdir() if room.is_dir()]
    everything = Names()
    for path in sorted([*PACKAGE.glob("*.py"), *(path for room in rooms for path in room.rglob("*.py"))]):
        everything.add(str(path.relative_to(ROOT)), path.read_text())
    return everything


def name_of(node: ast.AST) -> str | None:
    """Return the name that a use of a variable, a parameter or an attribute has; None for other nodes."""
    match node:
        case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
            return name
    return None


def constants(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield (name, docstring) of what is assigned and documented by the statement after."""
    for statement, text in pairwise(body):
        match statement, text:
            case (
                ast.Assign(targets=[target]) | ast.AnnAssign(target=target),
                ast.Expr(value=ast.Constant(value=str(docstring))),
            ):
                yield ast.unparse(target), docstring


def test_a_class_name_occurs_once() -> None:
    """A reader who meets a class knows which one it is."""
    repeated = {name: paths for name, paths in names().classes.items() if len(paths) > 1}
    others = {name: paths for name, paths in repeated.items() if name not in SHARED_CLASS_NAMES}
    assert not others, f"classes of one name: name each for what it is of, as `CachePiece` is: {others}"
    unneeded = SHARED_CLASS_NAMES - repeated.keys()
    assert not unneeded, f"names that occur once now: remove them from SHARED_CLASS_NAMES: {sorted(unneeded)}"
    assert len(SHARED_CLASS_NAMES) <= MAX_SHARED_CLASS_NAMES, "rename classes instead of allowing more of one name"


def test_values_are_named_by_nouns() -> None:
    """`found` and `each` say how a value came about, not what it is."""
    counts = names().vague
    most = "; ".join(f"{path} {count}" for path, count in counts.most_common(5))
    message = f"{counts.total()} uses of {' and '.join(VAGUE_NAMES)}: call values what they hold, first in {most}"
    assert counts.total() < MAX_VAGUE_NAMES, message


def test_constants_say_what_they_limit() -> None:
    """A constant's docstring begins with its subject."""
    vague = names().constants
    message = f"begin with the subject, as in 'The number of blocks at most', and name the constant for it: {vague}"
    assert not vague, message


ONE = """
class One:
    '''class Two: found'''

    class Three:
        pass


def f(each):
    return each.found
"""
OTHER = """
class One:
    A = 1
    '''So many.'''


B: int = 2
'''So often.'''
C = 3
'''The number.'''
"""


def test_names_are_seen() -> None:
    """The tests above can fail: both texts break the rules on purpose, by names and by docstrings without a subject."""
    seen = Names()
    for path, text in (("a.py", ONE), ("b.py", OTHER)):
        seen.add(path, text.replace("'''", '"""'))
    assert seen.classes == {"One": ["a.py", "b.py"], "Three": ["a.py"]} and seen.vague["a.py"] == 3
    assert seen.constants == ["b.py: B", "b.py: A"]
