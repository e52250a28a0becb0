"""The service's description of itself: complete, and its examples work."""

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from web_service import WebSite


@pytest.fixture(scope="module")
def described(site: WebSite) -> Any:
    reply = site.get("/openapi.json")
    assert site.get("/openapi.json", If_None_Match=reply.headers["etag"]).status == 304
    return reply.document


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from ([node["$ref"]] if isinstance(node.get("$ref"), str) else [])
        yield from (name for child in node.values() for name in references(child))
    elif isinstance(node, list):
        yield from (name for child in node for name in references(child))


def test_every_path_is_described(described: Any) -> None:
    assert described["openapi"] == "3.1.0"
    operations = {f"{method} {path}" for path, of in described["paths"].items() for method in of}
    assert operations == {
        *("get /v1/models", "post /v1/models", "get /v1/models/{name}"),
        "get /v1/engines",
        "get /v1/strategies",
        *("get /v1/hardware", "post /v1/hardware", "get /v1/hardware/{name}"),
        *("post /v1/plans", "post /v1/comparisons", "post /v1/simulations", "post /v1/studies"),
        *("get /v1/jobs", "get /v1/jobs/{job}", "delete /v1/jobs/{job}"),
        *("get /v1/jobs/{job}/result", "get /v1/jobs/{job}/events"),
        *("get /health", "get /ready", "get /metrics"),
    }


def test_whatever_is_referred_to_is_there(described: Any) -> None:
    schemas = described["components"]["schemas"]
    assert {name.removeprefix("#/components/schemas/") for name in references(described)} <= set(schemas)
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


def test_examples_are_what_they_are_examples_of(described: Any) -> None:
    for of in described["paths"].values():
        for operation in of.values():
            for told in (operation.get("requestBody", {}), *operation["responses"].values()):
                content = told.get("content", {}).get("application/json", {})
                for example in content.get("examples", {}).values():
                    schema = {**content["schema"], "components": described["components"]}
                    Draft202012Validator(schema).validate(example["value"])


@pytest.mark.parametrize(
    "path", ["/v1/plans", "/v1/comparisons", "/v1/simulations", "/v1/studies", "/v1/models", "/v1/hardware"]
)
def test_examples_work(site: WebSite, described: Any, path: str) -> None:
    operation = described["paths"][path]["post"]
    content = operation["requestBody"]["content"]["application/json"]
    for name, example in content["examples"].items():
        reply = site.post(path, example["value"])
        if reply.status == 202:
            site.ask("DELETE", reply.headers["location"])
        assert reply.status in (200, 202), (name, reply)
        schema = operation["responses"][str(reply.status)]["content"]["application/json"]["schema"]
        Draft202012Validator({**schema, "components": described["components"]}).validate(reply.document)


def test_metrics_count_what_was_asked(site: WebSite) -> None:
    site.get("/v1/models/none")
    text = site.get("/metrics").body.decode()
    assert 'helm_web_requests_total{method="GET",route="/v1/models/{name:path}",status="404"}' in text
    for name in ("helm_web_cache_hits_total", "helm_web_workers_busy", "helm_web_jobs_queued", "process_resident"):
        assert name in text


def test_links_lead_to_operations_by_parameters_that_they_have(described: dict[str, Any]) -> None:
    links = [
        link
        for of in described["paths"].values()
        for operation in of.values()
        for answer in operation["responses"].values()
        for link in answer.get("links", {}).values()
    ]
    assert len(links) >= 6
    for link in links:
        path, method = link["operationRef"].removeprefix("#/paths/").replace("~1", "/").rsplit("/", 1)
        names = {parameter["name"] for parameter in described["paths"][path][method]["parameters"]}
        assert set(link["parameters"]) <= names
