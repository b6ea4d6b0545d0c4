"""Six tasks of a Python client (first argument) before a gateway: prints what came of each as JSON. BASE_URL, KEY and
LIMITED_KEY (its next call is refused) say where and as whom."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

BASE_URL, KEY, LIMITED_KEY, MODEL = (os.environ[name] for name in ("BASE_URL", "KEY", "LIMITED_KEY", "MODEL"))
Tasks = dict[str, Callable[[], Any]]


class Verdict(BaseModel):
    late: bool
    days: int


def with_openai() -> Tasks:
    import openai

    client = openai.OpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0)
    limited = openai.OpenAI(base_url=BASE_URL, api_key=LIMITED_KEY, max_retries=0)
    schema = {"type": "object", "properties": {"order": {"type": "integer"}}}
    tools: Any = [{"type": "function", "function": {"name": "days_late", "parameters": schema}}]

    def asked(content: str, **more: Any) -> Any:
        return client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": content}], **more)

    def stream() -> str:
        chunks = asked("Hello", stream=True, stream_options={"include_usage": True})
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    def called() -> str:
        message = asked("tool", tools=tools).choices[0].message
        (call,) = message.tool_calls
        talk: Any = [
            {"role": "user", "content": "tool"},
            message,
            {"role": "tool", "tool_call_id": call.id, "content": "3"},
        ]
        return client.chat.completions.create(model=MODEL, messages=talk, tools=tools).choices[0].message.content or ""

    def structured() -> dict[str, Any]:
        messages: Any = [{"role": "user", "content": "json"}]
        done = client.chat.completions.parse(model=MODEL, messages=messages, response_format=Verdict)
        return done.choices[0].message.parsed.model_dump()  # type: ignore[union-attr]

    def refused() -> list[Any]:
        try:
            limited.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hello"}])
        except openai.RateLimitError as error:
            return [error.status_code, float(error.response.headers["retry-after"]) > 0]
        return []

    def cancelled() -> str:
        with asked("long", stream=True) as chunks:
            next(iter(chunks))
        return "cancelled"

    return {
        "chat": lambda: asked("Hello").choices[0].message.content,
        "stream": stream,
        "tools": called,
        "structured": structured,
        "limited": refused,
        "cancelled": cancelled,
    }


def with_agents() -> Tasks:
    import openai
    from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled

    set_tracing_disabled(True)
    loop = asyncio.Runner()  # one for all: connections are kept from task to task

    def model(key: str) -> OpenAIChatCompletionsModel:
        return OpenAIChatCompletionsModel(MODEL, openai.AsyncOpenAI(base_url=BASE_URL, api_key=key, max_retries=0))

    @function_tool
    def days_late(order: int) -> str:
        """The days by which an order is late."""
        return "3"

    settings = ModelSettings(include_usage=True)
    clerk = Agent("clerk", model=model(KEY), tools=[days_late], model_settings=settings)
    typed = Agent("clerk", model=model(KEY), output_type=Verdict)

    async def stream() -> str:
        text = ""
        async for event in Runner.run_streamed(clerk, "Hello").stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                text += event.data.delta
        return text

    async def refused() -> list[Any]:
        try:
            await Runner.run(Agent("clerk", model=model(LIMITED_KEY)), "Hello")
        except openai.RateLimitError as error:
            return [error.status_code, float(error.response.headers["retry-after"]) > 0]
        return []

    async def cancelled() -> str:
        running = Runner.run_streamed(clerk, "long")
        async for event in running.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                running.cancel()
        return "cancelled"

    async def typed_run() -> dict[str, Any]:
        return (await Runner.run(typed, "json")).final_output.model_dump()  # type: ignore[no-any-return]

    async def final(prompt: str) -> Any:
        return (await Runner.run(clerk, prompt)).final_output

    return {
        "chat": lambda: loop.run(final("Hello")),
        "stream": lambda: loop.run(stream()),
        "tools": lambda: loop.run(final("tool")),
        "structured": lambda: loop.run(typed_run()),
        "limited": lambda: loop.run(refused()),
        "cancelled": lambda: loop.run(cancelled()),
    }


def done(task: Callable[[], Any]) -> Any:
    try:
        return task()
    except Exception as error:  # what went wrong is the result
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    tasks = {"openai": with_openai, "agents": with_agents}[sys.argv[1]]()
    print(json.dumps({name: done(task) for name, task in tasks.items()}))
