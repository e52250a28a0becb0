"""Listening on a socket, over TLS where that is asked for, and what is wrong where that cannot be."""

import errno
import socket
import ssl
from pathlib import Path
from typing import Any

from helmsman.schemas.errors import BadInputError, HardwareUnavailableError, HelmError, UsageError

BACKLOG = 2048
_SEND_BUFFER = 2**16
"""Bytes that the kernel keeps for a reader; it would let them grow to megabytes, and a slow one go unnoticed."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that accepts connections; port 0 is any that is free. Raises UsageError where it cannot be
    had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UsageError(f"not an address: {error.strerror}", field="host", value=host) from None
    except UnicodeError:  # a part of a name that is empty or too long
        raise UsageError("not an address", field="host", value=host, remedy="use 127.0.0.1") from None
    result = socket.socket(family, kind, protocol)
    try:
        result.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        result.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        result.bind(address)
        result.listen(BACKLOG)
    except OSError as error:
        result.close()
        raise _unusable(error, host, port) from None
    return result


def _unusable(error: OSError, host: str, port: int) -> HelmError:
    if error.errno == errno.EADDRINUSE:
        remedy = "stop what listens there, or use another; 0 takes any that is free"
        return UsageError(f"the port is occupied on {host}", field="port", value=port, remedy=remedy)
    if error.errno == errno.EACCES:
        remedy = "use one from 1024 on"
        return UsageError(f"not allowed to listen there: {error.strerror}", field="port", value=port, remedy=remedy)
    if error.errno == errno.EADDRNOTAVAIL:
        raise UsageError("not an address of this machine", field="host", value=host, remedy="use 127.0.0.1") from None
    return HardwareUnavailableError(f"cannot listen on {host}, port {port}: {error.strerror}", field="host")


def encryption(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """TLS with the chain of certificates in one file, and its key there or in another, both PEM.

    Raises BadInputError naming the file that cannot be used."""
    result = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    remedy = "give --tls-cert the chain and --tls-key its key, both PEM and without a password"
    for path in (certificate, key or certificate):
        try:
            path.open("rb").close()
        except OSError as error:
            raise BadInputError(f"cannot be read: {error.strerror}", file=str(path), remedy=remedy) from None
    try:
        result.load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise BadInputError(f"not a certificate with its key: {why}", file=str(certificate), remedy=remedy) from None
    return result


def address(listener: socket.socket, scheme: str = "http") -> str:
    """Return the URL of what is served on a socket."""
    name: Any = listener.getsockname()
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"{scheme}://{host}:{name[1]}"
