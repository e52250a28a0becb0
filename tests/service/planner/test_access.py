"""Who may ask the planner: by name, page and key; what every answer says of itself."""

from dataclasses import replace
from pathlib import Path

import pytest
from web_service import OPTIONS, QUESTION, WebSite, web_site

from helmsman.cli.web import main
from helmsman.service.http.access import Access
from helmsman.service.planner.options import OPEN_PATHS, ClientLimits


@pytest.mark.parametrize(
    "host",
    ["rebound.example", "127.0.0.1.example", "[", "a b", "evil@localhost", "localhost/a", "localhost#a", "localhost?a",
     "localhost\\a"],
)  # fmt: skip
def test_a_name_that_another_lets_point_here_is_not_answered(site: WebSite, host: str) -> None:
    for path in ("/", "/health", "/v1/models", "/v1/plans"):
        assert site.get(path, Host=host).status == 403
    assert site.get("/v1/models", Host="localhost:1").status == 200


def test_pages_of_other_sites_are_not_answered(site: WebSite) -> None:
    refused = site.post("/v1/plans", QUESTION, Origin="https://evil.example")
    assert refused.status == 403 and "access-control-allow-origin" not in refused.headers
    own = f"http://127.0.0.1:{site.port}"
    let_in = site.post("/v1/plans", QUESTION, Origin=own).headers
    assert let_in["access-control-allow-origin"] == own and "ETag" in let_in["access-control-expose-headers"]
    preflight = site.ask("OPTIONS", "/v1/plans", Origin=own, Access_Control_Request_Headers="content-type")
    assert preflight.status == 204 and "DELETE" in preflight.headers["access-control-allow-methods"]


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data", ""])
def test_bodies_say_that_they_are_json(site: WebSite, kind: str) -> None:
    assert site.post("/v1/plans", QUESTION, Content_Type=kind).status == 415


def test_every_answer_has_an_id_and_a_policy(site: WebSite) -> None:
    for path, status in (("/health", 200), ("/nothing", 404), ("/v1/models", 200)):
        reply = site.get(path)
        assert reply.status == status and len(reply.headers["x-request-id"]) == 32
        assert "default-src 'self'" in reply.headers["content-security-policy"]
    assert site.get("/health", X_Request_Id="mine-1").headers["x-request-id"] == "mine-1"
    assert site.get("/health", X_Request_Id="no good\t").headers["x-request-id"] != "no good\t"


def test_methods_and_paths_that_there_are_not_are_problems(site: WebSite) -> None:
    assert site.ask("PUT", "/v1/plans", b"{}").headers["allow"] == "POST"
    assert site.get("/v1/none").document["code"] == "not-found"
    head = site.ask("HEAD", "/v1/models")
    assert head.status == 200 and head.body == b"" and int(head.headers["content-length"]) > 1000


def test_without_a_key_only_the_page_and_health_are_told(tmp_path: Path) -> None:
    access = Access(keys=("the-key",), open_paths=OPEN_PATHS)
    with web_site(tmp_path, replace(OPTIONS, access=access)) as site:
        for path in ("/v1/models", "/metrics", "/v1/jobs", "/openapi.json"):
            assert site.get(path).status == 401
            assert site.get(path, Authorization="Bearer wrong").headers["www-authenticate"] == "Bearer"
            assert site.get(path, Authorization="Bearer the-key").status == 200
        assert site.get("/v1/models", Authorization="Bearer the-key", Host="a@localhost").status == 403
        assert site.get("/v1/models", Authorization="Bearer the-key", Host="any.example").status == 200
        assert site.post("/v1/plans", QUESTION).status == 401
        for path in ("/health", "/ready", "/"):
            assert site.get(path).status != 401


def test_who_asks_too_often_is_told_when_to_come_again(tmp_path: Path) -> None:
    with web_site(tmp_path, replace(OPTIONS, clients=ClientLimits(rate=0.01, burst=3.0))) as site:
        replies = [site.get("/v1/jobs") for _ in range(4)]
        assert [reply.status for reply in replies] == [200, 200, 200, 429]
        assert 90 <= int(replies[-1].headers["retry-after"]) <= 100
        assert site.get("/health").status == 200, "monitoring goes on"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_other_machines_need_a_token(host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--host", host, "--port", "0", "--store", str(tmp_path)]) == 2
    assert "--host: other machines could ask without a key" in capsys.readouterr().err


def test_a_file_has_a_tag_for_each_form_of_it(site: WebSite) -> None:
    plain, packed = site.get("/assets/main.js"), site.get("/assets/main.js", Accept_Encoding="gzip")
    assert packed.headers["content-encoding"] == "gzip" and plain.headers["etag"] != packed.headers["etag"]
    tag = packed.headers["etag"]
    assert site.get("/assets/main.js", Accept_Encoding="gzip", If_None_Match=tag).status == 304
    assert site.get("/assets/main.js", If_None_Match=tag).status == 200
