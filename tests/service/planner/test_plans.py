"""Plans over HTTP: the library's own, by every form of a question; kept, and known by their tags."""

import json
from pathlib import Path
from typing import Any

import pytest
from together import together
from web_service import QUESTION, WebSite

from helmsman import library
from helmsman.planner.registry import ENGINES, RECOMMENDED, method, names
from helmsman.planner.words.explain import explain
from helmsman.planner.words.plan_words import in_words
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan_answer import CachedExperts, PlanAnswer
from helmsman.schemas.plan_question import PlanQuestion
from helmsman.schemas.planner_question import PlannerQuestion
from helmsman.schemas.problem import Problem
from helmsman.schemas.read import digest, parse_document
from helmsman.schemas.routing import LayerRouting, Routing
from helmsman.service.planner.answers.blocks import block_runs
from helmsman.service.planner.computing.tasks import TASKS, TaskSetting, WorkerTask
from helmsman.service.planner.questions.catalogue import Catalogue
from helmsman.service.planner.questions.planning import request_of


def test_a_plan_is_the_librarys(site: WebSite) -> None:
    reply = site.post("/v1/plans", QUESTION)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    answer, decision = parse_document(PlanAnswer, reply.body, "answer"), library.plan(QUESTION)
    assert answer.plan == decision.plan
    assert answer.text == explain(decision)
    assert answer.in_short == f"in short{in_words(decision.plan)}".removeprefix("in short")
    assert [(other.label, other.seconds) for other in answer.runner_ups] == list(decision.runner_ups)
    assert answer.memory_names == {"dram": "RAM", "vram": "GPU"}


def test_blocks_are_the_strip_that_is_printed(site: WebSite) -> None:
    """Of a plan with blocks on both sides; and of one that streams them."""
    for question, hows in (
        ({**QUESTION, "model": "Qwen3-8B"}, ["resident", "resident"]),
        ({**QUESTION, "model": "Qwen3-8B", "strategy": "accelerate"}, ["resident", "streamed"]),
    ):
        answer = parse_document(PlanAnswer, site.post("/v1/plans", question).body, "answer")
        strip = "".join(run.letter * (run.layers[1] - run.layers[0] + 1) for run in answer.blocks)
        assert len(strip) == answer.plan.model.layers and strip in answer.text
        assert [run.how for run in answer.blocks] == hows


def test_experts_elsewhere_are_groups_of_their_block() -> None:
    question = {**QUESTION, "model": "Qwen3-30B-A3B", "format": "q4_k", "strategy": "llama-cpp"}
    plan = library.plan({**question, "options": {"n_cpu_moe": 40}}).plan
    away, near = block_runs(plan)[0]
    assert (away.how, away.place, [(group.count, group.place) for group in away.experts]) == (
        "experts",
        "GPU",
        [(128, "CPU")],
    )
    assert (near.how, near.place, [(group.count, group.place) for group in near.experts]) == (
        "resident",
        "GPU",
        [(128, "GPU")],
    )
    assert (away.layers, near.layers) == ((0, 39), (40, 47))


def test_experts_in_slots_are_told_of_their_blocks() -> None:
    question = {"model": "Qwen3.5-35B-A3B", "hardware": "rtx4080-14700k", "format": "q4_0", "strategy": "freetoken"}
    plan = library.plan({**question, "options": {"miss_mode": "cpu"}}).plan
    (slots,) = plan.expert_slots
    (run,) = block_runs(plan)[0]
    assert run.how == "experts" and [(group.count, group.place) for group in run.experts] == [(256, "CPU")]
    assert run.cached == CachedExperts(count=slots.slots, place="GPU", eviction="least-recent")


def test_a_routing_goes_with_the_question(site: WebSite) -> None:
    """As the document that helm-fit-routing writes; one of another model is refused by that name."""
    model = library.load_model("Qwen3-30B-A3B")
    layers = (LayerRouting(layer=0, popularity=(0.5, *[7.5 / 127] * 127)),)
    routing = Routing(model=model.name, model_sha256=digest(model), layers=layers)
    ask = {**QUESTION, "model": model.name, "format": "q4_k", "strategy": "llama-cpp"}
    whole = {**ask, "routing": json.loads(routing.to_json())}
    question = parse_document(PlannerQuestion, json.dumps(whole).encode(), "question")
    assert request_of(question, Catalogue()).workload.routing == routing
    reply = site.post("/v1/plans", {**whole, "model": "Mixtral-8x7B-v0.1"})
    assert reply.status in (400, 422) and "routing" in str(reply.document)


