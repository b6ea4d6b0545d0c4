"""Prompt messages of model calls, stored with the steps: of each call, only the messages that are new.

A step's ``state`` has ``prompt`` at the start of a conversation (all of its messages), or ``further`` later (messages
since the model's last answer, which the steps hold). The content of the last message is the step's observation and is
not stored twice. ``conversations_of`` restores the conversations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from budgets.llm.types import Completion, Message

PROMPT: Final = "prompt"
FURTHER: Final = "further"
SAME_VOICE: Final = "agent"  # how a step of an agent without roles is marked where it only thinks


@dataclass
class MessageDiff:
    """Compares the messages of each call with those of the call before, role by role."""

    _known: dict[str, tuple[list[Message], Message]] = field(default_factory=dict)  # and what was answered to them
    _note: tuple[str, list[dict[str, Any]]] | None = None

    def answered(self, messages: Sequence[Message], answer: Completion, role: str = "") -> None:
        """Called with each usable answer, right before its steps are recorded."""
        before = self._known.get(role)
        new = None if before is None else _since(*before, messages)
        self._note = (PROMPT, _as_dicts(messages)) if new is None else (FURTHER, _as_dicts(new))
        self._known[role] = list(messages), Message("assistant", answer.text, tool_calls=answer.tool_calls)

    def noted(self, seen: str) -> dict[str, Any]:
        """For the state of the first step that comes of the answer; nothing for further ones. ``seen``: its
        observation."""
        if self._note is None:
            return {}
        (name, messages), self._note = self._note, None
        if messages and messages[-1]["content"] == seen:
            messages[-1] = {key: value for key, value in messages[-1].items() if key != "content"}
        return {name: messages}


def _since(before: list[Message], answer: Message, messages: Sequence[Message]) -> Sequence[Message] | None:
    """The messages after the last answer; None where this is another conversation."""
    n = len(before)
    if len(messages) <= n + 1 or [*map(_key, messages[: n + 1])] != [*map(_key, [*before, answer])]:
        return None
    return messages[n + 1 :]


def _key(message: Message) -> tuple[Any, ...]:
    """Key of equality of two messages. Ids of calls are left out: some agents change them."""
    return message.role, message.content, [(call.name, dict(call.arguments)) for call in message.tool_calls]


def _as_dicts(messages: Sequence[Message]) -> list[dict[str, Any]]:
    found = []
    for message in messages:
        plain: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            plain["tool_calls"] = [
                {"name": call.name, "arguments": dict(call.arguments)} for call in message.tool_calls
            ]
        if message.name:
            plain["name"] = message.name
        found.append(plain)
    return found


# -- read back --------------------------------------------------------------------------------------------------------


def conversations_of(steps: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """Conversations of a stored rollout, each a list of chat messages that ends with an answer of the model. An agent
    with several roles has several. Empty where the steps hold no prompts: the agent chose actions, the record was
    imported, or an earlier release made it.

    A call of a tool is ``{"type": "function", "function": {"name", "arguments"}}``, its result a message of the role
    "tool" with the tool's ``name``.
    """
    found: list[list[dict[str, Any]]] = []
    open_: dict[str, list[dict[str, Any]]] = {}
    for step in steps:
        state, action = step.get("state") or {}, step.get("action") or {}
        role = str(action.get("role") or "")
        role = "" if role == SAME_VOICE else role
        if PROMPT in state:
            open_[role] = []
            found.append(open_[role])
        talk = open_.get(role)
        if talk is None:
            continue
        calls = PROMPT in state or FURTHER in state
        if calls:
            stored = state[PROMPT] if PROMPT in state else state[FURTHER]
            talk += _messages(stored, str(state.get("observation") or ""), talk)
        if calls:
            talk.append(_said(step))
        elif action.get("type") == "tool" and talk and talk[-1].get("tool_calls"):
            talk[-1]["tool_calls"].append(_call(action.get("tool"), action.get("parameters")))
    return [whole for one in found if (whole := _ending(one))]


def _messages(
    stored: Sequence[Mapping[str, Any]], observation: str, talk: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Stored messages as chat messages; results of tools get the names of the calls before them, in order."""
    names = [call["function"]["name"] for call in talk[-1].get("tool_calls", ())] if talk else []
    messages: list[dict[str, Any]] = []
    for one in stored:
        message: dict[str, Any] = {"role": one["role"], "content": one.get("content", observation)}
        if one.get("tool_calls"):
            message["tool_calls"] = [_call(call["name"], call["arguments"]) for call in one["tool_calls"]]
            names = [call["name"] for call in one["tool_calls"]]
        if one["role"] == "tool":
            message["name"] = one.get("name") or (names.pop(0) if names else "")
        messages.append(message)
    return messages


def _said(step: Mapping[str, Any]) -> dict[str, Any]:
    """The model's message that a step came of."""
    action, result = step["action"], step.get("result") or {}
    parameters = action.get("parameters") or {}
    if action["type"] == "tool":
        several = parameters.get("calls") if action.get("tool") == "several" else None
        called = several or [{"tool": action.get("tool"), "parameters": parameters}]
        calls = [_call(call["tool"], call["parameters"]) for call in called]
        return {"role": "assistant", "content": action.get("text", ""), "tool_calls": calls}
    text = action.get("text") or parameters.get("text") or (result.get("output") if "text" not in parameters else "")
    return {"role": "assistant", "content": str(text or "")}


def _call(name: Any, arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": str(name or ""), "arguments": dict(arguments or {})}}


def _ending(talk: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation up to the model's last message: later messages teach nothing."""
    last = max((n for n, one in enumerate(talk) if one["role"] == "assistant"), default=-1)
    return talk[: last + 1]
