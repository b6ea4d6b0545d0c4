"""Client of a model server (``training.weights.model_server``): uploads states and makes Tinker training calls.

One client serves one slice of work and one event loop.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Unpack

import orjson

from agentcore_site.outbound import OutboundClient, OutboundError
from budgets.llm.errors import ModelNotFound
from budgets.llm.types import Completion, Endpoint, Message, ToolSpec
from budgets.meter_port import CallKey
from experiences.rollouts.own_weights import Weights
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.runtimes.llm.calls import CallOptions, ChatModel

MOST_ANSWER: Final = 2**30  # bytes: a state, or the log-probabilities of a batch
CALL_SECONDS: Final = 600.0  # until one call has its result; a step of a large model takes minutes
RETRIES: Final = 3
AWAY: Final = "The model server at {} does not answer: {}"


class ModelServerClient:
    """``endpoint`` is one of kind ``weights``: its ``base_url`` ends in /v1, and its key lets in."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._root = endpoint.base_url.rstrip("/").removesuffix("/v1")
        self._client: OutboundClient | None = None

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def put(self, weights: Weights, *, keep: bool = False) -> None:
        """Brings a state there; ``keep``: for as long as its disk lasts. Raises Halted."""
        await self._send("PUT", f"/weights/{weights.digest}{'?keep=1' if keep else ''}", weights.state)

    async def get(self, name: str) -> Weights:
        """The state of a model that is trained there. Raises Halted."""
        body, headers = await self._send("GET", f"/weights/{name}")
        return Weights(body, headers.get("x-sha256", ""))

    async def train(self, call: str, **asked: Any) -> dict[str, Any]:
        """One call of the Tinker API, with its result.

        Raises:
            Halted: the model server is away or refuses.
        """
        promised = await self._json(f"/api/v1/{call}", asked)
        if "request_id" not in promised:
            return promised
        ends = time.monotonic() + CALL_SECONDS
        while True:
            found = await self._json("/api/v1/retrieve_future", {"request_id": promised["request_id"]})
            if found.get("type") != "try_again":
                break
            if time.monotonic() > ends:
                raise Halted("waiting_for_llm", f"The model server had no result of {call} in {CALL_SECONDS:g} s.")
        if "error" in found:
            raise Halted("llm_refused", f"The model server refuses {call}: {found['error']}")
        return found

    async def knows(self, digest: str) -> bool:
        """Whether a state is there. Raises Halted."""
        body, _ = await self._send("GET", "/health")
        return digest in orjson.loads(body).get("loaded", ())

    async def _json(self, path: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        body, _ = await self._send("POST", path, orjson.dumps(asked))
        try:
            found = json.loads(body)
        except ValueError as error:
            raise Halted("llm_refused", f"{self._root} is no such model server: its answer is no JSON.") from error
        if not isinstance(found, dict):
            raise Halted("llm_refused", f"{self._root} is no such model server.")
        return found

    async def _send(self, method: str, path: str, body: bytes | None = None) -> tuple[bytes, Mapping[str, str]]:
        """Tries again where nothing answered: all that is asked here may be asked twice.

        Raises:
            Halted: as ``train``.
        """
        headers = {
            "content-type": "application/json",
            "authorization": f"Bearer {self.endpoint.key_of('training').reveal()}",
        }
        if self._client is None:
            self._client = OutboundClient(connect_s=self.endpoint.connect_s)
        for attempt in range(RETRIES):
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    target = self._client.target(self._root + path)
                    async with await self._client.send(method, target, headers=headers, body=body) as response:
                        answer = await response.read(MOST_ANSWER)
                        status = response.status
                        answered_headers = dict(response.headers)
            except (OutboundError, TimeoutError) as error:
                if attempt + 1 < RETRIES:
                    await asyncio.sleep(0.5 * 2**attempt)
                    continue
                raise Halted("waiting_for_llm", AWAY.format(self._root, self.endpoint.safe(str(error)))) from error
            if status >= 500:
                raise Halted("waiting_for_llm", AWAY.format(self._root, f"status {status}"))
            if status >= 400 and status != 408:  # 408: ask again for the result
                reason = self.endpoint.safe(answer[:300].decode(errors="replace"))
                raise Halted("llm_refused", f"The model server refuses {path}: {reason}")
            return answer, {name.lower(): value for name, value in answered_headers.items()}
        raise AssertionError("the last attempt returns or raises")


class OwnModel:
    """The client of a model whose weights are uploaded where the model server has not got them, or not any more."""

    def __init__(self, client: ChatModel, server: ModelServerClient, weights: Weights) -> None:
        self._client, self._server, self._weights = client, server, weights
        self._bringing: asyncio.Task[None] | None = None

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        key: CallKey,
        tools: Sequence[ToolSpec] | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Completion:
        call = partial(
            self._client.complete,
            messages,
            max_tokens=max_tokens,
            tools=tools,
            temperature=temperature,
            seed=seed,
            **options,
        )
        try:
            return await call(key=key)
        except ModelNotFound:
            if self._bringing is None or self._bringing.done():
                self._bringing = asyncio.ensure_future(self._server.put(self._weights))
            await self._bringing
        return await call(key=replace(key, key=f"{key.key}/loaded"))  # a call is made under one name once
