"""A completion as OpenAI's Responses API writes it: whole, or as the events of a stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from budgets.llm.opaque import opaque_shown
from budgets.llm.types import Completion, ToolCall
from experiences.rollouts.runtimes.chat_answer import arguments_of
from experiences.rollouts.runtimes.responses_body import ResponsesBody, sealed
from experiences.rollouts.runtimes.responses_tools import ToolName, input_of, input_until, names_of, tools_in

CUT: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
GIVEN: Final = {"function_call": "arguments", "custom_tool_call": "input"}  # what a call of each kind holds
GROWS: Final = {"function_call": "function_call_arguments", "custom_tool_call": "custom_tool_call_input"}


def response_begun(asked: ResponsesBody, model: str) -> dict[str, Any]:
    """A response of which nothing is there yet, beside what was asked for."""
    given = asked.model_dump(mode="json", include={"text", "tool_choice", "tools"}, exclude_none=True)
    return {
        "id": f"resp_{secrets.token_hex(16)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "model": model,
        "output": [],
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "previous_response_id": asked.previous_response_id,
        "store": asked.store is not False,
        "temperature": asked.temperature,
        "text": given.get("text") or {"format": {"type": "text"}},
        "tool_choice": given.get("tool_choice", "auto"),
        "tools": given.get("tools", []),
        "truncation": "disabled",
        "usage": None,
        "metadata": {},
    }


def response_json(begun: dict[str, Any], completion: Completion) -> dict[str, Any]:
    """The answer in one piece."""
    cut, usage = CUT.get(completion.finish_reason), completion.usage
    state, names = "incomplete" if cut else "completed", names_of(tools_in(begun))
    return begun | {
        "status": state,
        "incomplete_details": {"reason": cut} if cut else None,
        "model": completion.model,
        "output": [
            *_thoughts(completion),
            *_message(completion.text, state),
            *(_call(call, names) for call in completion.tool_calls),
        ],
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.total_tokens,
        },
    }


@dataclass
class _CallUnderWay:
    """A call of which pieces came. Its item begins with its arguments, when its name is whole."""

    id: str = ""
    name: str = ""
    arguments: str = ""
    read: int = 0  # the length of the arguments when they were last looked at
    item: dict[str, Any] | None = None


class ResponseStream:
    """The events of a streamed response, numbered: its text and the arguments of its calls as they come, then the end.
    Its items are in the order in which they began."""

    def __init__(self, begun: dict[str, Any]) -> None:
        self._begun, self._number = begun, 0
        self._items: list[dict[str, Any]] = []  # under way
        self._message: dict[str, Any] | None = None
        self._calls: dict[int, _CallUnderWay] = {}  # by their number in the model's answer
        self._names = names_of(tools_in(begun))

    def begin(self) -> Iterator[dict[str, Any]]:
        yield self._event("created", response=self._begun)
        yield self._event("in_progress", response=self._begun)

    def piece(self, text: str) -> Iterator[dict[str, Any]]:
        if self._message is None:
            (self._message,) = _message("", "in_progress", empty=True)
            yield self._added(self._message, self._message | {"content": []})
            yield self._part("content_part.added", part=self._message["content"][0])
        yield self._part("output_text.delta", delta=text, logprobs=[])

    def called(self, number: int, arguments: str, *, call_id: str = "", name: str = "") -> Iterator[dict[str, Any]]:
        """A piece of a call: of its name, its arguments, or both."""
        call = self._calls.setdefault(number, _CallUnderWay())
        call.id, call.name, call.arguments = call.id or call_id, call.name + name, call.arguments + arguments
        if not call.name or not call.arguments:
            return
        if call.item is None:
            yield self._begun_call(call, _call(ToolCall(call.id, call.name), self._names))
        assert call.item is not None
        if call.item["type"] == "function_call":
            yield from self._grown(call.item, call.arguments)
        elif len(call.arguments) - call.read > call.read // 16:  # each look reads the whole again
            call.read = len(call.arguments)
            yield from self._grown(call.item, input_until(call.arguments))

    def end(self, whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """``whole`` is the response; its items get the names and places that they had from the beginning."""
        numbers = iter(sorted(self._calls))
        for item in whole["output"]:
            if item["type"] == "reasoning":
                yield self._added(item)
            elif item["type"] == "message":
                if self._message is None:  # a model that sends its whole answer at once
                    yield from self.piece(item["content"][0]["text"])
                assert self._message is not None
                self._message.update(item | {"id": self._message["id"]})
            else:
                number = next(numbers, None)
                call = self._calls[number] if number is not None else _CallUnderWay()
                if call.item is None:
                    yield self._begun_call(call, item)
                assert call.item is not None
                yield from self._grown(call.item, item[GIVEN[item["type"]]])
                call.item |= {name: one for name, one in item.items() if name not in ("id", "call_id")}
        whole["output"] = self._items
        for item in self._items:
            if item is self._message:
                (part,) = item["content"]
                yield self._part("output_text.done", text=part["text"], logprobs=[])
                yield self._part("content_part.done", part=part)
            elif item["type"] in GIVEN:
                held = {GIVEN[item["type"]]: item[GIVEN[item["type"]]]}
                named = {"name": item["name"]} if item["type"] == "function_call" else {}
                yield self._event(f"{GROWS[item['type']]}.done", **self._place(item), **held, **named)
            yield self._event("output_item.done", output_index=self._place(item)["output_index"], item=item)
        yield self._event(whole["status"], response=whole)

    def failed(self, error: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of a failure after the beginning; ``error`` is OpenAI's error body. The error event is merged with
        it, because clients read one or the other; some read the failed response only."""
        said = error["error"]
        named = {"code": said["code"], "message": said["message"]}
        number, self._number = self._number, self._number + 1
        yield {"type": "error", **named, "param": said["param"], **error, "sequence_number": number}
        yield self._event("failed", response=self._begun | {"status": "failed", "error": named, "output": self._items})

    def _added(self, item: dict[str, Any], shown: dict[str, Any] | None = None) -> dict[str, Any]:
        self._items.append(item)
        return self._event("output_item.added", output_index=len(self._items) - 1, item=shown or dict(item))

    def _begun_call(self, call: _CallUnderWay, item: dict[str, Any]) -> dict[str, Any]:
        call.item = item | {GIVEN[item["type"]]: "", "status": "in_progress"}
        return self._added(call.item)

    def _grown(self, item: dict[str, Any], given: str) -> Iterator[dict[str, Any]]:
        """The event of what ``given`` has beyond what was sent of a call."""
        field = GIVEN[item["type"]]
        if len(given) > len(item[field]) and given.startswith(item[field]):
            added = given[len(item[field]) :]
            item[field] = given
            yield self._event(f"{GROWS[item['type']]}.delta", **self._place(item), delta=added)

    def _place(self, item: dict[str, Any]) -> dict[str, Any]:
        index = next(at for at, one in enumerate(self._items) if one is item)
        return {"output_index": index, "item_id": item["id"]}

    def _part(self, kind: str, **values: Any) -> dict[str, Any]:
        """An event of the only part of the message under way."""
        assert self._message is not None
        return self._event(kind, **self._place(self._message), content_index=0, **values)

    def _event(self, kind: str, **values: Any) -> dict[str, Any]:
        number, self._number = self._number, self._number + 1
        return {"type": f"response.{kind}", **values, "sequence_number": number}


