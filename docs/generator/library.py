"""Makes the page of the library, from the signatures and docstrings of its public names."""

import inspect
import re
from collections.abc import Iterator

from docs.generator.markdown import block, code, escaped, page, section, table

import helmsman

LONGEST = 90
"""Letters of a signature on one line."""
_ABOUT = (
    "`import helmsman` gives these names; each is loaded when it is first used. A question is a mapping, or the "
    "document of the same name. Errors are subclasses of `HelmError` with `field`, `value` and `remedy`."
)


def library_page() -> str:
    """Return the page of all public functions, documents and errors."""
    functions = [section(code(name), _function(name)) for name in names_of(inspect.isfunction)]
    kinds = [(code(name), escaped(_first(getattr(helmsman, name)))) for name in names_of(inspect.isclass)]
    values = section("Documents, results and errors", table(("name", "what it is"), kinds))
    return page("Library", _ABOUT, *functions, values)


def names_of(kind: "object") -> Iterator[str]:
    """Yield the public names of a kind, as `inspect` tells kinds apart, in order."""
    assert callable(kind)
    yield from sorted(name for name in helmsman._HOMES if kind(getattr(helmsman, name)))


def _function(name: str) -> str:
    function = getattr(helmsman, name)
    text, example = _divided(inspect.getdoc(function) or "")
    return "\n\n".join(
        part
        for part in (block(_signature(name), "python"), escaped(text), block(example, "pycon") if example else "")
        if part
    )


def _signature(name: str) -> str:
    """Return a signature, one parameter a line where it is long."""
    text = f"helmsman.{name}{inspect.signature(getattr(helmsman, name))}"
    text = re.sub(
        r"\b(?:helmsman|collections\.abc|pathlib)(?:\.\w+)*\.(\w+)", r"\1", text.removeprefix(f"helmsman.{name}")
    )
    text = re.sub(
        r"\bUnion\[((?:[^\[\]]|\[[^\]]*\])*)\]", lambda union: " | ".join(map(str.strip, _parameters(union[1]))), text
    )
    text = f"helmsman.{name}{text.replace(chr(39), '')}"
    if len(text) <= LONGEST:
        return text
    inside, after = text.split("(", 1)[1].rsplit(") ->", 1)
    lines = ",\n".join(f"    {part.strip()}" for part in _parameters(inside))
    return f"helmsman.{name}(\n{lines},\n) ->{after}"


def _parameters(text: str) -> Iterator[str]:
    """Yield the parameters of a signature, which commas divide outside of brackets."""
    depth, begun = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            yield text[begun:place]
            begun = place + 1
    yield text[begun:]


def _divided(docstring: str) -> tuple[str, str]:
    """Return the words of a docstring, and its example."""
    text, mark, example = docstring.partition(">>> ")
    return text.strip(), (mark + example).strip()


def _first(value: object) -> str:
    """Return the first sentence of a docstring."""
    return re.split(r"(?<=\.)\s", " ".join((inspect.getdoc(value) or "").split()))[0]
