"""Simulated services, one for each dialect of chat completions, which refuse what the real one refuses.

They are written from public references and reports (``budgets/llm/profiles.toml`` names them). Each is a real server on
a real socket: ``with DialectServer(DIALECTS["mistral"]) as server: server.base_url``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.llm_acts import ACTS
from tests.support.llm_call import Call
from tests.support.llm_server import ModelServer

Body = Mapping[str, Any]
Refusal = tuple[int, Any] | None


def openai_error(message: str, param: str | None = None, code: str | None = None) -> Refusal:
    return 400, {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def listed(message: str) -> Refusal:
    """Google's form."""
    return 400, [{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}]


def older(message: str) -> Refusal:
    """The form of vLLM and SGLang."""
    return 400, {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}


def turns(body: Body) -> list[Body]:
    """The assistant's messages that hold calls of tools."""
    return [one for one in body["messages"] if one["role"] == "assistant" and one.get("tool_calls")]


def nothing(_: Body) -> Refusal:
    return None


def reasoning_model(body: Body) -> Refusal:
    """GPT-5 and the o-series."""
    if "max_tokens" in body:
        said = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        return openai_error(f"Unsupported parameter: {said}", "max_tokens", "unsupported_parameter")
    for name in ("temperature", "top_p"):
        if body.get(name, 1) != 1:
            said = f"'{name}' does not support {body[name]} with this model. Only the default (1) value is supported."
            return openai_error(f"Unsupported value: {said}", name, "unsupported_value")
    return None


def opus(body: Body) -> Refusal:
    for name in ("temperature", "top_p", "top_k"):
        if name in body:
            return openai_error(f"`{name}` is deprecated for this model.", None, "invalid_request_error")
    return None


def gemini(body: Body) -> Refusal:
    refused = [name for name in ("seed", "frequency_penalty") if name in body]
    if refused:
        return listed(
            "\n".join(f'Invalid JSON payload received. Unknown name "{one}": Cannot find field.' for one in refused)
        )
    for turn in turns(body):
        if "thought_signature" not in json.dumps(turn["tool_calls"][0]):
            return listed("Function call is missing a thought_signature in functionCall parts.")
    return None


MISTRALS = {
    *("model", "messages", "temperature", "top_p", "max_tokens", "stream", "stop", "random_seed", "response_format"),
    *("tools", "tool_choice", "presence_penalty", "frequency_penalty", "n", "prediction", "parallel_tool_calls"),
    *("prompt_mode", "safe_prompt", "metadata"),
}


def mistral(body: Body) -> Refusal:
    extra = [["body", name] for name in body if name not in MISTRALS]
    for at, message in enumerate(body["messages"]):
        known = {"role", "content", "name", "tool_calls", "tool_call_id", "prefix"}
        extra += [["body", "messages", at, message["role"], name] for name in message if name not in known]
    if not extra:
        return None
    detail = [{"type": "extra_forbidden", "loc": loc, "msg": "Extra inputs are not permitted"} for loc in extra]
    message = {"detail": detail}
    return 422, {
        "object": "error", "message": message, "type": "invalid_request_error", "param": None, "code": None
    }  # fmt: skip


def thinking_back(body: Body) -> Refusal:
    """DeepSeek in its thinking mode."""
    if any("reasoning_content" not in turn for turn in turns(body)):
        said = "The reasoning_content in the thinking mode must be passed back to the API."
        return openai_error(said, None, "invalid_request_error")
    return None


def kimi(body: Body) -> Refusal:
    for name, only in (("temperature", 1), ("top_p", 0.95)):
        if body.get(name, only) != only:
            return openai_error(f"invalid {name}: only {only} is allowed for this model")
    for at, message in enumerate(body["messages"]):
        if message in turns(body) and "reasoning_content" not in message:
            said = "thinking is enabled but reasoning_content is missing in assistant tool call message at index"
            return openai_error(f"{said} {at}")
    return None


def xai(body: Body) -> Refusal:
    names = {"presence_penalty": "presencePenalty", "frequency_penalty": "frequencyPenalty", "stop": "stop"}
    for name, shown in names.items():
        if name in body:
            said = f"Model grok-4.5 does not support parameter {shown}."
            return 400, {"code": "Client specified an invalid argument", "error": said}
    return None


def groq(body: Body) -> Refusal:
    for name in ("logprobs", "top_logprobs", "logit_bias"):
        if name in body:
            return openai_error(f"property '{name}' is unsupported")
    for at, message in enumerate(body["messages"]):
        for name in ("reasoning_content", "reasoning_details", "reasoning", "annotations"):
            if name in message:
                said = f"[('messages.{at}' : property '{name}' is unsupported)]"
                return openai_error(f"'messages.{at}' : for 'role:assistant' the following must be satisfied{said}")
    return None


def gemma_template(body: Body) -> Refusal:
    """A chat template without a system role, as Gemma's and older ones of Mistral."""
    if any(message["role"] == "system" for message in body["messages"]):
        return older("System role not supported")
    return None


def alternating_template(body: Body) -> Refusal:
    if body["messages"][0]["role"] == "system":
        return older("Conversation roles must alternate user/assistant/user/assistant/...")
    return None


def lm_studio(body: Body) -> Refusal:
    if (body.get("response_format") or {}).get("type") == "json_object":
        return 400, {"error": "'response_format.type' must be 'json_schema' or 'text'"}
    if isinstance(body.get("tool_choice"), Mapping):
        return 400, {"error": "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"}
    return None


