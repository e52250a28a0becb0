"""Writes Markdown: tables, code, and text of docstrings with everything escaped that a table would take for itself."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; no text when there are no rows."""
    lines = ["| " + " | ".join(cell(text) for text in row) + " |" for row in rows]
    if not lines:
        return ""
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *lines]) + "\n"


def cell(text: str) -> str:
    """Return a text as a cell of a table: on one line, with bars that do not end the cell; within code none does."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if place % 2 else part.replace("|", "\\|") for place, part in enumerate(parts))


def code(text: str) -> str:
    """Return a text as code within a line; nothing for no text."""
    return f"`{text}`" if text else ""


def block(text: str, language: str = "") -> str:
    """Return a text as a block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def escaped(text: str) -> str:
    """Return plain text in which nothing is taken for markup of HTML outside of code."""
    parts = text.split("`")
    return "`".join(part if place % 2 else part.replace("<", "&lt;") for place, part in enumerate(parts))


def sentence(text: str) -> str:
    """Return a line of help as a sentence."""
    text = escaped(text)
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def page(title: str, *parts: str) -> str:
    """Return a page of several parts, those without text left out."""
    return "\n\n".join([f"# {title}", *(part.strip("\n") for part in parts if part.strip())]) + "\n"


def section(title: str, *parts: str, level: int = 2) -> str:
    """Return a section of several parts, those without text left out."""
    return "\n\n".join([f"{'#' * level} {title}", *(part.strip("\n") for part in parts if part.strip())])