def test_every_form_of_a_machine_is_planned_for(site: WebSite) -> None:
    parts = {"cpu": "AMD Ryzen 9 5950X", "ram": 64 * 2**30, "gpu": "RTX 3090"}
    made = site.post("/v1/hardware", parts)
    assert made.status == 200
    assert site.post("/v1/hardware", {**parts, "ram": "64GB"}).document == made.document
    for wrong in ({"peer": "fast"}, {"bogus": 3}):
        reply = site.post("/v1/hardware", {**parts, **wrong})
        assert reply.status in (400, 422) and next(iter(wrong)) in reply.document["field"]
    changed = {"base": "rtx4060-laptop", "changes": ["vram=12GB", "dram_bw=x1.5"]}
    chip = {"gpu": "GB10", "ram": 128 * 10**9}
    both = {**chip, "cpu": "NVIDIA GB10"}
    assert site.post("/v1/hardware", chip).document == site.post("/v1/hardware", both).document
    names = {}
    for name, hardware in {"parts": parts, "document": made.document, "changed": changed}.items():
        reply = site.post("/v1/plans", {**QUESTION, "hardware": hardware})
        assert reply.status == 200, reply
        names[name] = reply.document["plan"]["hardware"]
    assert names["parts"] == names["document"]
    assert names["parts"]["memories"] == made.document["memories"]
    memories = {memory["name"]: memory["capacity"] for memory in names["changed"]["memories"]}
    assert memories["vram"] == 12 * 2**30


def test_a_model_is_read_changed_and_planned(site: WebSite) -> None:
    model = site.get("/v1/models/Qwen3-0.6B").document
    again = site.post("/v1/models", model)
    assert again.document == model
    reply = site.post("/v1/plans", {**QUESTION, "model": {**model, "name": "mine", "pattern": 20 * "A"}})
    assert reply.status == 200 and reply.document["plan"]["model"]["pattern"] == 20 * "A"


def test_the_same_question_in_other_words_is_the_same_answer(site: WebSite) -> None:
    first = site.post("/v1/plans", QUESTION)
    spelt_out = {"prompt_tokens": 128, **QUESTION, "batch": 1, "schema": "helm.planner-question/1"}
    second = site.post("/v1/plans", spelt_out)
    assert second.headers["etag"] == first.headers["etag"] and second.body == first.body
    known = site.post("/v1/plans", QUESTION, If_None_Match=first.headers["etag"])
    assert (known.status, known.body) == (304, b"")
    assert site.post("/v1/plans", {**QUESTION, "batch": 2}).headers["etag"] != first.headers["etag"]


def test_only_a_known_answer_is_not_sent_again(site: WebSite) -> None:
    """Not what would be refused, and not whatever there is."""
    assert site.post("/v1/plans", QUESTION, If_None_Match="*").status == 200
    wrong = {**QUESTION, "options": {"x": 1}}
    refused = site.post("/v1/plans", wrong)
    assert refused.status == 422 and "etag" not in refused.headers
    parsed = parse_document(PlannerQuestion, json.dumps(wrong).encode(), "question")
    key = site.service.keys.key("plan", parsed.to_json(indent=None).encode())
    assert site.post("/v1/plans", wrong, If_None_Match=f'"{key}"').status == 422
    assert site.post("/v1/studies", {"models": []}, If_None_Match="*").status == 400


