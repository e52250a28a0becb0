"""Reading documents: bounded, strict, and one clear error with file, field, value and remedy."""

import json

import pytest

from helmsman.schemas import read
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import digest, parse_document, parse_json, read_document
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


@pytest.mark.parametrize(
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


def test_field_value_and_remedy_are_named():
    error = refused(changed(prompt_tokens=True))
    assert (error.field, error.value) == ("prompt_tokens", True)
    assert refused(changed(prompt_token=3)).remedy == "remove the field or correct its name"
    missing = {k: v for k, v in GOOD.items() if k != "schema"}
    parse_document(Workload, json.dumps(missing).encode(), "w.json")


def test_other_versions_are_refused():
    assert refused(changed(schema="helm.workload/2")).field == "schema"


def test_inconsistent_numbers_are_refused_with_the_numbers():
    assert "exceed context (8)" in str(refused(changed(prompt_tokens=7)))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", "3", '{"a": 1, "a": 2}', b"\xff\xfe{}", "[" * 100000, '{"x":' * 70 + "1" + "}" * 70],
)
def test_what_is_not_a_bounded_json_object_is_refused(text):
    refused(text)


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
    monkeypatch.setattr(read, "JSON_LIMIT", 10)
    with pytest.raises(BadInputError, match="larger than the limit of 10 bytes"):
        read_document(Workload, path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInputError, match="nothing.json: cannot be read"):
        read_document(Workload, tmp_path / "nothing.json")
