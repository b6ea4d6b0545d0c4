"""One episode's connection to an environment server: bounded in time and size, redirects not followed."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import httpx

from experiences.privacy import cut_short

MAX_BYTES: Final = 2**20
KEEP_ALIVE_SECONDS: Final = 2.0  # less than any server's own: a reused connection that it closes loses a step
SHOWN: Final = 300  # characters of an answer that are quoted in an error


class GymError(Exception):
    """The server is away, takes too long, or answers with something that can't be used.

    GymError
      Refused     it says what is wrong: {"error"} under HTTP 200, or a status of 400 and above
    """


class Refused(GymError):
    """``status`` is 200 for an error that came as a success, else the HTTP status."""

    def __init__(self, message: str, status: int = 200) -> None:
        super().__init__(message)
        self.status = status


class Wire:
    """JSON over HTTP to ``base_url``, ``timeout_s`` seconds for each request as a whole. Belongs to one event loop."""

    def __init__(self, base_url: str, timeout_s: float) -> None:
        self._base_url = base_url
        self._timeout_s = timeout_s
        self._client = httpx.AsyncClient(
            verify=_tls(),
            timeout=timeout_s,
            follow_redirects=False,
            trust_env=False,
            headers={"accept": "application/json", "accept-encoding": "identity"},
            limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_SECONDS),
        )

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What the server answers. Raises GymError."""
        return await self._request("POST", path, json=dict(body or {}))

    async def get(self, path: str, query: Mapping[str, Any]) -> Any:
        """What the server answers. Raises GymError."""
        return await self._request("GET", path, params=dict(query))

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _request(self, method: str, path: str, **content: Any) -> Any:
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream(method, f"{self._base_url}{path}", **content) as response,
            ):
                body = await _read(response, path)
        except (TimeoutError, httpx.TimeoutException):
            raise GymError(f"{path}: no answer within {self._timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = str(error) or type(error).__name__
            raise GymError(f"{path}: the environment server can't be reached: {why}") from error
        return _value(path, response.status_code, body)


async def _read(response: httpx.Response, path: str) -> bytes:
    body = bytearray()
    async for piece in response.aiter_raw():  # as it came: a small compressed answer could unfold to gigabytes
        body += piece
        if len(body) > MAX_BYTES:
            raise GymError(f"{path}: the answer is larger than {MAX_BYTES // 2**20} MB")
    return bytes(body)


def _value(path: str, status: int, body: bytes) -> Any:
    if 300 <= status < 400:
        raise GymError(f"{path}: the server redirects (HTTP {status}); give the address that it redirects to")
    if status >= 400:
        raise Refused(f"{path}: HTTP {status}: {_quoted(body)}", status)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise GymError(f"{path}: the answer is no JSON: {_quoted(body)}") from None
    if isinstance(value, Mapping) and value.get("error"):
        raise Refused(cut_short(str(value["error"]), 4 * SHOWN))
    return value


def _quoted(body: bytes) -> str:
    return cut_short(" ".join(body.decode("utf-8", "replace").split()), SHOWN)


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """One for all episodes: to make one takes longer than most requests."""
    return httpx.create_ssl_context(trust_env=False)
