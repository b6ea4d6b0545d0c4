"""One episode's connection to an environment server: bounded in time and size, redirects not followed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from agentcore_site.outbound import OutboundClient, OutboundError
from experiences.privacy import cut_short

MAX_BYTES: Final = 2**20
KEEP_ALIVE_SECONDS: Final = 2.0  # less than any server's own: a reused connection that it closes loses a step
SHOWN: Final = 1200  # characters of a server's own error that are quoted
HEADERS: Final = {"accept": "application/json", "content-type": "application/json"}


class GymError(Exception):
    """The server is away, takes too long, or answers with something that can't be used.

    GymError
      Refused     it says what is wrong: {"error"} under HTTP 200, or a status of 400 and above
    """


class AgentGymRefused(GymError):
    """``status`` is 200 for an error that came as a success, else the HTTP status."""

    def __init__(self, message: str, status: int = 200) -> None:
        super().__init__(message)
        self.status = status


class Wire:
    """JSON over HTTP to ``base_url``, ``timeout_s`` seconds for each request as a whole. Belongs to one event loop."""

    def __init__(self, base_url: str, timeout_s: float) -> None:
        self._base_url = base_url
        self._timeout_s = timeout_s
        self._client = OutboundClient(connect_s=timeout_s, idle_s=KEEP_ALIVE_SECONDS)

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The server's answer. Raises GymError."""
        return await self._request("POST", path, body=json.dumps(dict(body or {})).encode())

    async def get(self, path: str, query: Mapping[str, Any]) -> Any:
        """The server's answer. Raises GymError."""
        return await self._request("GET", path, query=f"?{urlencode(query)}")

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _request(self, method: str, path: str, *, query: str = "", body: bytes | None = None) -> Any:
        try:
            target = self._client.target(f"{self._base_url}{path}{query}")
            async with (
                asyncio.timeout(self._timeout_s),
                await self._client.send(method, target, headers=HEADERS, body=body) as response,
            ):
                read = await response.read(MAX_BYTES)
        except TimeoutError:
            raise GymError(f"{path}: no answer within {self._timeout_s:g} s") from None
        except OutboundError as error:
            raise GymError(f"{path}: the environment server can't be used: {error}") from None
        if len(read) > MAX_BYTES:
            raise GymError(f"{path}: the answer is larger than {MAX_BYTES // 2**20} MB")
        return _value(path, response.status, read)


def _value(path: str, status: int, body: bytes) -> Any:
    if status >= 400:
        raise AgentGymRefused(f"{path}: HTTP {status}", status)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise GymError(f"{path}: the answer is no JSON") from None
    if isinstance(value, Mapping) and value.get("error"):
        raise AgentGymRefused(cut_short(str(value["error"]), SHOWN))
    return value
