"""Names that are nearly the ones that are known: what a mistyped one may have meant."""

import re
from collections.abc import Iterable

_REPORTED = re.compile(r"\((?:r|tm)\)|@.*$|\d+-core processor|\d+th gen ")
_VENDORS = frozenset({"nvidia", "geforce", "amd", "radeon", "intel"})
_EVERYWHERE = frozenset({"core", "processor", "cpu", "gpu", "generation", "workstation", "edition"})


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names nearest to `name`, best first, at most five."""
    from difflib import get_close_matches

    of = {plain(candidate): candidate for candidate in known}
    wanted = plain(name)
    near = [of[key] for key in get_close_matches(wanted, of, n=4, cutoff=0.5)]
    near += [candidate for key, candidate in of.items() if wanted and wanted in key and candidate not in near]
    return near[:5]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a remedy that names the known names nearest to `name`, or else the first of all."""
    names = sorted(known)
    near = close_names(name, names)
    if near:
        return f"did you mean {', '.join(near)}?"
    return f"known: {', '.join(names[:_LISTED])}{', ...' if len(names) > _LISTED else ''}"


_LISTED = 8
"""The number of names that are listed where none is near."""


def plain(name: str) -> str:
    """`name` without case, spaces, punctuation, vendor words and what /proc/cpuinfo adds, for comparison."""
    words = re.findall(r"[a-z0-9+]+", _REPORTED.sub(" ", name.lower()))
    return "".join(word for word in words if word not in _VENDORS | _EVERYWHERE)
