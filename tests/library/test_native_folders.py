"""Folders of the native code and what files of one may include of others: like the rooms of Python, downwards only."""

import re
from pathlib import Path

from together import together

CSRC = Path(__file__).parents[2] / "csrc"

FLOORS = ("formats", "runtime", "kernels", "stage", "serving", "bindings")
"""Folders of the executor's native code, the lowest first: each includes itself and those below it."""

KERNEL_FLOORS = ("simd", "", "linear", "elementwise", "cache", "attention", "experts", "recurrent", "tables")
"""Folders of `kernels`, the lowest first; the second is `kernels` itself: the contract, the choice of a table."""

ALONE = ("scheduling", "timing")
"""Folders of modules of their own, which include nothing of others."""

FILES = sorted(path.relative_to(CSRC) for path in CSRC.rglob("*") if path.suffix in (".h", ".cpp"))


def included(path: Path) -> list[Path]:
    """Return the files of csrc that one of them includes, by their paths from csrc."""
    return [Path(name) for name in re.findall(r'#include "([^"]+)"', (CSRC / path).read_text())]


def floor_of(path: Path) -> tuple[int, int]:
    """Return the floor of a file's folder, and within kernels that of the folder in it."""
    top, *inner = path.parts[:-1]
    return FLOORS.index(top), KERNEL_FLOORS.index(inner[0] if inner else "") if top == "kernels" else 0


def test_every_folder_has_a_floor() -> None:
    assert {path.parts[0] for path in FILES} == {*FLOORS, *ALONE}
    assert {path.parts[1] for path in FILES if path.parts[0] == "kernels" and len(path.parts) > 2} < {*KERNEL_FLOORS}


@together("path", FILES)
def test_a_file_includes_what_exists_in_its_own_folder_or_below(path: Path) -> None:
    for other in included(path):
        assert (CSRC / other).is_file(), f"{other} does not exist under csrc"
        if path.parts[0] in ALONE or other.parts[0] in ALONE:
            assert path.parts[0] == other.parts[0], f"{other} is of another module"
        else:
            assert floor_of(other) <= floor_of(path), f"{other} is above it"
