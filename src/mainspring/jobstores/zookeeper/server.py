"""Ask a ZooKeeper server about itself, and find out why it cannot be reached."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final

from kazoo.exceptions import NoAuthError, NoNodeError

__all__ = ["members_of", "told", "version_in", "why_unreachable"]

PROBE_SECONDS: Final = 1.0


def told(client: Any, command: bytes) -> str:
    """Return the answer to a four-letter command; empty if there is no connection.

    kazoo's own method for this fails with TLS: it uses the port as the host name.
    """
    with suppress(OSError, AttributeError), _connect(client, *client._connection._socket.getpeername()[:2]) as wire:
        wire.sendall(command)
        return b"".join(iter(lambda: wire.recv(8192), b"")).decode(errors="replace")
    return ""


def version_in(said: str) -> str:
    """Return the version that an answer to `srvr` names; empty if it names none."""
    found = re.search(r"Zookeeper version: (\d+\.\d+\.\d+)", said)
    return found[1] if found else ""


def members_of(client: Any) -> int:
    """Return how many servers vote; 1 if this client cannot read the list of them."""
    with suppress(NoNodeError, NoAuthError):
        said = client.get("/zookeeper/config")[0].decode(errors="replace")
        return max(1, len(re.findall(r"^server\.\d+=.*:participant", said, re.MULTILINE)))
    return 1


def why_unreachable(client: Any) -> str:
    """Return why a client could not open a session; kazoo itself only logs the reason."""
    errors = []
    for host, port in client.hosts:
        try:
            _connect(client, host, port).close()
        except OSError as error:
            errors.append(f"{host}:{port}: {error}{_hint(str(error))}")
    if len(errors) < len(client.hosts):
        tls = "wants a client's certificate (cert= and key=)" if client.use_ssl else "wants TLS (tls=1)"
        errors.append(f"a server takes connections and opens no session: the ensemble has no majority, or it {tls}")
    return "; ".join(errors)


def _hint(error: str) -> str:
    if "VERIFY_FAILED" in error:
        return "; name the file of the authority that signed its certificate: ca="
    if "BAD_CERTIFICATE" in error or "CERTIFICATE_REQUIRED" in error:
        return "; it wants a client's certificate: cert= and key="
    return ""


def _connect(client: Any, host: str, port: int) -> Any:
    """Open a separate connection with the settings of a client."""
    return client.handler.create_connection(
        (host, port),
        hostname=host,
        timeout=PROBE_SECONDS,
        use_ssl=client.use_ssl,
        ca=client.ca,
        certfile=client.certfile,
        keyfile=client.keyfile,
        keyfile_password=client.keyfile_password,
        verify_certs=client.verify_certs,
        check_hostname=client.check_hostname,
    )
