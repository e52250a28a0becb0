"""Writes names of modules, layer by layer, in fewer words: `layers.*` for all layers, or for all of some kinds."""

import re
from collections import defaultdict
from collections.abc import Sequence

_NUMBER = re.compile(r"(?<=\blayers\.)[0-9]{1,4}(?![0-9])")


def joined_names(names: Sequence[str], pattern: str) -> tuple[str, ...]:
    """Return the names in order, one with `layers.*` for those that only differ in their layer.

    Names are joined where they name all layers of some letters of `pattern` and no others; what is left stays as it
    is."""
    layers: dict[str, set[int]] = defaultdict(set)
    for name in names:
        number = _NUMBER.search(name)
        if number is not None:
            layers[_starred(name)].add(int(number[0]))
    whole = {name for name, numbers in layers.items() if _is_whole(numbers, pattern)}
    return tuple(dict.fromkeys(_starred(name) if _starred(name) in whole else name for name in names))


def _starred(name: str) -> str:
    return _NUMBER.sub("*", name, count=1)


def _is_whole(numbers: set[int], pattern: str) -> bool:
    if max(numbers) >= len(pattern):
        return False
    letters = {pattern[number] for number in numbers}
    return numbers == {number for number, letter in enumerate(pattern) if letter in letters}
