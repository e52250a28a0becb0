"""`helm-plan --strategy optimal --explain`: text, document, and what it does not go with."""

import json
import re
from contextlib import redirect_stdout
from io import StringIO

import jsonschema
import pytest

from helmsman.analysis.explanation_table import table
from helmsman.cli.plan import main
from helmsman.schemas.explanation import Explanation
from helmsman.schemas.generate import json_schema
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest, parse_document

ASKED = ("--model", "opt-125m", "--hw", "rtx4060-laptop", "--vram-avail", "150MB", "--output-tokens", "4")
EXPLAIN = (*ASKED, "--strategy", "optimal", "--objective", "latency", "--explain")


def run(capfd, *argv):
    code = main([*map(str, argv)])
    out, err = capfd.readouterr()
    return code, out, err


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    """The document, and the plan in a file."""
    place, out = tmp_path_factory.mktemp("explained") / "plan.json", StringIO()
    with redirect_stdout(out):
        assert main([*map(str, (*EXPLAIN, "--json", "-o", place))]) == 0
    return out.getvalue(), parse_document(Plan, place.read_bytes(), "plan.json")


def test_it_says_what_binds_what_more_is_worth_and_what_rules_are(explained):
    out = table(parse_document(Explanation, explained[0].encode(), "explanation"))
    for begins in (
        "decode       busy throughout:",
        "prefill      does not count",
        "full         vram: one GB more gives +",
    ):
        assert any(line.startswith(begins) for line in out.splitlines()), begins
    assert "shadow prices in tokens/s of decode steps" in out and "GB more of vram" in out
    assert "without one rule" in out and "weights stay on cuda" in out


def test_the_document_is_the_explanation_and_the_file_is_the_plan(explained):
    document, plan = json.loads(explained[0]), explained[1]
    jsonschema.validate(document, json_schema("explanation"), cls=jsonschema.Draft202012Validator)
    assert document["plan_sha256"] == digest(plan)
    assert "explain" not in plan.strategy.options


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--strategy", "layer-split"), "does not go with --strategy layer-split"),
        (("--strategy", "all"), "does not go with several plans"),
        (("--strategy", "optimal", "--pareto", "4"), "does not go with several plans"),
    ],
)
def test_it_is_refused_where_there_is_nothing_to_say(capfd, more, message):
    code, _, err = run(capfd, *ASKED, "--explain", *more)
    assert code == 2 and "--explain" in err and message in err


@pytest.mark.nightly
def test_a_plan_of_the_accelerator_alone_is_about_the_accelerator(capfd):
    code, out, _ = run(capfd, "--model", "opt-125m", "--hw", "rtx3090-5950x", "--batch", "8", "--explain")
    busy = next(line for line in out.splitlines() if line.startswith("decode       busy"))
    assert code == 0 and "cuda" in busy and "cpu" not in busy


@pytest.mark.nightly
def test_of_several_accelerators_each_has_its_prices_and_rules(capfd):
    code, out, _ = run(capfd, "--model", "opt-125m", "--hw", "rtx3090x2-5950x", "--vram-avail", "160MB", "--explain")
    assert code == 0 and all(re.search(rf"GB/s (more|less) of {name} ", out) for name in ("vram", "vram1"))
    assert {"weights stay on cuda", "weights stay on cuda1"} <= {*re.split("[;:] |  +|\n", out)}