def test_a_large_question_is_read_apart(site: WebSite) -> None:
    hardware = site.get("/v1/hardware/rtx4060-laptop").document
    source = {"kind": "user", "where": "x" * 150}
    hardware["sources"] |= {f"note-{number}": source for number in range(300)}
    reply = site.post("/v1/plans", {**QUESTION, "hardware": hardware})
    assert reply.status == 200, reply
    assert reply.document["plan"]["label"] == site.post("/v1/plans", QUESTION).document["plan"]["label"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": "/etc/passwd"}, "model"),
        ({"model": "./config.json"}, "model"),
        ({"hardware": "/etc/hostname"}, "hardware"),
        ({"hardware": "this"}, "hardware"),
        ({"hardware": {"base": "../x.json", "changes": ["vram=12GB"]}}, "hardware"),
        ({"strategy": "vllm", "options": {"table": "/etc/passwd"}}, "options.table"),
        ({"strategy": "op-split", "options": {"write_table": "/tmp/x"}}, "options.write_table"),
        ({"format": "native"}, "format"),
    ],
)
def test_no_question_names_a_file_of_the_server(site: WebSite, change: dict[str, Any], field: str) -> None:
    reply = site.post("/v1/plans", {**QUESTION, **change})
    problem = parse_document(Problem, reply.body, "problem")
    assert reply.status == problem.status in (400, 422) and problem.field == field, problem


def test_a_model_that_is_called_like_a_file_is_only_a_name(site: WebSite, tmp_path: Any) -> None:
    """The planner looks for the format of weights in files that are called as the model is."""
    model = site.get("/v1/models/Qwen3-0.6B").document
    file = tmp_path / "weights.gguf"
    file.write_bytes(b"GGUF" + bytes(100))
    reply = site.post("/v1/plans", {**QUESTION, "model": {**model, "name": str(file)}})
    assert reply.status == 200 and reply.document["plan"]["residence"][0]["format"] == "f16"


def test_what_does_not_fit_says_what_is_missing(site: WebSite) -> None:
    reply = site.post("/v1/plans", {**QUESTION, "model": "Llama-3.1-70B"})
    assert (reply.status, reply.headers["content-type"]) == (422, "application/problem+json")
    problem = parse_document(Problem, reply.body, "problem")
    assert problem.code == "infeasible" and problem.lacks and "more" in (problem.remedy or "")
    assert site.post("/v1/plans", {**QUESTION, "model": "Llama-3.1-70B"}).body == reply.body, "kept, too"


@together(
    ("body", "status", "field"),
    [
        (b"{", 400, None),
        (b"[]", 400, None),
        (b'{"model": "a", "model": "b", "hardware": "c"}', 400, None),
        (b'{"model": NaN, "hardware": "c"}', 400, "model"),
        (b'{"model": 1, "hardware": "c"}', 400, "model"),
        (b'{"model": "a"}', 400, "hardware"),
        (b'{"model": "a", "hardware": {"cpu": "b"}}', 400, "hardware.ram"),
        (b'{"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "nothing": 1}', 400, "nothing"),
        (b'{"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "none"}', 422, "strategy"),
        (b'{"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "prompt_tokens": 99999}', 422, "context"),
        (b'{"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "options": {"x": 1}}', 422, "x"),
        (b"[" * 30_000, 400, None),
        (b"[" * 100_000, 400, None),
        (b'{"a":' * 100_000, 400, None),
        (b"\xff\xfe", 400, None),
    ],
)
def test_what_is_wrong_is_named(site: WebSite, body: bytes, status: int, field: str | None) -> None:
    reply = site.post("/v1/plans", body)
    problem = parse_document(Problem, reply.body, "problem")
    assert (reply.status, problem.status, problem.field) == (status, status, field), problem
    assert problem.remedy and problem.instance in (None, "/v1/plans")
    assert str(site.store) not in reply.body.decode() and "/helmsman" not in reply.body.decode()


def test_strategies_are_compared(site: WebSite) -> None:
    reply = site.post("/v1/comparisons", {"question": {**QUESTION, "strategy": "best"},
                                          "strategies": ["layer-split", "llama-cpp"]})  # fmt: skip
    rows = library.compare({**QUESTION, "strategy": "best"}, ["layer-split", "llama-cpp"]).rows
    assert reply.status == 200 and [row["strategy"] for row in reply.document["rows"]] == [r.strategy for r in rows]
    named = {"question": QUESTION, "strategies": ["layer-split", "vllm"], "options": {"table": "/etc/passwd"}}
    assert site.post("/v1/comparisons", named).document["field"] == "options.table"


def test_llama_cpps_flags_are_given(site: WebSite) -> None:
    answer = site.post("/v1/plans", {**QUESTION, "model": "Qwen3-8B", "strategy": "llama-cpp"}).document
    layers = answer["plan"]["label"].rpartition(" ")[2]
    assert answer["settings"][0]["engine"] == "llama.cpp" and f"-ngl {layers} " in answer["settings"][0]["command"]


