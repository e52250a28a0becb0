"""Reading documents: bounded, strict, and one clear error with file, field, value and remedy."""

import errno
import json
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field, ValidationError
from together import together

from helmsman.schemas import read
from helmsman.schemas.base import Frozen
from helmsman.schemas.blocks.positions import LearnedPositions, Rope
from helmsman.schemas.errors import BadInputError, unwritable
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest, parse_document, parse_json, read_document
from helmsman.schemas.trace import read_trace
from helmsman.schemas.workload import Workload

GOOD = {"schema": "helm.workload/1", "prompt_tokens": 5, "output_tokens": 3, "context": 8}


def refused(text: str | bytes) -> BadInputError:
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(BadInputError) as caught:
        parse_document(Workload, data, "w.json")
    assert caught.value.file == "w.json"
    return caught.value


def changed(**changes) -> str:
    return json.dumps({**GOOD, **changes})


def test_a_good_document_reads_and_round_trips():
    workload = parse_document(Workload, json.dumps(GOOD).encode(), "w.json")
    assert parse_document(Workload, workload.to_json().encode(), "w.json") == workload
    assert workload.to_dict()["schema"] == "helm.workload/1"


def test_digest_depends_on_content_only():
    a = parse_document(Workload, json.dumps(GOOD).encode(), "a")
    b = parse_document(Workload, json.dumps(dict(reversed(GOOD.items())), indent=4).encode(), "b")
    assert digest(a) == digest(b) != digest(a.model_copy(update={"batch": 2}))


@together(
    ("value", "word"),
    [
        ("NaN", "NaN"),
        ("Infinity", "Infinity"),
        ("1e999", "1e999"),
        ("true", "integer"),
        ("5.0", "integer"),
        ('"5"', "integer"),
        ("-1", "greater"),
        ("0", "greater"),
        ("99999999999", "less"),
        ("null", "integer"),
        ("[]", "integer"),
    ],
)
def test_a_count_must_be_a_positive_bounded_integer(value, word):
    text = json.dumps(GOOD).replace('"prompt_tokens": 5', f'"prompt_tokens": {value}')
    assert word in str(refused(text))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_without_end_are_named_by_their_place(text):
    data = f'{{"a": [1, {{"b": 2.5}}, {{"b.c": {text}}}], "d": NaN}}'.encode()
    with pytest.raises(BadInputError) as caught:
        parse_json(data, "t.json")
    error = caught.value
    assert (error.file, error.field, error.value) == ("t.json", "a.2.b.c", text)
    assert error.remedy == "write a finite number"
    with pytest.raises(BadInputError, match="nested deeper"):
        parse_json(b"[" * 70 + text.encode() + b"]" * 70, "t.json")


def test_field_value_and_remedy_are_named():
    error = refused(changed(prompt_tokens=True))
    assert (error.field, error.value) == ("prompt_tokens", True)
    assert error.remedy == "write a whole number"
    assert refused(changed(prompt_token=3)).remedy == "remove the field or correct its name"
    missing = {k: v for k, v in GOOD.items() if k != "schema"}
    parse_document(Workload, json.dumps(missing).encode(), "w.json")


def test_other_versions_are_refused():
    assert refused(changed(schema="helm.workload/2")).field == "schema"


def test_inconsistent_numbers_are_refused_with_the_numbers():
    error = refused(changed(prompt_tokens=7))
    assert "exceed context (8)" in str(error)
    assert (error.field, error.remedy) == ("context", "use a context of at least 10")


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"batch": 0}, "use at least 1"),
        ({"batch": 10**10}, "use at most 1000000000"),
        ({"batch": "many"}, "write a whole number"),
        ({"schema": "helm.workload/2"}, "use one of 'helm.workload/1'"),
    ],
)
def test_the_remedy_follows_from_the_mistake(changes, remedy):
    assert refused(changed(**changes)).remedy == remedy


