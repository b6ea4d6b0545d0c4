"""Streamed answers: server-sent events into the one value that an unstreamed answer would have been.

Memory is bounded by the size limit of an answer: what is kept are the texts, and no line may be longer than that.
Time is bounded by the client. (Events: https://html.spec.whatwg.org/multipage/server-sent-events.html)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from budgets.llm.errors import Malformed
from budgets.llm.usage import as_count, kind
from budgets.llm.wire import error_in, load

DONE: Final = "[DONE]"
CALL_SIZE: Final = 256  # what a tool call without a letter in it weighs against the limit


class EventReader:
    """Bytes in, the data of each event out. Raises Malformed where an event is longer than ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[str]:
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            yield from self._line(line.rstrip(b"\r"))
        if len(self._rest) + self._size > self._limit:
            raise Malformed(f"An event of the stream is larger than {self._limit:,} bytes.")

    def end(self) -> Iterator[str]:
        """The last event, where the server forgot its empty line."""
        yield from self._line(self._rest.rstrip(b"\r"))
        yield from self._line(b"")

    def _line(self, line: bytes) -> Iterator[str]:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            self._size += len(line)
            if self._size > self._limit:
                raise Malformed(f"An event of the stream is larger than {self._limit:,} bytes.")
        elif not line and self._data:
            text = b"\n".join(self._data).decode("utf-8", "replace")
            self._data, self._size = [], 0
            yield text
        # Everything else is a comment (OpenRouter's heartbeat) or a field without meaning here.


class Assembly:
    """Adds up the chunks of a stream. ``ended``: a reason to finish or [DONE] was seen, so that nothing was cut off."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: object = None
        self._head: dict[str, Any] = {}
        self._done = False
        self.started = False

    @property
    def ended(self) -> bool:
        return self._done or self._finish is not None

    @property
    def size(self) -> int:
        """Characters that the model wrote so far."""
        return self._size

    @property
    def usage(self) -> object:
        return self._head.get("usage")

    def add(self, data: str) -> str:
        """Takes one event and returns the text that it added. Raises Malformed."""
        if data.strip() == DONE:
            self._done = True
            return ""
        chunk = load(data)
        if not isinstance(chunk, Mapping):
            raise Malformed(f"A chunk of the stream is {kind(chunk)}.", broken=True)
        self.started = True
        for name in ("id", "model", "usage"):
            if chunk.get(name) is not None:
                self._head[name] = chunk[name]
        if chunk.get("error"):
            raise error_in(chunk["error"])
        choices = chunk.get("choices")
        if choices is not None and not isinstance(choices, list):
            raise Malformed(f"choices of a chunk is {kind(choices)}.")
        return "".join(self._choice(choice) for choice in choices or [])

    def value(self) -> dict[str, Any]:
        """The same answer as if it had not been streamed; ``choices`` is empty where no chunk had one."""
        message: dict[str, Any] = {"content": "".join(self._content), "reasoning": "".join(self._reasoning)}
        if self._calls:
            message["tool_calls"] = [self._call(self._calls[index]) for index in sorted(self._calls)]
        begun = self._content or self._reasoning or self._calls or self._finish is not None
        choices = [{"message": message, "finish_reason": self._finish}] if begun else []
        return {**self._head, "choices": choices}

    def _choice(self, choice: object) -> str:
        if not isinstance(choice, Mapping):
            raise Malformed(f"A choice of a chunk is {kind(choice)}.")
        if choice.get("index") not in (0, None):
            return ""
        if choice.get("finish_reason") is not None:
            self._finish = choice["finish_reason"]
        delta = choice.get("delta")
        if delta is None:
            return ""
        if not isinstance(delta, Mapping):
            raise Malformed(f"delta is {kind(delta)}.")
        text = delta.get("content")
        if text is not None and not isinstance(text, str):
            raise Malformed(f"content of a delta is {kind(text)}.")
        for name in ("reasoning_content", "reasoning"):
            if isinstance(thought := delta.get(name), str):
                self._keep(self._reasoning, thought)
                break
        calls = delta.get("tool_calls")
        for position, part in enumerate(calls if isinstance(calls, list) else []):
            self._tool_call(position, part)
        if text:
            self._keep(self._content, text)
        return text or ""

    def _tool_call(self, position: int, part: object) -> None:
        if not isinstance(part, Mapping):
            raise Malformed(f"A tool call of a delta is {kind(part)}.")
        counted = as_count(part.get("index"))
        index = position if counted is None else counted
        if index not in self._calls:
            self._calls[index] = {"id": None, "name": [], "arguments": []}
            self._grow(CALL_SIZE)
        call = self._calls[index]
        if isinstance(part.get("id"), str):
            call["id"] = part["id"]
        function = part.get("function")
        for name in ("name", "arguments"):
            if isinstance(function, Mapping) and isinstance(text := function.get(name), str):
                self._keep(call[name], text)

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        function = {"name": "".join(call["name"]), "arguments": "".join(call["arguments"])}
        return {"id": call["id"], "function": function}

    def _keep(self, where: list[str], text: str) -> None:
        self._grow(len(text))
        where.append(text)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise Malformed(f"The streamed answer is larger than {self._limit:,} characters.")
