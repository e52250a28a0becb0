"""Arguments of helm-serve and helm-web about who may ask, and the key that helm-bench-serve asks with."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.schemas.errors import BadInputError, UsageError

if TYPE_CHECKING:
    import ssl

    from helmsman.service.http.access import Access

KEY_VARIABLE = "HELM_API_KEY"
_KEYS_LIMIT = 2**16
"""Bytes of a file of keys."""


def add_access_arguments(parser: argparse.ArgumentParser, anonymous: bool = True) -> None:
    """Add the group of arguments that `access_of` and `encryption_of` read; `anonymous`: one of them lets everybody
    ask."""
    add = parser.add_argument_group("who may ask").add_argument
    add_key_arguments(add, "that requests must have one of, as 'Authorization: Bearer KEY'")
    if anonymous:
        everybody = "serve without a key where other machines can reach it, too"
        add("--allow-anonymous", action="store_true", help=everybody)
    else:
        parser.set_defaults(allow_anonymous=None)
    host = "a name by which requests may call this server, beside localhost and addresses"
    add("--allow-host", action="append", default=[], metavar="NAME", help=host)
    origin = "pages that may ask from a browser, as https://example.org; those of this machine may"
    add("--allow-origin", action="append", default=[], metavar="ORIGIN", help=origin)
    add("--tls-cert", type=Path, metavar="FILE", help="serve over TLS with this chain of certificates (PEM)")
    add("--tls-key", type=Path, metavar="FILE", help="its key (PEM; default: in the file of the chain)")


def add_key_arguments(add: Callable[..., object], what: str) -> None:
    """Add what `keys_of` reads; `what`: what keys are for."""
    seen = f"other users see it in lists of processes, not so in --api-key-file or the variable {KEY_VARIABLE}"
    add("--api-key", action="append", default=[], metavar="KEY", help=f"a key {what}; {seen}")
    add("--api-key-file", type=Path, metavar="FILE", help="a file with a key a line")


def keys_of(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the keys that arguments and a file give, or else the environment. Raises UsageError for what cannot be a
    key."""
    given = [("--api-key", key) for key in args.api_key]
    if args.api_key_file is not None:
        given += [("--api-key-file", key) for key in _lines(args.api_key_file)]
    if not given and KEY_VARIABLE in os.environ:
        given = [(KEY_VARIABLE, os.environ[KEY_VARIABLE])]
    for field, key in given:
        if not (key.isascii() and key.isprintable() and key and " " not in key):
            raise UsageError("not a key", field=field, remedy="use printable ASCII without spaces")
    return tuple(dict.fromkeys(key for _, key in given))


def _lines(path: Path) -> list[str]:
    from helmsman.schemas.read import read_bytes

    try:
        text = read_bytes(path, _KEYS_LIMIT).decode()
    except UnicodeDecodeError:
        raise BadInputError("not text", file=str(path), remedy="write a key a line") from None
    keys = [line.strip() for line in text.splitlines() if line.strip()]
    if not keys:
        raise BadInputError("no key in it", file=str(path), remedy="write a key a line")
    return keys


def access_of(args: argparse.Namespace) -> "Access":
    """Who may ask. Raises UsageError where other machines could without a key, and nobody said so."""
    from helmsman.service.http.access import Access, is_loopback, name_in

    keys = keys_of(args)
    if not keys and not args.allow_anonymous and not is_loopback(args.host):
        remedy = "give --api-key-file"
        if args.allow_anonymous is not None:
            remedy += ", or --allow-anonymous where something before it knows who asks"
        raise UsageError("other machines could ask without a key", field="--host", value=args.host, remedy=remedy)
    hosts = {name_in(name) for name in args.allow_host}
    if "" in hosts:
        raise UsageError(
            "not a name", field="--allow-host", value=args.allow_host, remedy="write box.lan, for instance"
        )
    return Access(keys, {args.host.lower(), *hosts}, {_origin(origin) for origin in args.allow_origin})


def _origin(text: str) -> str:
    """Return an origin as browsers write it: small letters, without a port that its scheme has anyway."""
    scheme, separator, rest = text.lower().partition("://")
    if text in ("null", "*"):
        return text
    if not scheme or not separator or not rest or "/" in rest:
        remedy = "write it as browsers do: https://example.org, http://127.0.0.1:3000, app://name, null, or * for all"
        raise UsageError("not an origin", field="--allow-origin", value=text, remedy=remedy)
    usual = {"http": ":80", "https": ":443"}.get(scheme, ":")
    return f"{scheme}://{rest.removesuffix(usual)}"


def encryption_of(args: argparse.Namespace) -> "ssl.SSLContext | None":
    """TLS, where it is asked for. Raises BadInputError for files that cannot be used."""
    from helmsman.service.http.listening import encryption

    if args.tls_cert is None:
        if args.tls_key is not None:
            raise UsageError("a key without a certificate", field="--tls-key", remedy="add --tls-cert")
        return None
    return encryption(args.tls_cert, args.tls_key)