def _thoughts(completion: Completion) -> list[dict[str, Any]]:
    """An item with the fields that the model's service wants back, where it gave any. A caller that sends its output
    with the next input, as the API's own clients do, brings them back."""
    opaque = opaque_shown(completion.opaque)
    if not opaque:
        return []
    summary = [{"type": "summary_text", "text": completion.reasoning}] if completion.reasoning else []
    return [{"id": _id("rs"), "type": "reasoning", "summary": summary, "encrypted_content": sealed(opaque)}]


def _message(text: str, state: str, *, empty: bool = False) -> list[dict[str, Any]]:
    if not text and not empty:
        return []
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return [
        {"id": _id("msg"), "type": "message", "role": "assistant", "status": state, "content": [part]},
    ]


def _call(call: ToolCall, names: Mapping[str, ToolName]) -> dict[str, Any]:
    name = names.get(call.name, ToolName("function", call.name))
    custom = name.type == "custom"
    return {
        "id": _id("ctc" if custom else "fc"),
        "type": "custom_tool_call" if custom else "function_call",
        "call_id": call.id or _id("call"),
        "name": name.name,
        **({"namespace": name.namespace} if name.namespace else {}),
        **({"input": input_of(call)} if custom else {"arguments": arguments_of(call)}),
        "status": "completed",
        **call.opaque,
    }


def _id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"