def test_an_engine_is_asked_about(site: WebSite) -> None:
    question = {**QUESTION, "strategy": "best", "engine": "llama.cpp", "options": {"build_era": "2024", "threads": 2}}
    answer = site.post("/v1/plans", question).document
    assert answer["plan"]["strategy"]["options"]["build_era"] == "2024" and "-t 2" in answer["settings"][0]["command"]
    assert answer["speed"]["request"]["mid"] == library.plan(question).seconds
    listed = [entry["name"] for entry in site.get("/v1/engines").document["entries"]]
    assert listed == list(ENGINES)
    refused = site.post("/v1/comparisons", {"question": {**QUESTION, "strategy": "best", "engine": "vllm"}})
    assert refused.document["field"] == "engine" and refused.document["remedy"]
    with pytest.raises(UsageError, match="several strategies are compared"):
        library.compare({**QUESTION, "strategy": "best", "engine": "vllm"})


def test_a_plan_is_json_whatever_is_accepted(site: WebSite) -> None:
    """Only the result of a job has another form, which 406 is about."""
    reply = site.post("/v1/plans", QUESTION, Accept="text/csv")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    described = site.get("/openapi.json").document["paths"]
    assert [path for path, methods in described.items() for said in methods.values() if "406" in said["responses"]] == [
        "/v1/jobs/{job}/result"
    ]


def test_names_are_listed_and_searched(site: WebSite) -> None:
    every = site.get("/v1/models").document["entries"]
    some = site.get("/v1/models?q=qwen3-0").document["entries"]
    assert [entry["name"] for entry in some] == ["Qwen3-0.6B"] and len(every) > 20
    assert site.get("/v1/hardware?kind=gpus&q=4090").document["entries"]
    assert site.get("/v1/hardware?kind=models").status == 422
    for missing in ("/v1/models/none", "/v1/hardware/none", "/v1/models/..%2f..%2fetc%2fpasswd"):
        reply = site.get(missing)
        assert (reply.status, reply.document["status"], reply.document["code"]) == (404, 404, "usage")
    for kind in ("models", "hardware"):
        assert site.get(f"/v1/{kind}/{'n' * 201}").document["code"] == "not-found"
    tag = site.get("/v1/hardware").headers["etag"]
    assert site.get("/v1/hardware", If_None_Match=tag).status == 304


def test_strategies_are_listed_as_the_registry_has_them(site: WebSite) -> None:
    listed = site.get("/v1/strategies")
    entries = listed.document["entries"]
    assert listed.document["schema"] == "helm.listing/1" and listed.document["kind"] == "strategies"
    assert [entry["name"] for entry in entries] == [RECOMMENDED, *names()]
    assert all(entry["about"] == method(entry["name"]).summary for entry in entries)
    assert site.get("/v1/strategies", If_None_Match=listed.headers["etag"]).status == 304
    assert [entry["name"] for entry in site.get("/v1/strategies?q=twinp").document["entries"]] == ["twinpilots"]


def test_a_comparison_tells_how_far_it_is(tmp_path: Path) -> None:
    setting, told = TaskSetting(Catalogue(), tmp_path, tmp_path, 1), list[tuple[int, int]]()
    question = {"question": QUESTION | {"strategy": "best"}, "strategies": ["layer-split", "cpu-only", "llama-cpp"]}
    for most, parts in ((None, 3), (4, 6)):
        told.clear()
        ask = json.dumps(question | ({} if most is None else {"most": most})).encode()
        TASKS["comparison"](WorkerTask("k", ask, setting, lambda done, total: told.append((done, total))))
        assert told == [(done, parts) for done in range(parts)]


def test_questions_to_the_service_share_the_fields_of_questions_to_the_library() -> None:
    """Each field is defined once, but for those that say in what form something is given. The service does not take
    questions about drafts."""
    drafts = ["draft", "draft_tokens", "acceptance"]
    assert [*PlannerQuestion.model_fields, *drafts] == list(PlanQuestion.model_fields)
    own, others = PlannerQuestion.__annotations__, PlanQuestion.__annotations__
    assert own.keys() & others.keys() == {"schema_id", "model", "hardware", "format", "routing"}
