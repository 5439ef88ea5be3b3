"""How the Redis servers are asked where the primary is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import TimeoutError as RedisTimeoutError

from mainspring.jobstores.redis.servers import ask


class OldConnection:
    """A connection as redis-py 5 to 7 have them: reading a reply takes no timeout."""

    def __init__(self, *, answers: bool) -> None:
        self._answers = answers
        self.connected = True

    def send_command(self, *command: Any) -> None:
        """Send nothing."""

    def can_read(self, timeout: float = 0) -> bool:
        """Say at once whether there will be a reply."""
        return self._answers

    def read_response(self, disable_decoding: bool = False, *, disconnect_on_error: bool = True) -> list[bytes]:
        """Return a reply."""
        return [b"master"]

    def disconnect(self) -> None:
        """Note that nobody can use this any more."""
        self.connected = False


@pytest.mark.parametrize("timeout", [None, 1.0])
def test_a_server_is_asked_through_an_old_driver(timeout: float | None) -> None:
    connection = OldConnection(answers=True)
    pool = SimpleNamespace(get_connection=lambda: connection, release=lambda connection: None)
    assert ask(pool, "ROLE", timeout=timeout) == [b"master"]
    assert connection.connected


def test_a_server_that_does_not_answer_in_time_is_not_asked_again_on_the_same_connection() -> None:
    connection = OldConnection(answers=False)
    pool = SimpleNamespace(get_connection=lambda: connection, release=lambda connection: None)
    with pytest.raises(RedisTimeoutError, match="1 s"):
        ask(pool, "ROLE", timeout=1.0)
    assert not connection.connected
