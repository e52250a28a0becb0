"""The process that renders a checkpoint's chat template: `python -m helmsman.executor.text.template_child`.

A template is a program that came with a checkpoint. Here it is sandboxed as transformers does it, and the process has
limits of memory and processor time of its own, so that it may be ended without anything else (`template_process`).
Standard input has one line of JSON with the template and its limits, then one line for each conversation; standard
output has one line for each of these, `{"text": ...}` or `{"error": ...}`."""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import Any

from jinja2 import Environment, Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_SHOWN = 400
"""Characters of an error that are told."""


class _Generation(Extension):
    """Renders `{% generation %}`, which marks the assistant's answers for training, as its body."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _GuardedNamespace(Namespace):
    """A namespace without the names by which Python's internals are reached."""

    def __init__(self, *args: Any, **values: Any) -> None:
        content = dict(*args, **values)
        for name in content:
            _check_name(name)
        super().__init__(content)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace has no name that begins with an underscore (got {name!r})")


def sandbox() -> ImmutableSandboxedEnvironment:
    """Return a Jinja sandbox with the tags, filters and functions that transformers offers chat templates."""
    jinja = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols], cache_size=0
    )
    jinja.filters["tojson"] = _to_json
    jinja.globals["raise_exception"] = _refuse
    jinja.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    jinja.globals["namespace"] = _GuardedNamespace
    return jinja


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def main() -> None:
    """Read the template and its limits, then render one conversation a line until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: it is the parent's to end this
    settings = json.loads(sys.stdin.readline())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit(resource.RLIMIT_AS, _address_space() + settings["memory"])
    compiled: list[Template] = []

    def template() -> Template:
        if not compiled:
            compiled.append(sandbox().from_string(settings["source"]))
        return compiled[0]

    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, ceil(used.ru_utime + used.ru_stime + settings["seconds"]))
        sys.stdout.write(_answer(template, json.loads(line), settings["tokens"], settings["characters"]) + "\n")
        sys.stdout.flush()


def _answer(template: Callable[[], Template], messages: list[Any], tokens: dict[str, str], most: int) -> str:
    """One line of JSON, whatever the template does."""
    pieces: list[str] = []
    length = 0
    try:
        for piece in template().generate(messages=messages, add_generation_prompt=True, **tokens):
            length += len(piece)
            if length > most:
                raise TemplateError(f"it makes more than {most} characters")
            pieces.append(piece)
        return json.dumps({"text": "".join(pieces)})
    except MemoryError:
        pieces.clear()
        return json.dumps({"error": "it needs too much memory"})
    except Exception as error:  # a template may raise whatever Python does
        return json.dumps({"error": f"{str(error) or type(error).__name__:.{_SHOWN}}"})


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _limit(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    main()
