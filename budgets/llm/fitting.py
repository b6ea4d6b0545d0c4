"""Fits a request to its service: parameters that the service refuses are left out, and a service without a system role
gets the system's words from the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from budgets.llm.types import Endpoint

OF_MESSAGE: Final = "messages."  # begins the name of a field that no message is sent with
SYSTEM_ROLES: Final = ("system", "developer")
# The services that know the role "developer". To others the same is "system": they refuse the new name, or their
# template leaves out the message of a role that it does not know.
DEVELOPERS: Final = ("api.openai.com", ".openai.azure.com", "openrouter.ai")


def fitted(endpoint: Endpoint, fields: Mapping[str, Any]) -> dict[str, Any]:
    """``fields`` of a request without those that the endpoint leaves out."""
    return {name: value for name, value in fields.items() if name not in endpoint.leave_out}


def messages_fitted(endpoint: Endpoint, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages in roles and with fields that the endpoint takes; ``messages.<name>`` is left out of each."""
    refused = {name.removeprefix(OF_MESSAGE) for name in endpoint.leave_out if name.startswith(OF_MESSAGE)}
    if refused:
        messages = [{name: value for name, value in one.items() if name not in refused} for one in messages]
    if endpoint.system_as_user:
        return without_system(messages)
    if any(one.get("role") == "developer" for one in messages) and not any(
        host in endpoint.base_url for host in DEVELOPERS
    ):
        return [{**one, "role": "system"} if one.get("role") == "developer" else one for one in messages]
    return list(messages)


def without_system(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The words of each system message before those of the user's next message; a message of the user's own where none
    follows."""
    found: list[Mapping[str, Any]] = []
    waiting: list[Any] = []
    for message in messages:
        if message.get("role") in SYSTEM_ROLES:
            waiting.append(message.get("content"))
            continue
        if waiting and message.get("role") == "user":
            message, waiting = {**message, "content": _joined([*waiting, message.get("content")])}, []
        elif waiting:
            found.append({"role": "user", "content": _joined(waiting)})
            waiting = []
        found.append(message)
    return [*found, {"role": "user", "content": _joined(waiting)}] if waiting else found


def _joined(contents: Sequence[Any]) -> Any:
    """Contents one after another: a text, or a list of parts where one of them is a list."""
    there = [content for content in contents if content]
    if not any(isinstance(content, list) for content in there):
        return "\n\n".join(there)
    parts: list[Any] = []
    for content in there:
        parts += content if isinstance(content, list) else [{"type": "text", "text": content}]
    return parts
