"""Usage exports in the forms of their providers, by hand after their public descriptions."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from agentcore_site.lib.errors import Invalid, TooLarge
from budgets.usage_files.reading import MAX_BYTES, UsageLine, joined, read_usage

DAY = date(2026, 11, 26)
START = 1795651200  # 26 November 2026, 00:00 UTC

OPENAI_COSTS = f"""start_time,end_time,start_time_iso,end_time_iso,amount_value,amount_currency,line_item,project_id
{START},1795737600,2026-11-26T00:00:00+00:00,2026-11-27T00:00:00+00:00,0.0123,usd,"gpt-4o-mini-2024-07-18, input",p
{START},1795737600,2026-11-26T00:00:00+00:00,2026-11-27T00:00:00+00:00,0.0077,usd,"gpt-4o-mini-2024-07-18, output",p
1795737600,1795824000,2026-11-27T00:00:00+00:00,2026-11-28T00:00:00+00:00,,,,
"""
OPENAI_USAGE = (
    "start_time,end_time,start_time_iso,end_time_iso,project_id,num_model_requests,model,batch,service_tier,"
    "input_tokens,output_tokens,input_cached_tokens,input_uncached_tokens\n"
    f"{START},1795737600,2026-11-26T00:00:00+00:00,2026-11-27T00:00:00+00:00,p,3,gpt-4o-mini-2024-07-18,false,default,"
    "61500,5100,1000,60500\n"
)
ANTHROPIC_TOKENS = (
    "usage_date_utc,model_version,api_key,workspace,usage_type,context_window,usage_input_tokens_no_cache,"
    "usage_input_tokens_cache_write_5m,usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,"
    "usage_output_tokens,web_search_count\n"
    "2026-11-26,claude-sonnet-4-5-20250929,k,Default,standard,≤ 200k,1000,200,30,4000,50,0\n"
)
ANTHROPIC_COST = (
    "usage_date_utc,model,workspace,api_key,usage_type,context_window,token_type,cost_usd,list_price_usd,cost_type,"
    "inference_geo,speed,api_key_id,api_key_status\n"
    "2026-11-26,Claude Sonnet 4.5,Default,k,message,≤ 200k,input_no_cache,0.30,0.35,token,not_available,,a,active\n"
    "2026-11-26,Claude Sonnet 4.5,Default,k,message,≤ 200k,output,0.05,0.06,token,not_available,,a,active\n"
)
OPENROUTER = (
    "generation_id,created_at,cost_total,cost_web_search,cost_cache,tokens_prompt,tokens_completion,"
    "tokens_reasoning,tokens_cached,model_permaslug,provider_name\n"
    "gen-1,2026-11-26 13:59:00.123,0.00125,0,0,900,40,0,0,openai/gpt-4o-mini,OpenAI\n"
)
PLAIN = "date,model,cost,input_tokens,output_tokens\n2026-11-26,Small,$0.02,61500,5100\nTotal,,0.02,61500,5100\n"


def page(*results: dict[str, Any], **bucket: Any) -> bytes:
    return json.dumps({"data": [{**bucket, "results": list(results)}], "has_more": False}).encode()


OPENAI = {"start_time": START, "end_time": START + 86400}
ANTHROPIC = {"starting_at": "2026-11-26T00:00:00Z", "ending_at": "2026-11-27T00:00:00Z"}
COSTS_PAGE = page(
    {"object": "organization.costs.result", "amount": {"value": 0.06, "currency": "usd"}, "line_item": "gpt-4o, input"},
    **OPENAI,
)
USAGE_PAGE = page({"input_tokens": 1000, "output_tokens": 500, "num_model_requests": 5, "model": "gpt-4o"}, **OPENAI)
REPORT_PAGE = page(
    {
        "uncached_input_tokens": 1500,
        "cache_creation": {"ephemeral_1h_input_tokens": 1000, "ephemeral_5m_input_tokens": 500},
        "cache_read_input_tokens": 200,
        "output_tokens": 500,
        "model": "claude-opus-4-1",
    },
    **ANTHROPIC,
)
CENTS_PAGE = page({"currency": "USD", "amount": "123.45", "model": "claude-opus-4-1"}, **ANTHROPIC)
ACTIVITY = json.dumps(
    {"data": [{"date": "2026-11-26 00:00:00", "model": "openai/gpt-4.1", "usage": 0.015, "prompt_tokens": 50,
               "completion_tokens": 125, "reasoning_tokens": 25}]}
).encode()  # fmt: skip


@pytest.mark.parametrize(
    ("content", "model", "dollars", "prompt", "answer"),
    [
        (OPENAI_COSTS.encode(), "gpt-4o-mini-2024-07-18", "0.0200", None, None),
        (OPENAI_USAGE.encode(), "gpt-4o-mini-2024-07-18", None, 61500, 5100),
        (ANTHROPIC_TOKENS.encode(), "claude-sonnet-4-5-20250929", None, 5230, 50),
        (ANTHROPIC_COST.encode(), "claude sonnet 4.5", "0.35", None, None),
        (OPENROUTER.encode(), "openai/gpt-4o-mini", "0.00125", 900, 40),
        (PLAIN.encode(), "small", "0.02", 61500, 5100),
        (b"\xef\xbb\xbf" + PLAIN.replace(",", ";").encode(), "small", "0.02", 61500, 5100),
        (PLAIN.replace(",", "\t").replace("\n", "\r\n").encode(), "small", "0.02", 61500, 5100),
        (COSTS_PAGE, "gpt-4o", "0.06", None, None),
        (USAGE_PAGE, "gpt-4o", None, 1000, 500),
        (USAGE_PAGE + b"\n" + USAGE_PAGE.replace(b"1000", b"0").replace(b"500", b"0"), "gpt-4o", None, 1000, 500),
        (REPORT_PAGE, "claude-opus-4-1", None, 3200, 500),
        (CENTS_PAGE, "claude-opus-4-1", "1.2345", None, None),
        (ACTIVITY, "openai/gpt-4.1", "0.015", 50, 125),
    ],
)
def test_an_export_is_read_in_the_form_of_its_provider(
    content: bytes, model: str, dollars: str | None, prompt: int | None, answer: int | None
) -> None:
    lines = read_usage(content).lines
    assert {line.day for line in lines} == {DAY}
    assert {line.model for line in lines} == {model}

    def total(name: str) -> Any:
        known = [getattr(line, name) for line in lines if getattr(line, name) is not None]
        return sum(known) if known else None

    assert total("dollars") == (None if dollars is None else Decimal(dollars))
    assert (total("input_tokens"), total("output_tokens")) == (prompt, answer)


def test_a_line_with_a_time_keeps_its_moment_and_one_of_a_day_has_none() -> None:
    [line] = read_usage(OPENROUTER.encode()).lines
    assert line.at is not None and line.at.hour == 13
    assert read_usage(PLAIN.encode()).lines[0] == UsageLine(DAY, None, "small", Decimal("0.02"), 61500, 5100)


def test_sums_without_a_day_and_further_pages_are_said() -> None:
    assert read_usage(PLAIN.encode()).notes == ["1 line without a day left out, as sums of others."]
    assert "further pages" in read_usage(COSTS_PAGE.replace(b"false", b"true")).notes[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "Line 1 must name the columns"),
        (b"date,cost\n", "no line of usage"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"PK\x03\x04", "save it as CSV"),
        (b"only one column\nx\n", "Line 1 must name the columns"),
        (b"date,model\n2026-11-26,small\n", "No column has a cost or tokens"),
        (b"model,cost\nsmall,1\n", "No column has the day"),
        (b"date,model,cost\n2026-11-26,small,0.5,7\n", "Line 2 has more columns"),
        (b"date,model,cost\n26th,small,0.5\n", "Line 2: '26th' is no day"),
        (b"date,model,cost\n2026-11-26,small,cheap\n", "Line 2: cost is 'cheap'"),
        (b'date,model,cost\n2026-11-26,small,"0,5"\n', "Line 2: cost is '0,5'"),
        (b"date,model,cost\n2026-11-26,small,NaN\n", "Line 2: cost is 'NaN'"),
        (b"date,model,cost\n2026-11-26,small,1e99\n", "Line 2: cost is '1e99'"),
        (b"date,model,cost\n2026-11-26,small,\n", "No line of the file has a cost or tokens"),
        (b"date,model,cost,currency\n2026-11-26,small,1,EUR\n", "the amount is in 'EUR'"),
        (b"{", "Line 1 is not JSON"),
        (b"[" * 5000, "not JSON"),
        (b"[1]", "must be an object"),
        (b'{"data": [{"results": [1]}]}', "must be an object"),
        (b'{"data": [{"data": [{"data": [{"data": [{"data": [{"data": []}]}]}]}]}]}', "nested deeper"),
    ],
)
def test_a_file_that_can_not_be_read_is_refused_with_the_place(content: bytes, words: str) -> None:
    with pytest.raises(Invalid, match=words.replace("[", r"\[")):
        read_usage(content)


def test_a_file_is_bounded_in_bytes_values_and_days() -> None:
    with pytest.raises(TooLarge, match="at most 16 MB"):
        read_usage(b"x" * (MAX_BYTES + 1))
    with pytest.raises(TooLarge, match="values"):
        read_usage(b"[" + b"{}," * 3_000_000 + b"{}]")
    with pytest.raises(TooLarge, match="366 days"):
        read_usage(b"date,cost\n2025-01-01,1\n2026-11-26,1\n")


def test_costs_and_tokens_of_two_files_are_one_and_the_same_twice_is_refused() -> None:
    costs, tokens = read_usage(OPENAI_COSTS.encode()), read_usage(OPENAI_USAGE.encode())
    both = joined([costs, tokens])
    assert both.has_costs and both.has_tokens
    assert both.columns == {
        "day": "start_time_iso", "model": "model", "cost": "amount_value",
        "prompt tokens": "input_tokens", "answer tokens": "output_tokens",
    }  # fmt: skip
    with pytest.raises(Invalid, match="count twice"):
        joined([costs, costs])