def test_every_remedy_has_what_it_names():
    """Every error type that the documents' fields can meet, with pydantic's own context."""

    class Everything(Frozen):
        number: Annotated[float, Field(gt=0.0, le=9.0)] = 1.0
        text: Annotated[str, Field(min_length=2, max_length=3, pattern="^[a-z]+$")] = "ab"
        many: Annotated[tuple[int, ...], Field(min_length=1, max_length=2)] = (1,)
        table: dict[str, int] = Field(default_factory=dict)
        flag: bool = True
        part: Workload | None = None
        position: Rope | LearnedPositions = Field(default=LearnedPositions(), discriminator="kind")

    found = {}
    bad = {
        "number": ("x", 0.0, 10.0), "text": (1, "a", "abcd", "AB", "\udcff"), "many": (3, (), (1, 2, 3)),
        "table": (3,), "flag": (3,), "part": (3,), "position": ({"kind": "x"}, {}),
    }  # fmt: skip
    for field, values in bad.items():
        for value in values:
            with pytest.raises(ValidationError) as caught:
                Everything.model_validate({field: value})
            error = read._first_problem(caught.value, "x.json")
            found[caught.value.errors()[0]["type"]] = error.remedy
            assert error.field and error.field.startswith(field)
    assert set(found) <= set(read._REMEDIES), set(found) - set(read._REMEDIES)
    assert not any("{" in remedy for remedy in found.values())
    assert found["greater_than"] == "use more than 0.0"
    assert found["too_long"] == "give at most 2"
    assert found["union_tag_invalid"] == "use one of 'rope', 'learned'"


@pytest.mark.parametrize("text", ["{", "3", '{"x":' * 70 + "1" + "}" * 70])
def test_what_is_no_document_has_a_remedy(text):
    assert refused(text).remedy


def test_an_error_is_one_line_whatever_it_names():
    error = BadInputError("bad\nworse", file="a\nb\x1b.json", field="x\ty", value="1\n2", remedy="none\r")
    assert str(error) == "a\\nb\\x1b.json: x\\ty: bad\\nworse (got '1\\n2'); none\\r"


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT", "EFBIG"])
def test_a_full_disk_is_hardware_and_a_closed_door_is_usage(code):
    full = unwritable(OSError(getattr(errno, code), "no"), "f")
    assert (full.exit_code, full.file, full.message) == (6, "f", "no room on the disk")
    closed = unwritable(OSError(errno.EACCES, "Permission denied"), "f")
    assert (closed.exit_code, closed.message) == (2, "cannot be written: Permission denied")
    assert full.remedy and closed.remedy


def test_a_plan_may_be_larger_than_other_documents():
    assert (Workload.byte_limit, Plan.byte_limit) == (4 * 2**20, 16 * 2**20)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", "3", '{"a": 1, "a": 2}', b"\xff\xfe{}", "[" * 100000, '{"x":' * 70 + "1" + "}" * 70],
)
def test_what_is_not_a_bounded_json_object_is_refused(text):
    refused(text)


def test_a_key_that_is_there_twice_is_found_among_very_many() -> None:
    """Each key is looked at once: compared with each other, these would take an hour."""
    keys = [f'"{number}":0' for number in range(2**17)]
    with pytest.raises(BadInputError, match="duplicate key '131071'"):
        parse_json(f"{{{','.join([*keys, keys[-1]])}}}".encode(), "a.json")
    with pytest.raises(BadInputError, match="duplicate key 'x{198}") as error:
        parse_json(b'{"%b": 0, "%b": 1}' % (b"x" * 9999, b"x" * 9999), "a.json")
    assert len(str(error.value)) < 500


def test_depth_limit_is_exact():
    def nested(depth):
        return b"[" * depth + b"]" * depth

    assert parse_json(nested(read.MAX_DEPTH), "x")
    with pytest.raises(BadInputError, match="nested deeper"):
        parse_json(nested(read.MAX_DEPTH + 1), "x")


def test_size_limit(tmp_path, monkeypatch):
    path = tmp_path / "w.json"
    path.write_text(json.dumps(GOOD))
    assert read_document(Workload, path).context == 8
    monkeypatch.setattr(Workload, "byte_limit", 10)
    with pytest.raises(BadInputError, match="larger than the limit of 10 bytes") as caught:
        read_document(Workload, path)
    assert caught.value.remedy


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInputError, match="nothing.json: cannot be read") as caught:
        read_document(Workload, tmp_path / "nothing.json")
    assert caught.value.remedy


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 2500])
def test_names_that_no_file_system_takes(name: str) -> None:
    for read_it in (lambda: read_document(Workload, Path(name)), lambda: read_trace(Path(name))):
        with pytest.raises(BadInputError, match=r"cannot be read: (File name too long|No such file)"):
            read_it()
