"""Names in the product's Python: classes of one name, values that are not nouns, constants without a subject."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
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


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """Return the nodes of every file's syntax tree, by its path from the root."""
    rooms = [room.resolve() for room in PACKAGE.iterdir() if room.is_dir()]
    paths = [*PACKAGE.glob("*.py"), *(path for room in rooms for path in room.rglob("*.py"))]
    return {str(path.relative_to(ROOT)): list(ast.walk(ast.parse(path.read_text()))) for path in sorted(paths)}


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
    files = defaultdict(list)
    for path, tree in nodes().items():
        for node in tree:
            if isinstance(node, ast.ClassDef):
                files[node.name].append(path)
    repeated = {name: paths for name, paths in files.items() if len(paths) > 1}
    others = {name: paths for name, paths in repeated.items() if name not in SHARED_CLASS_NAMES}
    assert not others, f"classes of one name: name each for what it is of, as `CachePiece` is: {others}"
    unneeded = SHARED_CLASS_NAMES - repeated.keys()
    assert not unneeded, f"names that occur once now: remove them from SHARED_CLASS_NAMES: {sorted(unneeded)}"
    assert len(SHARED_CLASS_NAMES) <= MAX_SHARED_CLASS_NAMES, "rename classes instead of allowing more of one name"


def test_values_are_named_by_nouns() -> None:
    """`found` and `each` say how a value came about, not what it is."""
    counts = Counter({path: sum(name_of(node) in VAGUE_NAMES for node in tree) for path, tree in nodes().items()})
    most = "; ".join(f"{path} {count}" for path, count in counts.most_common(5))
    message = f"{counts.total()} uses of {' and '.join(VAGUE_NAMES)}: call values what they hold, first in {most}"
    assert counts.total() < MAX_VAGUE_NAMES, message


def test_constants_say_what_they_limit() -> None:
    """A constant's docstring begins with its subject."""
    vague = [
        f"{path}: {name}"
        for path, tree in nodes().items()
        for node in tree
        if isinstance(node, ast.Module | ast.ClassDef)
        for name, text in constants(node.body)
        if text.startswith(VAGUE_BEGINNINGS)
    ]
    message = f"begin with the subject, as in 'The number of blocks at most', and name the constant for it: {vague}"
    assert not vague, message
