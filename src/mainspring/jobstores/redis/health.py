"""Judge Redis or Valkey by its settings: whether acknowledged writes survive, and what else may go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis
from redis.exceptions import RedisError, ResponseError

from mainspring.errors import StoreUnavailable
from mainspring.jobstores.health import Health

if TYPE_CHECKING:
    from mainspring.jobstores.redis.connection import RedisConnection

__all__ = ["health", "judge"]


def health(link: RedisConnection, schema: int, replicas: int = 0) -> Health:
    """Judge each primary and report the weakest; `replicas` is the number of replicas that a write waits for."""
    said = link.info()
    found = [judge(said.get(place, {}), _config(place, one), replicas) for place, one in link.clients().items()]
    states = [each.durable for each in found]
    durable = False if False in states else None if None in states else True
    reasons = [reason for each in found if each.durable is durable for reason in each.reasons]
    if replicas:
        reasons.insert(0, f"each write waits until {replicas} replica{'s have' if replicas > 1 else ' has'} it")
    return Health(
        durable=durable,
        replicas=replicas,
        reasons=tuple(dict.fromkeys(reasons)),
        version=", ".join(sorted({each.version for each in found})),
        schema=schema,
        warnings=tuple(dict.fromkeys(warning for each in found for warning in each.warnings)),
        size=None if any(each.size is None for each in found) else sum(each.size or 0 for each in found),
    )


def _config(place: str, client: redis.Redis) -> dict[str, Any]:
    """Return how a server syncs its append-only file; empty if this user may not ask, as on managed servers."""
    try:
        settings: dict[Any, Any] = client.config_get("*append*")
    except ResponseError:
        return {}
    except (RedisError, OSError) as error:
        raise StoreUnavailable(f"Redis at {place} does not answer: {error}") from error
    return settings


def judge(info: dict[str, str], config: dict[str, Any], replicas: int = 0) -> Health:
    """Judge one server by its INFO and its CONFIG."""
    durable, reason = _durability(info, config)
    warnings = []
    policy = str(info.get("maxmemory_policy", ""))
    if policy.startswith("allkeys-"):
        warnings.append(f"maxmemory-policy is {policy}: a full server throws jobs and runs away; set it to noeviction")
    if info.get("aof_enabled") == "1" and info.get("aof_last_write_status", "ok") != "ok":
        warnings.append("the last write to the append-only file failed; look at the server's disk and log")
    if replicas > int(info.get("connected_slaves", replicas)):
        connected = info["connected_slaves"]
        warnings.append(f"{connected} of {replicas} replicas are connected: nothing is acknowledged without them")
    if info.get("role") == "slave":
        warnings.append("it is a replica, which takes no writes; connect to the primary")
    name = "Valkey" if info.get("server_name") == "valkey" or "valkey_version" in info else "Redis"
    version = info.get("valkey_version") or info.get("redis_version") or "of an unknown version"
    used = info.get("used_memory")
    return Health(
        durable=durable,
        reasons=(reason,),
        version=f"{name} {version}",
        warnings=tuple(warnings),
        size=None if used is None else int(used),
    )


def _durability(info: dict[str, str], config: dict[str, Any]) -> tuple[bool | None, str]:
    if "aof_enabled" not in info:
        return None, "this user may not ask by INFO, so what survives is not known; permit INFO and CONFIG GET"
    if info["aof_enabled"] == "0":
        return False, (
            "appendonly is no: a restart loses what came after the last snapshot, or all of it; set appendonly yes and "
            "appendfsync always"
        )
    fsync = config.get("appendfsync")
    if fsync is None:
        return None, (
            "appendonly is yes, but this user may not ask for appendfsync by CONFIG GET: kill -9 is survived, a power "
            "failure only if it is always"
        )
    if fsync == "everysec":
        return False, (
            "appendfsync is everysec: a power failure costs about the last second, and kill -9 up to two seconds if "
            "the disk is slow; set appendfsync always"
        )
    if fsync != "always":
        return False, (
            f"appendfsync is {fsync}: it survives kill -9, and a power failure costs what the system had not written "
            "yet, some 30 s; set appendfsync always"
        )
    if config.get("no-appendfsync-on-rewrite") == "yes":
        return False, (
            "no-appendfsync-on-rewrite is yes: while the file is rewritten, a power failure costs what is written; set "
            "it to no"
        )
    return True, "appendonly is yes and appendfsync is always"
