"""Who is let in: by the name a server is called by, the page that asks, the key that is sent, and over TLS."""

import asyncio
import ssl
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import ClientSession
from benchmarks.virtual_engine import VirtualEngine
from http_service import OPTIONS, Site, on_site, served
from together import together

from helmsman.cli.access_arguments import KEY_VARIABLE, access_of, add_access_arguments, encryption_of, keys_of
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.service.http.access import Access, is_loopback
from helmsman.service.http.listening import address, listen
from helmsman.service.inference.server import serving

ASKED = {"prompt": "a", "max_tokens": 2}
KEYS = ("one-key", "another")


def admitting(test: Callable[[Site], Awaitable[None]], **access: object) -> None:
    on_site(test, options=replace(OPTIONS, access=Access(**access)))


@pytest.mark.parametrize("host", ["127.0.0.1:80", "localhost", "localhost:8000", "[::1]:9", "a.localhost", "10.1.2.3"])
def test_own_names_are_let_in(host: str) -> None:
    async def test(site: Site) -> None:
        assert (await site.post("/v1/completions", ASKED, Host=host))[0] == 200

    admitting(test)


@together("host", ["rebound.example", "localhost.example:8000", "", "[", "127.0.0.1.example", "a b"])
@together("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_name_that_another_lets_point_here_is_not(host: str, path: str) -> None:
    async def test(site: Site) -> None:
        status, answer, _ = await site.post(path, ASKED, Host=host)
        assert status == 403 and answer["error"]["type"] == "permission_error", answer

    admitting(test)


def test_names_are_checked_where_nothing_is_posted_too() -> None:
    async def test(site: Site) -> None:
        for path in ("/v1/models", "/metrics", "/health"):
            async with site.client.get(site.url + path, headers={"Host": "rebound.example"}) as answer:
                assert answer.status == 403

    admitting(test)


def test_a_name_that_was_allowed_is_let_in() -> None:
    async def test(site: Site) -> None:
        assert (await site.post("/v1/completions", ASKED, Host="box.lan:8000"))[0] == 200
        assert (await site.post("/v1/completions", ASKED, Host="other.lan"))[0] == 403

    admitting(test, hosts={"box.lan"})


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_bodies_say_that_they_are_json(kind: str) -> None:
    """These are what a page of any site may send without being let in first."""

    async def test(site: Site) -> None:
        status, answer, _ = await site.post("/v1/completions", ASKED, **{"Content-Type": kind})
        assert status == 415 and "application/json" in answer["error"]["message"]
        kind_and_letters = {"Content-Type": "application/json; charset=utf-8"}
        assert (await site.post("/v1/completions", ASKED, **kind_and_letters))[0] == 200

    admitting(test)


@pytest.mark.parametrize("page", ["https://evil.example", "null", "file://", "http://localhost.evil.example", "x", "["])
def test_pages_of_other_sites_are_not_answered(page: str) -> None:
    async def test(site: Site) -> None:
        status, answer, headers = await site.post("/v1/completions", ASKED, Origin=page)
        assert status == 403 and "--allow-origin" in answer["error"]["message"]
        assert "Access-Control-Allow-Origin" not in headers
        async with site.client.options(site.url + "/v1/completions", headers={"Origin": page}) as asked:
            assert asked.status == 403 and "Access-Control-Allow-Origin" not in asked.headers

    admitting(test)


@pytest.mark.parametrize("page", ["http://localhost:3000", "https://ui.example"])
def test_pages_that_may_ask_are_answered(page: str) -> None:
    async def test(site: Site) -> None:
        status, _, headers = await site.post("/v1/completions", ASKED, Origin=page)
        assert (status, headers["Access-Control-Allow-Origin"]) == (200, page)
        preflight = {"Origin": page, "Access-Control-Request-Headers": "content-type,x-stainless-os"}
        async with site.client.options(site.url + "/v1/completions", headers=preflight) as asked:
            assert asked.status == 204 and asked.headers["Access-Control-Allow-Origin"] == page
            assert asked.headers["Access-Control-Allow-Headers"] == preflight["Access-Control-Request-Headers"]
        asked_for = {"prompt": "a", "max_tokens": 2, "stream": True}
        async with site.client.post(site.url + "/v1/completions", json=asked_for, headers={"Origin": page}) as answer:
            assert answer.headers["Access-Control-Allow-Origin"] == page, "streams, too"

    admitting(test, origins={"https://ui.example"})


def test_a_page_of_the_server_itself_may_ask() -> None:
    async def test(site: Site) -> None:
        assert (await site.post("/v1/completions", ASKED, Origin=site.url))[0] == 200

    admitting(test)


@pytest.mark.parametrize(
    "said", ["", "Bearer", "Bearer ", "Bearer wrong", "one-key", "Basic b25lLWtleQ==", "bearer x", "Bearer \udcff"]
)
def test_without_a_key_nothing_is_told(said: str) -> None:
    async def test(site: Site) -> None:
        headers = {"Authorization": said} if said else {}
        status, answer, told = await site.post("/v1/completions", ASKED, **headers)
        assert status == 401 and answer["error"]["code"] == "invalid_api_key"
        assert answer["error"]["type"] == "authentication_error" and told["WWW-Authenticate"] == "Bearer"
        for path in ("/v1/models", "/metrics"):
            async with site.client.get(site.url + path, headers=headers) as answer:
                assert answer.status == 401
        assert (await site.get("/health"))[0] == 200

    admitting(test, keys=KEYS)


def test_each_key_lets_in_under_any_name_and_from_any_page() -> None:
    """Who has a key needs no other leave: names and pages are checked for those who have none."""

    async def test(site: Site) -> None:
        for key, scheme in zip(KEYS, ("Bearer", "bearer"), strict=True):
            headers = {"Authorization": f"{scheme} {key}", "Host": "box.example", "Origin": "app://obsidian.md"}
            status, _, told = await site.post("/v1/completions", ASKED, **headers)
            assert (status, told["Access-Control-Allow-Origin"]) == (200, "app://obsidian.md")

    admitting(test, keys=KEYS)


def test_a_body_without_a_key_is_not_read() -> None:
    """Who has no key cannot make the server hold anything."""

    async def test(site: Site) -> None:
        host, _, port = site.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: 1000000\r\n\r\n".encode())
        assert b" 401 " in await asyncio.wait_for(reader.readline(), 10)
        assert site.service.bodies.held == 0
        writer.close()

    admitting(test, keys=KEYS)


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False),
     ("::", False), ("192.168.0.1", False), ("example.org", False), ("", False)],
)  # fmt: skip
def test_which_addresses_are_of_this_machine_only(host: str, own: bool) -> None:
    assert is_loopback(host) == own


