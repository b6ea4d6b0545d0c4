"""Requests that a model server refuses: bodies without bounds, pages of a browser, unreadable headers. No torch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from training.weights.model_server import MOST_SAMPLES, MOST_SESSIONS, ModelServer


class NoEngine:
    """An engine that has the base model's name and draws nothing."""

    context = 64

    def loaded(self, name: str) -> bool:
        return name == "base"

    def describe(self) -> dict[str, Any]:
        return {}

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was called")


def asked(token: str, use: Callable[[ModelServer, TestClient[Any, Any]], Awaitable[None]]) -> None:
    chat: Any = None
    server = ModelServer(NoEngine(), chat, name="tiny", token=token, saved=Path("/nowhere"))

    async def run() -> None:
        async with TestClient(TestServer(server.application())) as client:
            await use(server, client)

    asyncio.run(run())


BODIES: dict[str, tuple[str, Any]] = {
    "more samples than one request may ask": ("asample", {"prompt": {"chunks": []}, "num_samples": MOST_SAMPLES + 1}),
    "an answer longer than the context": ("asample", {"prompt": {"chunks": []}, "sampling_params": {"max_tokens": 65}}),
    "a rank without bound": ("create_model", {"base_model": "tiny", "lora_config": {"rank": 10**9}}),
    "a list for settings": ("create_model", {"base_model": "tiny", "lora_config": [1]}),
    "a text for Adam": ("optim_step", {"adam_params": "fast"}),
    "a number for sampling": ("asample", {"prompt": {"chunks": []}, "sampling_params": 5}),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_training_call_without_bounds_is_refused(name: str) -> None:
    call, body = BODIES[name]

    async def use(_: ModelServer, client: TestClient[Any, Any]) -> None:
        promised = await (await client.post(f"/api/v1/{call}", json=body)).json()
        result = await client.post("/api/v1/retrieve_future", json={"request_id": promised["request_id"]})
        assert result.status == 400 and (await result.json())["category"] == "user"

    asked("", use)


def test_a_caller_that_sends_half_a_body_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.weights.model_server.BODY_SECONDS", 0.1)

    async def use(_: ModelServer, client: TestClient[Any, Any]) -> None:
        reader, writer = await asyncio.open_connection(client.host, client.port)
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: 9\r\n\r\n{{".encode())
        answer = await asyncio.wait_for(reader.readline(), 10)
        assert answer.startswith(b"HTTP/1.1 408 ")
        writer.close()

    asked("", use)


def test_bodies_that_cannot_be_read_are_a_400() -> None:
    async def use(_: ModelServer, client: TestClient[Any, Any]) -> None:
        json_type = {"content-type": "application/json"}
        for path in ("v1/chat/completions", "api/v1/asample", "api/v1/create_sampling_session", "api/v1/get_info"):
            for data in (b"[" * 100_000 + b"]" * 100_000, b"\xff\xfe{", b"[1]", b'{"a": '):
                answer = await client.post(f"/{path}", data=data, headers=json_type)
                assert answer.status == 400, (path, data[:10])
        body = {"model": "tiny", "messages": [{"role": "user", "content": "?"}], "stream_options": 5}
        assert (await client.post("/v1/chat/completions", json=body)).status == 400

    asked("", use)


def test_a_page_of_a_browser_commands_no_server_without_a_key() -> None:
    async def use(_: ModelServer, client: TestClient[Any, Any]) -> None:
        body = b'{"model_id": "base"}'
        for headers, status in (
            ({"content-type": "text/plain"}, 415),
            ({"content-type": "application/json", "origin": "https://elsewhere.example"}, 403),
            ({"content-type": "application/json", "host": "leads-here.example:8300"}, 403),
        ):
            answer = await client.post("/api/v1/unload_model", data=body, headers=headers)
            assert answer.status == status, headers

    asked("", use)


def test_a_key_that_is_no_text_is_refused() -> None:
    async def use(_: ModelServer, client: TestClient[Any, Any]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        writer.write(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\n\r\n")
        assert b" 401 " in await reader.readline()
        writer.close()

    asked("secret", use)


def test_sessions_end() -> None:
    async def use(server: ModelServer, client: TestClient[Any, Any]) -> None:
        first = server._sampler("base")
        for _ in range(MOST_SESSIONS):
            server._sampler("base")
        assert len(server._samplers) == MOST_SESSIONS and first not in server._samplers

    asked("", use)


def test_a_body_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.weights.model_server.MOST_BODY", 1_000)

    async def use(_: ModelServer, client: TestClient[Any, Any]) -> None:
        assert (await client.post("/v1/chat/completions", json={"model": "x" * 2_000})).status == 413

    asked("", use)
