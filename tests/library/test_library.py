"""Helm as a library: examples, questions from JSON, their errors, and what importing it loads."""

import doctest
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fewer_blocks import fewer_blocks
from plans import make_plan
from quick_probes import quick_probes
from remembered import remembered_replicas
from shapes import small_model
from together import together

import helmsman
from helmsman import library
from helmsman.cli import comparison
from helmsman.cli.plan import main
from helmsman.cli.sim import main as sim
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.measuring.measure import Measured
from helmsman.executor.profile import run
from helmsman.planner.decision import Decision
from helmsman.planner.read_request import request_from
from helmsman.planner.registry import OWN, RECOMMENDED
from helmsman.schemas.errors import BadInputError, HelmError, UsageError
from helmsman.schemas.workload import Workload

SMALL = {"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "prompt_tokens": 64, "output_tokens": 8}
FLAGS = ("--model", "Qwen3-0.6B", "--hw", "rtx4060-laptop", "--prompt-tokens", "64", "--output-tokens", "8")


@pytest.fixture(autouse=True, scope="module")
def remembered() -> Iterator[None]:
    """The cost of a replica is worked out once for each plan."""
    with remembered_replicas():
        yield


@pytest.fixture(scope="module")
def served() -> Decision:
    """The plan that questions about serving and running are of: that of a few blocks."""
    model = helmsman.load_model("Qwen3-0.6B").with_layers(4)
    return helmsman.plan({**SMALL, "model": model, "strategy": "layer-split"})


def test_every_function_has_an_example_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that execute have a small model's plan and checkpoint; what takes a minute to measure is a known record."""
    monkeypatch.setattr(run, "profile", lambda *_, **__: helmsman.load_hardware("epyc9554-cpu"))
    quick_probes(monkeypatch.setattr)
    model = small_model("llama")
    write_checkpoint(model, tmp_path / "checkpoint")
    made = make_plan(model, workload=Workload(prompt_tokens=3, output_tokens=4, context=7))
    given = {"decision": made, "checkpoint": tmp_path / "checkpoint"}
    examples = {each.name.removeprefix("helmsman.library."): each for each in doctest.DocTestFinder().find(library)}
    functions = [name for name, value in vars(library).items() if callable(value) and not name.startswith("_")]
    public = [name for name in functions if getattr(library, name).__module__ == library.__name__]
    assert set(public) <= set(dir(helmsman))
    for name in public:
        assert examples[name].examples, name
        examples[name].globs.update(given)
        assert doctest.DocTestRunner().run(examples[name]).failed == 0


def test_public_names_are_what_they_say() -> None:
    for name in helmsman._HOMES:
        assert getattr(helmsman, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = helmsman.nothing


def test_importing_loads_nothing_else() -> None:
    code = "import sys, helmsman; print([name for name in sys.modules if name.startswith(('helmsman.', 'pydantic'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("question", "flags"),
    [
        ({}, ""),
        ({"format": "q8_0", "objective": "latency"}, "--format q8_0 --objective latency"),
        ({"strategy": "vllm", "options": {"cpu_offload_gb": 1}}, "--strategy vllm --cpu-offload-gb 1"),
        ({"strategy": "all-cpu", "batch": "max"}, "--strategy all-cpu --batch max"),
        ({"strategy": "flexgen", "options": {"percent": "0,50,50"}}, "--strategy flexgen --percent 0,50,50"),
        ({"context": 256}, "--context 256"),
    ],
)
def test_a_question_has_the_plan_of_the_command(question, flags: str, capsys: pytest.CaptureFixture[str]) -> None:
    question = {"strategy": "layer-split", "ram_available": 2 * 10**9, **question}
    words = f"--strategy layer-split --ram-avail 2GB {flags}".split()
    assert main([*FLAGS, *words, "--json"]) == 0
    assert helmsman.plan({**SMALL, **question}).plan.to_json() + "\n" == capsys.readouterr().out


def test_a_composed_machine_may_be_named_by_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    parts = {"cpu": "AMD Ryzen 9 5950X", "ram": 64 * 2**30, "gpu": "RTX 3090"}
    asked = {**SMALL, "hardware": parts, "strategy": "layer-split"}
    words = ("--cpu", parts["cpu"], "--ram", "64GB", "--gpu", parts["gpu"], "--strategy", "layer-split")
    assert main([*FLAGS[:2], *FLAGS[4:], *words, "--json"]) == 0
    assert helmsman.plan(asked).plan.to_json() + "\n" == capsys.readouterr().out


def test_sizes_and_rates_of_parts_may_have_units() -> None:
    text = helmsman.compose_hardware("AMD Ryzen 9 5950X", "64GB", "2x RTX 3090", peer="56GB/s")
    assert text == helmsman.compose_hardware("AMD Ryzen 9 5950X", 64 * 2**30, "2x RTX 3090", peer=56e9)


def test_strategies_are_compared_as_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names, model = ("layer-split", "weights-on-host", "flexgen", "op-split"), fewer_blocks(tmp_path, "Qwen3-0.6B", 2)
    monkeypatch.setattr(comparison, "OWN", names)
    compared = helmsman.compare({**SMALL, "model": model, "batch": 2}, names, {"compress": "weights"})
    options = ("--model", model, *FLAGS[2:], "--batch", "2", "--compress", "weights")
    assert main([*options, "--strategy", "all", "--json"]) == 0
    assert compared.to_json() + "\n" == capsys.readouterr().out


@together(
    ("question", "kind", "field", "says"),
    [
        ({"strategy": "optimum"}, UsageError, "strategy", "no such strategy"),
        ({"model": "Qwen4-8B"}, UsageError, None, "Qwen4-8B"),
        ({"strategy": "llama-cpp", "options": {"nlg": 4}}, UsageError, "nlg", "did you mean ngl"),
        ({"strategy": "llama-cpp", "options": {"ngl": "four"}}, UsageError, "ngl", "last N of layers"),
        ({"strategy": "llama-cpp", "options": {"ngl": 4.5}}, UsageError, "ngl", "last N of layers"),
        ({"strategy": "layer-split", "options": {"kv_offload": 1}}, UsageError, "kv_offload", "true or false"),
        ({"strategy": "layer-split", "options": {"undivided": True}}, UsageError, "undivided", "no such option"),
        ({"options": {"compress": "most"}}, UsageError, "compress", "use one of none, weights"),
        ({"context": 10}, UsageError, "context", "72 or more"),
        ({"prefix_tokens": 64}, UsageError, "prefix_tokens", "use 0 to 63"),
        ({"prompt_tokens": 0}, BadInputError, "prompt_tokens", "greater than"),
        ({"tokens": 5}, BadInputError, "tokens", ""),
        ({"batch": "many"}, BadInputError, "batch", ""),
        ({"hardware": {"cpu": "AMD Ryzen 9 5950X"}}, BadInputError, "hardware", ""),
    ],
)
def test_what_is_wrong_with_a_question_is_said(question, kind, field: str | None, says: str) -> None:
    with pytest.raises(kind) as refused:
        helmsman.plan({**SMALL, **question})
    error = refused.value
    assert isinstance(error, HelmError) and says in str(error)
    assert field is None or (error.field or "").removeprefix("--").startswith(field)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: helmsman.plan(None),
        lambda: helmsman.plan("Qwen3-8B"),
        lambda: helmsman.plan({**SMALL, ("a", "b"): 1}),
        lambda: helmsman.plan({**SMALL, "batch": 10**5000}),
        lambda: helmsman.plan({**SMALL, "batch": float("nan")}),
        lambda: helmsman.plan({**SMALL, "model": object()}),
        lambda: helmsman.plan({**SMALL, "options": {"table": "a\0"}}),
        lambda: helmsman.plan(request_from({**SMALL, "strategy": "layer-split"}).of("vllm", None)),
        lambda: helmsman.compare({**SMALL, "batch": "max"}),
        lambda: helmsman.compare({**SMALL, "strategy": "vllm", "options": {"cpu_offload_gb": 1}}),
        lambda: helmsman.compare(SMALL, "vllm"),
        lambda: helmsman.compare(SMALL, []),
        lambda: helmsman.compare(SMALL, ["vllm", "vllm"]),
        lambda: helmsman.compare(SMALL, ["vllm", ["optimal"]]),
        lambda: helmsman.compare(SMALL, 3),
        lambda: helmsman.compare(SMALL, most=0),
        lambda: helmsman.compare(SMALL, most=2.5),
        lambda: helmsman.compare(SMALL, ["all-cpu", "layer-split"], {"percent": "0,0,0", "compress": "nope"}),
        lambda: helmsman.compare(SMALL, ["optimal", "layer-split"], {"slo": 5}),
        lambda: helmsman.compare(SMALL, options={1: 2}),
        lambda: helmsman.load_model(None),
        lambda: helmsman.compose_hardware("AMD Ryzen 9 5950X", "64 turtles"),
        lambda: helmsman.compose_hardware("AMD Ryzen 9 5950X", "64GB", "2x RTX 3090", peer="fast"),
        lambda: helmsman.compose_hardware(None, 64 * 10**9),
        lambda: helmsman.compose_hardware("AMD Ryzen 9 5950X", 64 * 10**9, peer=float("nan")),
        lambda: helmsman.simulate(3),
    ],
)
def test_nothing_but_an_error_of_helm_is_raised(ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(HelmError) as refused:
        ask()
    assert refused.value.code in ("usage", "bad-input", "hardware-unavailable")


def test_models_and_machines_may_stand_for_their_names() -> None:
    held = {"model": helmsman.load_model("Qwen3-0.6B"), "hardware": helmsman.load_hardware("rtx4060-laptop")}
    asked = {**SMALL, "strategy": "layer-split"}
    assert helmsman.plan({**asked, **held}).plan == helmsman.plan(asked).plan


def test_a_request_is_a_value() -> None:
    one, other = (request_from({**SMALL, "strategy": "vllm", "options": {"cpu_offload_gb": 2}}) for _ in range(2))
    assert one == other and one != request_from({**SMALL, "strategy": "vllm"})


TOY = """
from dataclasses import dataclass

from helmsman.planner.options import option
from helmsman.planner.registry import Method, method


@dataclass(frozen=True)
class ToyOptions:
    window: int = option(4, "toy: tokens of a window", metavar="N", parse=int)


def decide(request):
    split = method("layer-split")
    return split.decide(request.of("layer-split", split.options(kv_offload=request.options.window > 8)))


STRATEGY = Method("toy", "a strategy of another package", ToyOptions, decide)
"""


def test_another_package_adds_a_strategy_by_an_entry_point(tmp_path: Path) -> None:
    (tmp_path / "toy_strategy.py").write_text(TOY)
    info = tmp_path / "toy_strategy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-strategy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[helmsman.strategies]\ntoy = toy_strategy:STRATEGY\n")
    ask = [sys.executable, "-m", "helmsman.cli.plan", *FLAGS, "--strategy", "toy", "--window", "9", "--json"]
    code = "import sys; from helmsman.cli.plan import main; sys.exit(main())"
    ask[1:3] = ["-c", code]
    place = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(ask, capture_output=True, text=True, env=place, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["strategy"]["options"]["kv_offload"] is True
    ask[ask.index("--window")] = "--windows"
    done = subprocess.run(ask, capture_output=True, text=True, env=place, check=False)
    assert done.returncode == 2 and "--windows" in done.stdout
    for broken in ("STRATEGY = 3", "import nothing_of_that_name", "raise RuntimeError"):
        (tmp_path / "toy_strategy.py").write_text(broken)
        done = subprocess.run(ask, capture_output=True, text=True, env=place, check=False)
        assert done.returncode == 2 and json.loads(done.stdout)["error"]["field"] == "strategy", broken


def test_names_of_strategies_are_theirs() -> None:
    from helmsman.planner.options import options_of
    from helmsman.planner.registry import method

    for name in (RECOMMENDED, *OWN):
        of = method(name)
        assert of.name == name and of.summary
        for field, known in options_of(of.options):
            assert known.help and (known.choices is None or field.default in (None, *known.choices)), field.name
        assert of.options() == of.options()


SERVED = {"requests": "synthetic:n=40,input=64,output=8,rate=4", "policy": "gpu-only", "slo": "ttft=1s", "seed": 3}


def test_requests_are_served_as_by_the_command(
    served: Decision, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.json").write_text(served.plan.to_json())
    words = [str(tmp_path / "plan.json"), "--requests", SERVED["requests"], "--slo", "ttft=1s", "--seed", "3", "--json"]
    assert sim([*words, "--sequences", "4", "--mispredict", "link=2"]) == 0
    question = {**SERVED, "sequences": 4, "mispredict": {"link": 2.0}}
    assert helmsman.serve_simulation(served, question).to_json() + "\n" == capsys.readouterr().out
    assert helmsman.serve_simulation(served.plan, helmsman.ServingQuestion(**question)).counts.finished == 40


def test_users_and_replicas_are_asked_as_by_the_command(
    served: Decision, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.json").write_text(served.plan.to_json())
    words = [
        str(tmp_path / "plan.json"),
        "--requests",
        "synthetic:n=80,input=200,output=8",
        "--slo",
        "ttft=40ms",
        "--json",
    ]
    question = {"requests": "synthetic:n=80,input=200,output=8", "slo": "ttft=40ms"}
    assert sim([*words, "--find-users", "--think", "0s"]) == 0
    assert helmsman.find_users(served, {**question, "think": "0s"}).to_json() + "\n" == capsys.readouterr().out
    assert sim([*words, "--find-replicas", "--rate", "200", "--seeds", "2"]) == 0
    replicas = helmsman.find_replicas(served, {**question, "rate": 200.0}, seeds=2)
    assert replicas.to_json() + "\n" == capsys.readouterr().out


@together(
    ("change", "kind", "field"),
    [
        ({"users": 0}, BadInputError, "users"),
        ({"users": 3, "think": "soon"}, UsageError, "think"),
        ({"users": 3, "rate": 2.0}, UsageError, "rate"),
        ({"think": "3s"}, UsageError, "think"),
        ({"policy": "nonsense"}, UsageError, "policy"),
        ({"policy_options": {"nothing": 1}}, UsageError, "policy_options"),
        ({"slo": "fast"}, UsageError, "slo"),
        ({"arrivals": "now and then"}, UsageError, "arrivals"),
        ({"requests": "synthetic:n=many"}, UsageError, "requests"),
        ({"requests": "nowhere.csv"}, BadInputError, None),
        ({"rate": -1}, BadInputError, "rate"),
        ({"replicas": 0}, BadInputError, "replicas"),
        ({"router": "random"}, BadInputError, "router"),
        ({"mispredict": {"gpu": 2.0}}, BadInputError, None),
        ({"tensor_parallel": 3}, HelmError, None),
        ({"unheard_of": 1}, BadInputError, "unheard_of"),
    ],
)
def test_what_is_wrong_with_a_serving_question_is_said(served: Decision, change, kind, field: str | None) -> None:
    with pytest.raises(kind) as caught:
        helmsman.serve_simulation(served, {**SERVED, **change})
    assert field is None or caught.value.field == field
    with pytest.raises(HelmError):
        helmsman.find_capacity(served, {**SERVED, **change})


@together(
    "ask",
    [
        lambda plan: helmsman.serve_simulation(plan, "synthetic:n=2"),
        lambda plan: helmsman.serve_simulation("plan.json", SERVED),
        lambda plan: helmsman.find_capacity(plan, {**SERVED, "slo": None}),
        lambda plan: helmsman.find_capacity(plan, SERVED, seeds=0),
        lambda plan: helmsman.find_users(plan, {**SERVED, "users": 3}),
        lambda plan: helmsman.find_users(plan, SERVED, seeds=True),
        lambda plan: helmsman.find_replicas(plan, {**SERVED, "replicas": 3}),
        lambda plan: helmsman.find_replicas(plan, {**SERVED, "slo": None}),
        lambda plan: helmsman.run(plan, "nowhere", "text"),
        lambda plan: helmsman.run(plan, "nowhere", [[1]], runs=0),
        lambda plan: helmsman.check(plan, None, tolerance=0),
        lambda plan: helmsman.check(plan, helmsman.Execution(plan.plan, Measured((), (), {}), None)),
        lambda plan: helmsman.profile("cores=all"),
    ],
)
def test_questions_about_running_are_refused_with_errors_of_helm(served: Decision, ask) -> None:
    with pytest.raises(HelmError):
        ask(served)


@pytest.mark.parametrize(
    ("said", "meant"), [("Q4_K_M", "q4_k_m"), ("FP16", "f16"), ("half", "f16"), ("Native", "native")]
)
def test_formats_have_other_names_in_questions_too(said: str, meant: str) -> None:
    from helmsman.planner.read_request import read_question

    question = {"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop"}
    assert read_question({**question, "format": said}).format == meant
    assert read_question({**question, "kv_format": "BFloat16"}).kv_format == "bf16"
    with pytest.raises(BadInputError, match="q4_k_m"):
        read_question({**question, "format": "q4_k_x"})
