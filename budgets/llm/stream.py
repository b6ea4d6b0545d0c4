"""Streamed answers: chunks into the one value that an unstreamed answer would have been.

Memory is bounded by the size limit of an answer: what is kept are the texts, and no event may be longer than that.
Time is bounded by the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from budgets.llm.content import content_in
from budgets.llm.errors import Malformed
from budgets.llm.events import Event
from budgets.llm.finish import NAMES, breaks_off, ends, finish_of, reason_in
from budgets.llm.halves import Halves, all_paired, clean
from budgets.llm.opaque import merge, opaque_of_message, weight
from budgets.llm.other_forms import other_api, unwrapped
from budgets.llm.streamed_calls import CallPiece, StreamedCalls
from budgets.llm.usage import kind, merged_usage, usage_in
from budgets.llm.wire import DONE, dumped_json, error_beside, error_in, load_halves

THOUGHTS: Final = ("reasoning_content", "reasoning")


class StreamDelta(NamedTuple):
    """The addition of an event. ``data`` is the event in OpenAI's form, which it mostly has already."""

    data: str
    text: str = ""
    calls: tuple[CallPiece, ...] = ()


class Assembly:
    """Adds up the chunks of a stream. ``ended``: a known reason to finish or [DONE] was seen, so that nothing was cut
    off."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = self._size_then = 0
        self._content: list[str] = []
        self._parts: dict[str, Any] = {}  # ``content`` as a list, where it is more than text
        self._thoughts: dict[str, list[str]] = {}  # by their field
        self._opaque: dict[str, Any] = {}
        self._calls = StreamedCalls(self._grow)
        self._halves, self._thought_halves = Halves(), Halves()
        self._finish: object = None
        self._index: object = None  # of the first choice
        self._head: dict[str, Any] = {}
        self._done = self._begun = self._in_messages = False
        self.started = False

    @property
    def ended(self) -> bool:
        return self._done or ends(self._finish)

    @property
    def size(self) -> int:
        """Characters that the model wrote so far."""
        return self._size

    @property
    def usage(self) -> object:
        return self._head.get("usage")

    @property
    def usage_is_late(self) -> bool:
        """Whether the model wrote more after the last report of its usage."""
        return self._size > self._size_then

    def add(self, event: Event | str) -> list[StreamDelta]:
        """Takes one event and returns what it added: one delta, or several where it holds several chunks.

        Raises:
            Malformed: it is no chunk, or it says what went wrong.
        """
        data, name = event if isinstance(event, Event) else (event, "")
        stripped = data.strip()
        while stripped.startswith("data:"):  # a proxy that writes the field's name twice
            data = stripped = stripped.removeprefix("data:").strip()
        if stripped in (DONE, f'"{DONE}"'):
            return self._closed()
        if not stripped or stripped[0] == ":" or (stripped == "null" and name != "error"):  # heartbeats, as events
            return []
        strict = True  # JSON as it is written, so that it can be passed on
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            strict = False
            try:
                chunk = load_halves(data)
            except Malformed:
                if name == "error" or (self._begun and stripped[0] not in '{["'):  # words of a proxy
                    raise error_in(stripped) from None
                lines = [line for line in data.split("\n") if line.strip()]
                if len(lines) < 2:
                    raise
                return [delta for line in lines for delta in self.add(Event(line, name))]
        found = self._chunk(chunk, data, name, strict)
        return [found, *self._closed()] if stripped.endswith(DONE) else [found]

    def value(self) -> dict[str, Any]:
        """The same answer as if it had not been streamed; ``choices`` is empty where no chunk had one."""
        thoughts = {name: "".join(pieces) for name, pieces in self._thoughts.items()}
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._content), **thoughts, **self._opaque}
        if self._parts:
            message["content"] = self._parts["content"]
        if self._calls:
            message["tool_calls"] = self._calls.value()
        choices = [{"index": 0, "message": message, "finish_reason": self._finish}] if self._begun else []
        try:
            found: dict[str, Any] = all_paired({**self._head, "choices": choices})
        except RecursionError:
            raise Malformed("The answer is nested too deeply.") from None
        return found

    def _closed(self) -> list[StreamDelta]:
        """[DONE], after what waited for it."""
        self._done = True
        text, calls = self._halves.rest(), self._calls.released()
        if not (text or calls):
            return [StreamDelta(DONE)]
        return [StreamDelta(self._written({}, {}, text, calls, {}), text, tuple(calls)), StreamDelta(DONE)]

    def _chunk(self, chunk: object, data: str, name: str, strict: bool) -> StreamDelta:
        if (inner := unwrapped(chunk)) is not chunk:
            chunk, data = inner, dumped_json(inner).decode()
        elif isinstance(chunk, list) and len(chunk) == 1:
            chunk = chunk[0]  # Google's errors
        if not isinstance(chunk, Mapping):
            if name == "error":
                raise error_in(chunk)
            raise Malformed(f"A chunk of the stream is {kind(chunk)}.", broken=True)
        self.started = True
        for field in ("id", "model"):
            if chunk.get(field) is not None:
                self._head[field] = chunk[field]
        choices = chunk.get("choices")
        usage = usage_in(chunk)
        if usage is not None:
            self._head["usage"] = merged_usage(self._head.get("usage"), usage)
        if (error := error_beside(chunk, name, begun=self._begun)) is not None:
            raise error
        if choices is None and not self._begun and (why := other_api(chunk)):
            raise Malformed(why, other=True)
        if choices is not None and not isinstance(choices, list):
            raise Malformed(f"choices of a chunk is {kind(choices)}.")
        found = StreamDelta(data)
        for choice in choices or ():
            if not isinstance(choice, Mapping):
                raise Malformed(f"A choice of a chunk is {kind(choice)}.")
            index = choice.get("index")
            self._index = index if self._index is None else self._index  # one choice is asked for: some count from 1
            if index in (0, None, self._index):
                found = self._choice(chunk, choice, data, strict)
        if usage is not None:
            self._size_then = self._size
        return found

    def _choice(self, chunk: Mapping[str, Any], choice: Mapping[str, Any], data: str, strict: bool) -> StreamDelta:
        if choice.get("error"):
            raise error_in(choice["error"])
        delta, standard = self._delta_in(choice)
        given, reason = delta.get("content"), reason_in(choice)
        content = content_in(given, whole=False)
        if content is None:
            raise Malformed(f"content of a delta is {kind(given)}.")
        if content.apart or self._parts:
            self._part(given, counted=not content.notes)
        text = self._halves.join(content.text)
        self._keep(self._content, content.text)
        shown = self._thought(delta, content.reasoning)
        opaque = {name: value for name, value in opaque_of_message(delta).items() if name not in self._thoughts}
        if opaque:
            self._grow(weight(opaque))
            merge(self._opaque, opaque)
        pieces, as_given = self._calls.add(_calls_in(delta))
        self._finished(reason)
        if ends(reason):
            text += self._halves.rest()
            released = self._calls.released()
            as_given = as_given and not released
            pieces += released
        standard = strict and standard and as_given and not shown and text == (given or "")
        self._begun = self._begun or bool(content.text or self._thoughts or opaque or pieces or reason is not None)
        if not standard or choice.get("index") not in (0, None) or choice.get("finish_reason") not in (None, *NAMES):
            data = self._written(chunk, choice, text, pieces, {**delta, **shown})
        return StreamDelta(data, text, tuple(pieces))

    def _thought(self, delta: Mapping[str, Any], within: str) -> dict[str, str]:
        """Keeps the thoughts of a chunk; ``within``: those among its content. Returns what changes in the chunk."""
        self._grow(len(within))
        found = {name: thought for name in THOUGHTS if isinstance(thought := delta.get(name), str)}
        for at, (name, thought) in enumerate(found.items()):
            self._grow(0 if at or within else len(thought))
            self._thoughts.setdefault(name, []).append(thought)
        if within:
            return {"reasoning_content": clean(within)}
        joined = self._thought_halves.join(next(iter(found.values()), ""))
        return {name: joined for name, thought in found.items() if thought != joined}

    def _finished(self, reason: object) -> None:
        """Raises Malformed: the service says that it failed."""
        if breaks_off(reason):
            raise Malformed("The service broke its answer off: {}", quoted=f"finish_reason is {reason}", broken=True)
        if reason is not None and (ends(reason) or not ends(self._finish)):
            self._finish = reason

    def _delta_in(self, choice: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
        """The addition of a choice, and whether it lies where OpenAI puts it."""
        delta = choice.get("delta")
        message, text = choice.get("message"), choice.get("text")
        if delta is None and isinstance(message, Mapping):  # a server that sends messages, or one whole message
            self._in_messages = self._in_messages or not self._begun
            again = ends(reason_in(choice)) and message.get("content") == "".join(self._content)
            return (message if self._in_messages and not (self._begun and again) else {}), False
        if delta is None and isinstance(text, str):
            return {"content": text}, False
        if delta is None:
            return {}, True
        if not isinstance(delta, Mapping):
            raise Malformed(f"delta is {kind(delta)}.")
        return delta, isinstance(delta.get("tool_calls"), list | None)

    def _written(
        self,
        chunk: Mapping[str, Any],
        choice: Mapping[str, Any],
        text: str,
        calls: list[CallPiece],
        delta: Mapping[str, Any],
    ) -> str:
        """A chunk in OpenAI's form. Raises Malformed: it is nested too deeply."""
        kept: dict[str, Any] = {name: value for name, value in delta.items() if name != "tool_calls"}
        if text or "content" in kept:
            kept["content"] = text
        if calls and "function_call" not in kept:
            kept["tool_calls"] = [piece.as_json() for piece in calls]
        reason = reason_in(choice)
        beside = {name: value for name, value in choice.items() if name not in ("index", "message", "text", "delta")}
        ended = finish_of(reason) if isinstance(reason, str) and ends(reason) else None
        written = {"index": 0, **beside, "delta": kept, "finish_reason": ended}
        head: dict[str, Any] = {name: one for name, one in self._head.items() if name != "usage"}
        return dumped_json({**head, "object": "chat.completion.chunk", **chunk, "choices": [written]}).decode()

    def _part(self, given: object, *, counted: bool) -> None:
        self._grow(0 if counted else weight(given))
        parts = given if isinstance(given, list) else [given]
        texts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts if part]
        if not self._parts and (before := "".join(self._content)):  # called before the part's text is kept
            self._parts = {"content": [{"type": "text", "text": before}]}
        if texts:
            merge(self._parts, {"content": texts})

    def _keep(self, where: list[str], text: str) -> None:
        if text:
            self._grow(len(text))
            where.append(text)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise Malformed(f"The streamed answer is larger than {self._limit:,} characters.")


def _calls_in(delta: Mapping[str, Any]) -> list[Any]:
    listed = delta.get("tool_calls")
    if isinstance(listed, Mapping):
        return [listed]
    if not isinstance(listed, list):
        older = delta.get("function_call")
        return [{"index": 0, "function": older}] if isinstance(older, Mapping) else []
    return listed
