"""Answers that are no chat completion of OpenAI's form: one within an object of a proxy, and those of other APIs.

Which API an answer is of is read from its fields. The base address that a service has for chat completions is from its
public reference (``budgets/llm/profiles.toml`` has the sources).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

# Fields in which proxies and functions in a cloud put the answer of the service behind them.
WRAPPERS: Final = ("data", "result", "response", "output", "body", "completion", "payload")
BESIDE: Final = ("id", "model", "usage")  # of the answer, where a proxy writes them outside
DEEPEST: Final = 4
PAGE: Final = (
    "The answer is no JSON but a web page, of a console or a sign-in perhaps. Correct the base URL: the address of"
    " chat completions, without /chat/completions at its end."
)
Fields = Mapping[str, Any]


def unwrapped(value: Any) -> Any:
    """The one chat completion, or chunk of one, within an object or a list of one; any other value as it is."""
    if isinstance(value, Mapping) and "choices" in value:
        return value
    found = _within(value, 0)
    return value if found is None else found


def _within(value: Any, depth: int) -> Fields | None:
    if depth > DEEPEST:
        return None
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return None
    if isinstance(value, list):
        return _within(value[0], depth + 1) if len(value) == 1 else None
    if not isinstance(value, Mapping):
        return None
    if isinstance(value.get("choices"), list):
        return value
    inner = [found for name in WRAPPERS if (found := _within(value.get(name), depth + 1)) is not None]
    if len(inner) != 1 or value.get("error"):
        return None
    return {**{name: value[name] for name in BESIDE if value.get(name) is not None}, **inner[0]}


def _anthropic(value: Fields) -> bool:
    kinds = ("message_start", "content_block_start", "content_block_delta", "message_delta")
    whole = value.get("type") == "message" and isinstance(value.get("content"), list)
    return whole or (value.get("type") in kinds and ("delta" in value or "message" in value or "index" in value))


def _gemini(value: Fields) -> bool:
    blocked = isinstance(value.get("promptFeedback"), Mapping)
    return isinstance(value.get("candidates"), list) or blocked


def _ollama(value: Fields) -> bool:
    return isinstance(value.get("done"), bool) and (
        isinstance(value.get("message"), Mapping) or isinstance(value.get("response"), str)
    )


def _responses(value: Fields) -> bool:
    whole = value.get("object") == "response" and isinstance(value.get("output"), list)
    return whole or str(value.get("type")).startswith("response.")


def _cohere(value: Fields) -> bool:
    message = value.get("message")
    whole = isinstance(message, Mapping) and isinstance(message.get("content"), list) and "finish_reason" in value
    older = isinstance(value.get("text"), str) and "generation_id" in value
    stream = value.get("type") in ("message-start", "content-start", "content-delta") or "event_type" in value
    return whole or older or stream


def _bedrock(value: Fields) -> bool:
    output = value.get("output")
    return isinstance(output, Mapping) and isinstance(output.get("message"), Mapping) and "stopReason" in value


def _dashscope(value: Fields) -> bool:
    output = value.get("output")
    return isinstance(output, Mapping) and isinstance(output.get("text"), str) and "request_id" in value


def _generation(value: Fields) -> bool:
    return isinstance(value.get("generated_text"), str) or isinstance(value.get("token"), Mapping)


def _llama(value: Fields) -> bool:
    native = "generation_settings" in value or "tokens_predicted" in value or "id_slot" in value
    return isinstance(value.get("content"), str) and native


def _cloudflare(value: Fields) -> bool:
    result = value.get("result")
    return isinstance(result, Mapping) and isinstance(result.get("response"), str) and "success" in value


def _list(value: Fields) -> bool:
    return value.get("object") == "list" and isinstance(value.get("data"), list)


# An API, how its answers are known, and what to enter.
FORMS: Final[tuple[tuple[str, Callable[[Fields], bool], str], ...]] = (
    ("Anthropic's Messages", _anthropic, "https://api.anthropic.com/v1, which has chat completions too"),
    ("Gemini's own API", _gemini, "https://generativelanguage.googleapis.com/v1beta/openai"),
    ("Ollama's own API", _ollama, "the server's address with /v1, such as http://127.0.0.1:11434/v1"),
    ("OpenAI's Responses", _responses, "the part before /responses, such as https://api.openai.com/v1"),
    ("Cohere's own API", _cohere, "https://api.cohere.ai/compatibility/v1"),
    ("Bedrock's Converse", _bedrock, "https://bedrock-runtime.<region>.amazonaws.com/openai/v1"),
    ("DashScope's own API", _dashscope, "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"),
    ("text-generation-inference's own API", _generation, "the server's address with /v1"),
    ("llama.cpp's own API", _llama, "the server's address with /v1, such as http://127.0.0.1:8080/v1"),
    (
        "Workers AI's own API",
        _cloudflare,
        "https://api.cloudflare.com/client/v4/accounts/<account>/ai/v1",
    ),
    ("a list of models or embeddings", _list, "the part before /models or /embeddings, which ends with /v1"),
)


def other_api(value: Any) -> str:
    """The API that an answer without choices is of, and the base URL to enter, as sentences; "" where none is known."""
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, Mapping):
        return ""
    found = next(((name, base) for name, fits, base in FORMS if fits(value)), None)
    if found is None:
        return ""
    name, base = found
    return f"The address answers in the form of {name}, not of chat completions. Enter as its base URL: {base}."