def arguments(*argv: str, host: str = "127.0.0.1") -> Namespace:
    parser = ArgumentParser()
    parser.add_argument("--host", default=host)
    add_access_arguments(parser)
    return parser.parse_args(argv)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1"])
def test_other_machines_need_a_key_or_a_word(host: str) -> None:
    with pytest.raises(UsageError, match="without a key") as caught:
        access_of(arguments(host=host))
    assert "--allow-anonymous" in str(caught.value)
    assert access_of(arguments("--allow-anonymous", host=host)).keys == ()
    assert access_of(arguments("--api-key", "k", host=host)).keys == ("k",)


def test_keys_come_from_arguments_files_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").write_text("two\n\n three \none\n")
    monkeypatch.setenv(KEY_VARIABLE, "four")
    found = keys_of(arguments("--api-key", "one", "--api-key-file", str(tmp_path / "keys")))
    assert found == ("one", "two", "three"), "the environment speaks where nothing else does"
    assert keys_of(arguments()) == ("four",)
    monkeypatch.setenv(KEY_VARIABLE, "")
    with pytest.raises(UsageError, match=KEY_VARIABLE):
        keys_of(arguments())


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff"])
def test_a_file_without_keys_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(content)
    with pytest.raises(BadInputError, match="keys"):
        keys_of(arguments("--api-key-file", str(tmp_path / "keys")))


@pytest.mark.parametrize("key", ["", "a b", "\x07", "é"])
def test_what_no_header_can_carry_is_no_key(key: str) -> None:
    with pytest.raises(UsageError) as caught:
        keys_of(arguments("--api-key", key))
    assert repr(key) not in str(caught.value), "keys are not printed"


@pytest.mark.parametrize(
    ("given", "kept"),
    [("https://Example.org", "https://example.org"), ("https://x.org:443", "https://x.org"), ("null", "null"),
     ("http://x.org:8080", "http://x.org:8080"), ("chrome-extension://abc", "chrome-extension://abc"), ("*", "*")],
)  # fmt: skip
def test_origins_are_kept_as_browsers_write_them(given: str, kept: str) -> None:
    assert access_of(arguments("--allow-origin", given)).origins == {kept}


def test_names_are_kept_without_ports_and_the_own_one_is_among_them() -> None:
    found = access_of(arguments("--allow-host", "Box.LAN:8000", "--allow-anonymous", host="gpu-box.lan"))
    assert found.hosts == {"box.lan", "gpu-box.lan"}


def test_probes_without_a_name_are_told_of_health_alone() -> None:
    async def test(site: Site) -> None:
        host, _, port = site.url.removeprefix("http://").partition(":")
        for path, status in (("/health", b" 200 "), ("/metrics", b" 403 ")):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            assert status in await asyncio.wait_for(reader.readline(), 10)
            writer.close()

    admitting(test)


@pytest.mark.parametrize("origin", ["example.org", "https://", "https://a/b"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(UsageError, match="--allow-origin"):
        access_of(arguments("--allow-origin", origin))


TLS = Path(__file__).parents[2] / "cases" / "tls"
CHAIN, KEY = TLS / "chain.pem", TLS / "key.pem"
"""A self-signed certificate of localhost that is valid until 2126, and its key, which protects nothing."""


def test_requests_go_over_tls() -> None:
    async def run() -> None:
        listener, engine, offered = listen("127.0.0.1", 0), VirtualEngine(), served()
        tls = encryption_of(arguments("--tls-cert", str(CHAIN), "--tls-key", str(KEY)))
        url = address(listener, "https")
        trusting = ssl.create_default_context(cafile=str(CHAIN))
        async with (
            serving(listener, engine, offered, OPTIONS, tls),
            ClientSession() as client,
            client.post(url + "/v1/completions", json=ASKED, ssl=trusting) as answer,
        ):
            assert answer.status == 200
        engine.close()
        assert offered.template is not None
        offered.template.close()

    asyncio.run(run())


def test_certificates_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("not a certificate")
    for argv in (("--tls-cert", str(tmp_path / "none")), ("--tls-cert", str(tmp_path / "other")),
                 ("--tls-cert", str(CHAIN)), ("--tls-cert", str(CHAIN), "--tls-key", str(CHAIN))):  # fmt: skip
        with pytest.raises(BadInputError, match="--tls-cert"):
            encryption_of(arguments(*argv))
    with pytest.raises(UsageError, match="without a certificate"):
        encryption_of(arguments("--tls-key", str(KEY)))
