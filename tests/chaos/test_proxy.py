"""The network of the chaos run fails as it is told to."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from tests.chaos.proxy import CUTS, Mode, Proxy
from tests.servers import HOST

LIMIT = 90.0


class Echo(socketserver.ThreadingTCPServer):
    """Sends back what it is sent, and keeps it."""

    daemon_threads = True

    def __init__(self) -> None:
        self.heard = b""
        super().__init__((HOST, 0), EchoHandler)


class EchoHandler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(100):
            self.server.heard += data  # type: ignore[attr-defined]
            self.request.sendall(data)


@pytest.fixture
def server() -> Iterator[Echo]:
    with Echo() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def proxy(server: Echo) -> Iterator[Proxy]:
    proxy = Proxy(server.server_address[1])
    yield proxy
    proxy.close()


def connect(proxy: Proxy) -> socket.socket:
    connection = socket.create_connection((HOST, proxy.port), LIMIT)
    connection.settimeout(LIMIT)
    return connection


def ask(connection: socket.socket, word: bytes) -> bytes:
    try:
        connection.sendall(word)
        return connection.recv(100)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("mode", CUTS)
def test_a_cut_ends_what_was_open_and_what_comes_later_is_carried_again(proxy: Proxy, mode: Mode) -> None:
    with connect(proxy) as old, connect(proxy) as new:
        assert ask(old, b"one") == b"one"
        proxy.cut(mode)
        mending = threading.Timer(0.05, proxy.mend)
        mending.start()
        assert ask(old, b"two") == b""
        mending.join()
        assert ask(new, b"three") == b""
    with connect(proxy) as later:
        assert ask(later, b"four") == b"four"


@pytest.mark.parametrize(("mode", "heard"), [("refuse", b""), ("mute", b"request"), ("hole", b"")])
def test_what_the_server_hears_meanwhile(proxy: Proxy, server: Echo, mode: Mode, heard: bytes) -> None:
    with connect(proxy) as connection:
        assert ask(connection, b"before") == b"before"
        proxy.cut(mode)
        mending = threading.Timer(0.2, proxy.mend)
        mending.start()
        assert ask(connection, b"request") == b""
        mending.join()
    assert server.heard == b"before" + heard
