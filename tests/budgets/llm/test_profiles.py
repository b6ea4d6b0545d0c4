"""Profiles of services: facts as data, whose options fit requests to the services that they describe."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from budgets.llm.profiles import profile_options, profiles, profiles_of, table
from budgets.llm.request import encode
from budgets.llm.types import Endpoint, Message, ToolSpec
from tests.support.dialects import DIALECTS

TALK = (Message("system", "Be brief."), Message("user", "Hi"))
OPTIONS: dict[str, Any] = {
    "temperature": 0.7,
    "seed": 1,
    "tools": [ToolSpec("add")],
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", DIALECTS)
def test_a_profile_makes_the_service_take_what_a_job_sends(name: str, stream: bool) -> None:
    dialect = DIALECTS[name]
    options = profile_options(dialect.address, dialect.model, dialect.kind)
    fitted = Endpoint(dialect.address, dialect.model, kind=dialect.kind, **options)  # type: ignore[arg-type]
    body = json.loads(encode(fitted, TALK, max_tokens=9, stream=stream, **OPTIONS).body)
    assert dialect.refuses(body) is None
    plain = Endpoint(dialect.address, dialect.model, kind=dialect.kind)  # type: ignore[arg-type]
    unfitted = json.loads(encode(plain, TALK, max_tokens=9, stream=stream, **OPTIONS).body)
    refuses = {"openai-gpt-5", "openai-o", "azure", "anthropic", "gemini", "mistral", "kimi", "vllm", "sglang"}
    assert (dialect.refuses(unfitted) is not None) == (name in refuses)


@pytest.mark.parametrize(
    ("address", "model", "kind", "names"),
    [
        ("https://api.openai.com/v1", "gpt-5-chat-latest", "openai", []),
        ("https://api.openai.com/v1", "gpt-4o", "openai", []),
        ("https://API.openai.com:443/v1", "GPT-5-mini", "openai", ["OpenAI: GPT-5 and the o-series"]),
        ("https://api.openai.com.evil.example/v1", "gpt-5", "openai", []),
        ("https://evil.example/api.openai.com", "gpt-5", "openai", []),
        ("http://10.0.0.3:30000/v1", "qwen", "openai", ["SGLang"]),
        ("http://gpu/v1", "qwen", "vllm", ["vLLM"]),
    ],
)
def test_a_profile_is_found_by_address_and_model(address: str, model: str, kind: str, names: list[str]) -> None:
    assert [one.name for one in profiles_of(address, model, kind)] == names


def test_each_fact_has_a_source_and_each_option_is_one_of_an_endpoint() -> None:
    day, found = profiles()
    assert date(2026, 11, 1) <= day
    for one in found:
        assert one.sources and all(source.startswith("https://") for source in one.sources), one.name
        assert Endpoint("https://a.example/v1", "m", **one.options)
    assert len({one.name for one in found}) == len(found)


def test_the_documentation_shows_the_profiles_as_they_are() -> None:
    """Write ``budgets.llm.profiles.table()`` between the marks after a change of the facts."""
    page = Path("docs/endpoints.md").read_text()
    assert table() == page.partition("<!-- profiles -->")[2].partition("<!-- end of profiles -->")[0].strip()
