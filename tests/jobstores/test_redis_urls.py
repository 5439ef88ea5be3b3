"""URLs of Redis Sentinel and Redis Cluster."""

from __future__ import annotations

import pytest

from mainspring.core.showing.redaction import without_password
from mainspring.errors import ConfigurationError
from mainspring.jobstores.opening import open_store
from mainspring.jobstores.redis import RedisJobStore
from mainspring.jobstores.redis.servers import Address, ClusterServers, FixedServer, SentinelServers
from mainspring.jobstores.redis.urls import make_servers, take_options

GIVEN = {"name": "mainspring", "shards": 1, "replicas": 0, "keep_runs": 100_000}


def test_sentinels_a_service_and_a_database_are_read_from_a_url() -> None:
    servers = make_servers("redis+sentinel://me:p%40ss@a:1,b,[::1]:3/main/2?socket_timeout=9", 0, {})
    assert isinstance(servers, SentinelServers)
    assert servers._hosts == [Address("a", 1), Address("b", 26379), Address("::1", 3)]
    assert servers.place == "a:1,b:26379,[::1]:3/main (Sentinel)"
    known = servers._pool_at(Address("c", 6379)).connection_kwargs
    assert {name: known[name] for name in ("username", "password", "db", "socket_timeout")} == {
        "username": "me",
        "password": "p@ss",
        "db": 2,
        "socket_timeout": 9.0,
    }


def test_the_sentinels_have_a_password_of_their_own() -> None:
    servers = make_servers("redis+sentinel://me:mine@a:1/main?sentinel_password=theirs", 0, {})
    assert isinstance(servers, SentinelServers)
    (pool,) = servers._sentinels.values()
    assert (pool.connection_kwargs["username"], pool.connection_kwargs["password"]) == (None, "theirs")
    assert "sentinel_password" not in servers._pool_at(Address("c", 1)).connection_kwargs


@pytest.mark.parametrize("path", ["", "/", "/0"])
def test_the_servers_of_a_cluster_are_read_from_a_url(path: str) -> None:
    servers = make_servers(f"rediss+cluster://:secret@a:1,b{path}", 0, {})
    assert isinstance(servers, ClusterServers)
    assert servers.place == "a:1,b:6379 (Cluster)"
    pool = servers._pool_at(Address("a", 1))
    assert pool.connection_kwargs["password"] == "secret"
    assert pool.connection_class.__name__ == "SSLConnection"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis+sentinel://a:1,b:2", r"names no service.*redis\+sentinel://host1:26379,host2:26379/service/0"),
        ("redis+sentinel://a:1/main/x", "is not a service and the number of a database"),
        ("redis+sentinel://a:1/main/0/1", "is not a service and the number of a database"),
        ("redis+sentinel:///main", "no host and port"),
        ("redis+sentinel://a:1,,b:2/main", "no host and port"),
        ("redis+sentinel://a:port/main", "no host and port"),
        ("redis+sentinel://a:1/main?socket_timeout=soon", "socket_timeout"),
        ("redis+sentinel://u:se/cret@a:1/main", "percent-encoded"),
        ("redis+sentinel://u:se@cret@a:1/main", "percent-encoded"),
        ("redis+cluster://a:1/2", "has no databases; leave '2' out"),
        ("redis+cluster://u:se?cret@a:1", "no host and port"),
        ("redis+sentinal://a:1/main", "did you mean 'sentinel'"),
        ("redis://a:1,b:2/0", r"for several hosts as redis\+sentinel://"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_without_a_word_of_its_password(url: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as refused:
        open_store(url)
    assert "cret" not in str(refused.value)


def test_a_cluster_has_neither_databases_nor_keys_of_ones_own() -> None:
    with pytest.raises(ConfigurationError, match="no databases; leave 'db=3' out"):
        RedisJobStore(db=3, url="redis+cluster://a:1")
    with pytest.raises(ConfigurationError, match="cannot be chosen in a Redis Cluster"):
        RedisJobStore(jobs_key="mine", url="redis+cluster://a:1")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis+sentinel://u:secret@a:1,b:2/main/0", "redis+sentinel://u:***@a:1,b:2/main/0"),
        ("redis+cluster://:secret@a:1,b:2", "redis+cluster://:***@a:1,b:2"),
        (
            "redis+sentinel://a:1/m?sentinel_password=x&replicas=1",
            "redis+sentinel://a:1/m?sentinel_password=***&replicas=1",
        ),
        ("redis+sentinel://a:1,b:2/main", "redis+sentinel://a:1,b:2/main"),
    ],
)
def test_a_password_is_masked(url: str, shown: str) -> None:
    assert without_password(url) == shown
    assert "secret" not in repr(open_store(url))


def test_the_options_of_the_store_are_taken_out_of_a_url() -> None:
    url, options = take_options("redis://a/0?replicas=2&socket_timeout=3&name=x", GIVEN)
    assert url == "redis://a/0?socket_timeout=3"
    assert options == {"name": "x", "shards": 1, "replicas": 2, "keep_runs": 100_000}
    assert isinstance(make_servers(url, 0, {}), FixedServer)


def test_an_option_that_is_no_number_is_named() -> None:
    with pytest.raises(ConfigurationError, match="replicas=two in the Redis URL is not a whole number"):
        open_store("redis://a/0?replicas=two")
    with pytest.raises(ConfigurationError, match="replicas must be a whole number of at least 0, not -1"):
        open_store("redis://a/0?replicas=-1")


@pytest.mark.parametrize(
    "url",
    [
        "redis://host/0?shard=5",
        "redis+cluster://a:1,b?shard=5",
        "redis+sentinel://a:1/main?shard=5",
        "unix:///s?shard=5",
    ],
)
def test_an_option_in_a_url_that_nobody_knows_is_refused_with_the_near_one_before_anything_connects(url: str) -> None:
    with pytest.raises(ConfigurationError, match="a Redis store has no option 'shard'; did you mean 'shards'"):
        RedisJobStore(url=url)


def test_an_option_that_nobody_knows_is_refused_with_the_near_one() -> None:
    with pytest.raises(ConfigurationError, match="no option 'keep_run'; did you mean 'keep_runs'"):
        open_store("redis://host", keep_run=3)
    with pytest.raises(ConfigurationError, match="no option 'socket_timout'; did you mean 'socket_timeout'"):
        RedisJobStore(socket_timout=3)


def test_the_options_of_the_driver_are_known() -> None:
    RedisJobStore(url="rediss://host?ssl_cert_reqs=none&max_connections=5", health_check_interval=3)
    RedisJobStore(url="unix:///s?db=2", client_name="me")
    RedisJobStore(url="redis+cluster://a:1?read_from_replicas=true")


def test_a_part_of_a_password_is_not_taken_for_an_option() -> None:
    with pytest.raises(ConfigurationError) as caught:
        RedisJobStore(url="redis://:sec?ret=5@host/0")
    assert "ret" not in str(caught.value).replace("written", "")
