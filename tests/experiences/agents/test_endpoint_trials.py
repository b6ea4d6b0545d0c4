"""A test of an endpoint calls it as jobs do, and finds the options with which its service answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiences.agents.services.endpoint_trials import MOST_CHANGES
from tests.support.dialect_matrix import table, tried
from tests.support.dialects import DIALECTS, Dialect, DialectServer, older, openai_error
from tests.support.llm_acts import act

FOUND: dict[str, dict[str, Any]] = {
    "openai": {},
    "openai-gpt-5": {"max_tokens_field": "max_completion_tokens", "leave_out": ["temperature"]},
    "azure": {"max_tokens_field": "max_completion_tokens", "leave_out": ["temperature"]},
    "anthropic": {"leave_out": ["temperature"]},
    "mistral": {"leave_out": ["seed", "stream_options"]},
    "xai": {},
    "vllm": {"system_as_user": True},
    "sglang": {"system_as_user": True},
    "lm-studio": {},
    "ollama": {},
}


@pytest.mark.parametrize("name", FOUND)
async def test_a_test_finds_the_options_with_which_each_service_answers(name: str) -> None:
    with DialectServer(DIALECTS[name]) as server:
        trial = await tried(server)
        assert [part.name for part in trial.parts if part.ok] == ["chat", "tools", "json", "stream"], trial.parts
        assert trial.found == FOUND[name]
        assert trial.as_it_is is (not FOUND[name])
        sent, refused = len(server.requests) + server.refused, server.refused
        assert sent <= 5 + MOST_CHANGES and (refused > 0) == bool(FOUND[name])

        again = await tried(server, **trial.found)
        assert again.as_it_is and server.refused == refused
        with_tools = [call.body for call in server.requests if call.body.get("tools")]
        assert all({"model", "messages", "tools"} <= body.keys() for body in with_tools)


def refusing(refuses: Any) -> DialectServer:
    return DialectServer(Dialect("odd", "http://odd.example/v1", "small", refuses))


@pytest.mark.parametrize(
    ("refuses", "found"),
    [
        (lambda body: (400, None) if any(one["role"] == "system" for one in body["messages"]) else None,
         {"system_as_user": True}),
        (lambda body: openai_error("temperature can only be 1 for this model", "temperature", "unsupported_value")
         if "max_tokens" in body or body.get("temperature", 1) != 1 else None,
         {"leave_out": ["temperature"], "max_tokens_field": "max_completion_tokens"}),
        (lambda body: (422, None) if "seed" in body else None, {"leave_out": ["seed"]}),
        (lambda body: (422, {"detail": "nope"}) if "temperature" in body else None, {"leave_out": ["temperature"]}),
        (lambda body: older("Unsupported role: system") if body["messages"][0]["role"] == "system" else None,
         {"system_as_user": True}),
        (lambda body: openai_error("Unrecognized request argument: maxTokens") if "max_tokens" in body else None,
         {"max_tokens_field": "max_completion_tokens"}),
        (lambda body: openai_error("`temperature` and `seed` are bad") if body.keys() & {"temperature", "seed"} else
         None, {"leave_out": ["seed", "temperature"]}),
    ],
)  # fmt: skip
async def test_a_refusal_without_words_or_with_odd_ones_is_found_out(refuses: Any, found: dict[str, Any]) -> None:
    with refusing(refuses) as server:
        trial = await tried(server)
        assert trial.found == found and all(part.ok for part in trial.parts), trial.parts


@pytest.mark.parametrize(
    "body",
    [
        {"message": "filtered", "code": "content_filter"},
        {"message": "max_tokens is too large: 256. This model supports at most 100 completion tokens."},
        {"message": "The model is not available in your region today."},
    ],
)
async def test_a_refusal_that_no_option_mends_is_shown_and_not_tried_on(body: dict[str, Any]) -> None:
    with refusing(lambda _: (400, {"error": body})) as server:
        trial = await tried(server)
        assert [(part.ok, part.refused) for part in trial.parts] == [(False, True)]
        assert body["message"] in trial.parts[0].message
        assert not trial.found and server.refused == 1


async def test_a_service_that_refuses_everything_is_asked_a_few_times_only() -> None:
    with refusing(lambda _: (400, None)) as server:
        trial = await tried(server)
        assert not trial.parts[0].ok and server.refused <= 1 + MOST_CHANGES


async def test_a_call_of_a_tool_as_text_names_the_parser_that_is_missing() -> None:
    with DialectServer(DIALECTS["vllm"]) as server:
        text = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "17 * 25"}}\n</tool_call>'
        server.will(act("answer"), act("answer", message={"role": "assistant", "content": text}))
        trial = await tried(server, system_as_user=True)
        [tools] = [part for part in trial.parts if part.name == "tools"]
        assert not tools.ok and "--tool-call-parser" in tools.message


async def test_the_table_of_the_documentation_is_that_of_a_run() -> None:
    """Write ``tests.support.dialect_matrix.table()`` between the marks after a change of a dialect or a profile."""
    page = Path("docs/endpoints.md").read_text()
    assert await table() == page.partition("<!-- matrix -->")[2].partition("<!-- end of matrix -->")[0].strip()
