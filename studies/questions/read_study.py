"""Read a study from a YAML or JSON file, or from its content."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_origin

import yaml

from helmsman.schemas.base import Frozen
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import CONFIG_LIMIT, MAX_DEPTH, parse_json, parse_mapping, read_bytes
from helmsman.schemas.repeated_names import first_repeated
from helmsman.schemas.study import Study, StudyServing

_PARTS = re.compile(r"(^|,)\s*(cpu|gpu|ram)=")
_NEXT_PART = re.compile(r",(?=[^,=]*=)")
"""A comma before a part's name; in a part's value it may stand between names."""
_REMEDY = "write a study as in docs/studies.md"


def content_of(path: Path) -> dict[str, Any]:
    """Return the content of a study's file, as JSON has it. Raises BadInputError naming file, value and remedy."""
    data = read_bytes(path, CONFIG_LIMIT)
    content = parse_json(data, str(path)) if path.suffix == ".json" else _parse_yaml(data, str(path))
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise BadInputError("not a study", file=str(path), remedy=_REMEDY)
    return content


def study_of(content: Mapping[str, Any], file: str = "study") -> Study:
    """Return the study of its content, as JSON has it; one entry may stand for a list of one, and text for parts of a
    machine. Raises BadInputError; `file` names the study in errors."""
    filled = _with_lists(content, Study)
    if isinstance(filled.get("serving"), Mapping):
        filled["serving"] = _with_lists(filled["serving"], StudyServing)
    machines = filled.get("machines")
    if isinstance(machines, list | tuple):
        filled["machines"] = [_machine(machine) for machine in machines]
    return parse_mapping(Study, filled, file, "{'models': [NAME], 'machines': [NAME]}", _no_json)


def _with_lists(content: Mapping[str, Any], kind: type[Frozen]) -> dict[str, Any]:
    """Return a document's content with lists of one where one entry stands for them."""
    lists = {name for name, field in kind.model_fields.items() if get_origin(field.annotation) is tuple}
    return {
        name: [value] if name in lists and not isinstance(value, list | tuple) else value
        for name, value in content.items()
    }


def _machine(machine: object) -> object:
    """Return a machine as a study's document has it: `gpu=NAME,cpu=NAME,ram=64GB` are parts."""
    if not isinstance(machine, str) or not _PARTS.search(machine):
        return machine
    pairs = (item.partition("=") for item in _NEXT_PART.split(machine))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _no_json(value: object) -> object:
    raise TypeError(f"{value!r:.80} is nothing that JSON has")


class _UniqueKeysLoader(yaml.SafeLoader):
    """Reads YAML without repeated keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        repeated = first_repeated(self.construct_object(key, deep=True) for key, _ in node.value)
        if repeated is not None:
            raise yaml.YAMLError(f"duplicate key {repeated!r:.80}")
        return super().construct_mapping(node, deep)


def _parse_yaml(data: bytes, file: str) -> Any:
    try:
        text = data.decode()
        _check_plain(text)
        return yaml.load(text, _UniqueKeysLoader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        told = " ".join(str(error).split()) or type(error).__name__
        raise BadInputError(f"not valid YAML: {told}", file=file, remedy=_REMEDY) from None


def _check_plain(text: str) -> None:
    """Raise YAMLError for anchors, by which a small file may stand for gigabytes, and for deep nesting, which takes the
    parser time that grows with its square."""
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise yaml.YAMLError(f"nested deeper than {MAX_DEPTH} levels")
        if getattr(event, "anchor", None) is not None:
            raise yaml.YAMLError("anchors and aliases are not read")