@dataclass(frozen=True)
class Dialect:
    """``address`` and ``model`` are those of the real service, for its profile. ``adds``: fields of its answers;
    ``signs``: fields of its calls of tools. ``key_header``: the only header in which it takes a key."""

    name: str
    address: str
    model: str
    refuses: Callable[[Body], Refusal] = nothing
    kind: str = "openai"
    adds: Mapping[str, Any] = field(default_factory=dict)
    signs: Mapping[str, Any] = field(default_factory=dict)
    key_header: str = "authorization"


SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
THOUGHT = {"reasoning_content": "The user wants a product."}
DIALECTS = {
    one.name: one
    for one in (
        Dialect("openai", "https://api.openai.com/v1", "gpt-4o-mini"),
        Dialect("openai-gpt-5", "https://api.openai.com/v1", "gpt-5-mini", reasoning_model),
        Dialect("openai-o", "https://api.openai.com/v1", "o4-mini", reasoning_model),
        Dialect(
            *(
                "azure",
                "https://acme.openai.azure.com/openai/deployments/gpt-5?api-version=2025-04-01-preview",
                "gpt-5",
            ),
            refuses=reasoning_model,
            key_header="api-key",
        ),
        Dialect("anthropic", "https://api.anthropic.com/v1", "claude-opus-4-7", opus),
        Dialect(
            *("gemini", "https://generativelanguage.googleapis.com/v1beta/openai", "gemini-3-pro-preview", gemini),
            signs=SIGNED,
        ),
        Dialect("mistral", "https://api.mistral.ai/v1", "mistral-large-latest", mistral),
        Dialect("deepseek", "https://api.deepseek.com", "deepseek-reasoner", thinking_back, adds=THOUGHT),
        Dialect("kimi", "https://api.moonshot.ai/v1", "kimi-k2.5", kimi, adds=THOUGHT),
        Dialect("xai", "https://api.x.ai/v1", "grok-4.5", xai, adds=THOUGHT),
        Dialect("groq", "https://api.groq.com/openai/v1", "openai/gpt-oss-120b", groq, adds={"reasoning": "Hm."}),
        Dialect("openrouter", "https://openrouter.ai/api/v1", "openai/gpt-5", kind="openrouter"),
        Dialect("together", "https://api.together.xyz/v1", "Qwen/Qwen3-32B"),
        Dialect("vllm", "http://127.0.0.1:8000/v1", "google/gemma-2-9b-it", gemma_template, kind="vllm"),
        Dialect("sglang", "http://127.0.0.1:30000/v1", "mistralai/Mistral-7B-Instruct-v0.1", alternating_template),
        Dialect("llama.cpp", "http://127.0.0.1:8080/v1", "qwen3-8b"),
        Dialect("ollama", "http://127.0.0.1:11434/v1", "llama3.2", kind="ollama"),
        Dialect("lm-studio", "http://127.0.0.1:1234/v1", "qwen2.5-7b-instruct", lm_studio),
    )
}


class DialectServer(ModelServer):
    """A service of one dialect. ``refused`` counts its refusals."""

    def __init__(self, dialect: Dialect, **settings: Any) -> None:
        self.dialect, self.refused = dialect, 0
        super().__init__(brain=Clerk(dialect), **settings)

    async def _answer(self, method: str, path: str, call: Call) -> None:
        if self.dialect.key_header != "authorization" and self.dialect.key_header not in call.headers:
            return await ACTS["status"](call, {"code": 401, "error": {"message": "Access denied: no api-key"}})
        if method == "POST" and path.endswith("/chat/completions") and call.read() is None:
            if (refusal := self.dialect.refuses(call.body)) is not None:
                self.refused += 1
                code, body = refusal
                return await ACTS["status"](call, {"code": code, "body": json.dumps(body).encode()})
            path = "/v1/chat/completions"
        await super()._answer(method, path, call)


@dataclass
class Clerk:
    """The model: it calls the first tool once where it has one, answers sums, and writes JSON where it should."""

    dialect: Dialect

    def __call__(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        return self.reply({"messages": messages})

    def reply(self, body: Body) -> dict[str, Any]:
        messages, tools = body["messages"], body.get("tools") or []
        message: dict[str, Any] = {"role": "assistant", "content": self._text(body), **self.dialect.adds}
        if tools and not any(one["role"] == "tool" for one in messages):
            name = tools[0]["function"]["name"]
            [argument, *_] = tools[0]["function"]["parameters"]["properties"]
            function = {"name": name, "arguments": json.dumps({argument: "17 * 25"})}
            call = {"id": "call_1", "type": "function", "function": function, **self.dialect.signs}
            message |= {"content": None, "tool_calls": [call]}
        return message

    def _text(self, body: Body) -> str:
        asked = next(one["content"] for one in reversed(body["messages"]) if one["role"] == "user")
        asked = asked if isinstance(asked, str) else asked[-1]["text"]
        if "response_format" in body or "JSON object" in asked:
            return '{"ready": true}'
        if found := re.findall(r"(\d+) ([+*]) (\d+)", asked):
            a, sign, b = found[-1]
            return f"Answer: {int(a) + int(b) if sign == '+' else int(a) * int(b)}"
        return "I am ready."
