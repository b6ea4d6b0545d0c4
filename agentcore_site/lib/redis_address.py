"""Address of Redis (or Valkey): one server, or the present primary that Sentinels name.

``redis://:password@host:6379/0`` (``rediss://`` with TLS), or
``redis+sentinel://:password@host:26379,host:26379/PRIMARY/0``: the Sentinels, the name of the primary that they watch,
and the database. The password is that of the servers; Sentinels are asked without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from redis import ConnectionPool, Redis
    from redis.asyncio import Redis as AsyncRedis

SENTINEL: Final = "redis+sentinel"
SENTINEL_PORT: Final = 26_379


@dataclass(frozen=True, slots=True)
class Sentinels:
    """``nodes``: (host, port) of each. ``primary``: the name of what they watch."""

    nodes: tuple[tuple[str, int], ...]
    primary: str
    database: int
    login: dict[str, str]  # "username" and "password", where there are any


def sentinels_of(url: str) -> Sentinels | None:
    """None if ``url`` names one server.

    Raises:
        ValueError: an address with Sentinels that can't be parsed; the message shows a valid one.
    """
    parts = urlsplit(url)
    if parts.scheme != SENTINEL:
        return None
    user, _, nodes = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    primary, _, database = parts.path.strip("/").partition("/")
    pairs = [urlsplit(f"//{node}") for node in nodes.split(",") if node]
    if not (primary and pairs and (database or "0").isdecimal()):
        raise ValueError(f"an address with Sentinels is {SENTINEL}://:password@host:{SENTINEL_PORT},host/PRIMARY/0.")
    login = {"username": unquote(name), "password": unquote(password)}
    return Sentinels(
        tuple((pair.hostname or "", pair.port or SENTINEL_PORT) for pair in pairs),
        primary,
        int(database or 0),
        {key: value for key, value in login.items() if value},
    )


def redis_client(url: str, **options: Any) -> Redis:
    """A client of the server at ``url``; ``options`` are those of its connections."""
    from redis import Redis

    return Redis.from_pool(AnyPool.from_url(url, **options))


def async_redis_client(url: str, **options: Any) -> AsyncRedis:
    """As ``redis_client``, for an event loop."""
    from redis.asyncio import Redis
    from redis.asyncio.sentinel import Sentinel

    if (found := sentinels_of(url)) is None:
        return Redis.from_url(url, **options)
    watched = Sentinel(found.nodes, **found.login, **options)  # type: ignore[no-untyped-call]
    client: Redis = watched.master_for(found.primary, db=found.database)
    return client


class AnyPool:
    """The connection pool of Django's cache and of ours, by the address."""

    @staticmethod
    def from_url(url: str, **options: Any) -> ConnectionPool:
        from redis import ConnectionPool
        from redis.sentinel import Sentinel, SentinelConnectionPool

        if (found := sentinels_of(url)) is None:
            return ConnectionPool.from_url(url, **options)
        limits = {name: value for name, value in options.items() if name.startswith("socket_")}
        watched = Sentinel(found.nodes, sentinel_kwargs=limits)  # type: ignore[no-untyped-call]
        login = found.login | {"db": found.database}
        return SentinelConnectionPool(found.primary, watched, **login, **options)  # type: ignore[no-untyped-call]


def channels_host(url: str) -> Any:
    """An entry of ``hosts`` of channels_redis."""
    if (found := sentinels_of(url)) is None:
        return url
    return {"sentinels": list(found.nodes), "master_name": found.primary, "db": found.database, **found.login}


def celery_broker(url: str) -> tuple[str, dict[str, Any]]:
    """The address and the transport's options as Celery takes them; other brokers than Redis as they are."""
    if (found := sentinels_of(url)) is None:
        return url, {}
    user = quote(found.login.get("username", ""), safe="")
    login = f"{user}:{quote(found.login['password'], safe='')}@" if "password" in found.login else ""
    nodes = [f"sentinel://{login}{host}:{port}/{found.database}" for host, port in found.nodes]
    return ";".join(nodes), {"master_name": found.primary}
