"""A provider's lines against the ledger's: every difference has its reason."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from budgets.usage_files.comparison import (
    Comparison,
    LedgerUse,
    compared,
    difference_words,
    shared_names,
    stem,
    zone_of,
)
from budgets.usage_files.reading import UsageLine

DAY = date(2026, 11, 26)
NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)


def their(
    dollars: str | None = "1", prompt: int | None = 100, answer: int | None = 10, day: date = DAY, model: str = "small"
) -> UsageLine:
    return UsageLine(day, None, model, None if dollars is None else Decimal(dollars), prompt, answer)


def our(cost: int = 1_000_000, prompt: int = 100, answer: int = 10, **more: Any) -> LedgerUse:
    return LedgerUse(**({"at": NOON, "model": "small", "calls": 1} | more), cost_micros=cost, input_tokens=prompt,
                     output_tokens=answer)  # fmt: skip


def of(theirs: list[UsageLine], ours: list[LedgerUse], zone: str = "UTC") -> Comparison:
    return compared(theirs, ours, zone_of(zone))


@pytest.mark.parametrize(
    ("theirs", "ours", "verdict", "words"),
    [
        (their(), our(), "equal", ""),
        (their("1.009"), our(), "rounding", "both sides round"),
        (their("1.02"), our(calls=30_000), "rounding", "a micro-dollar a call"),
        (their("1.25"), our(), "price", "charged 1.25 times"),
        (their("0.5"), our(0), "price", "charged a price"),
        (their(prompt=160), our(), "tokens", "60 prompt tokens more"),
        (
            their(answer=8),
            our(estimated=2),
            "tokens",
            "2 answer tokens fewer. The service did not report the tokens of 2",
        ),
        (their("0.2", 20, 2), our(charged=1), "tokens", "1 call had no answer in time"),
        (their("1.25", None, None), our(), "cost", "no tokens of this line"),
        (their(None), our(), "equal", "no cost"),
        (their(None, 99, 10), our(), "tokens", "1 prompt tokens fewer"),
        (their(None, None, 10), our(), "equal", "no cost"),
    ],
)
def test_a_difference_has_its_reason(theirs: UsageLine, ours: LedgerUse, verdict: str, words: str) -> None:
    [line] = of([theirs], [ours]).lines
    assert (line.verdict, words in line.why) == (verdict, True), line.why


def test_what_one_side_has_alone_is_said_with_what_is_known() -> None:
    lines = of(
        [their(), their(day=DAY - timedelta(days=5), dollars="3", prompt=7)],
        [our(), our(model="other"), our(at=NOON - timedelta(days=2)), our(at=NOON - timedelta(days=9))],
    ).lines
    assert [(line.day.day, line.model, line.verdict) for line in lines] == [
        (21, "small", "theirs_only"),
        (24, "small", "ours_only"),
        (26, "other", "ours_only"),
        (26, "small", "equal"),
    ]
    assert "another program or key" in lines[0].why
    assert "nothing of this model on this day" in lines[1].why
    assert "does not name this model" in lines[2].why


def test_calls_around_midnight_are_a_matter_of_the_day_and_others_are_not() -> None:
    """The provider books a call of 23:59 on the next day."""
    days = [DAY, DAY + timedelta(days=1)]
    ours = [our(2_000_000, 200, 20), our(1_000_000, at=NOON + timedelta(days=1))]
    lines = of([their("1.5", 150, 15, days[0]), their("1.5", 150, 15, days[1])], ours).lines
    assert [line.verdict for line in lines] == ["other_day", "other_day"]
    assert "26 Nov to 27 Nov" in lines[0].why
    lines = of([their("1.5", 150, 15, days[0]), their("1.6", 160, 15, days[1])], ours).lines
    assert [line.verdict for line in lines] == ["tokens", "tokens"]
    apart = [their("1.5", 150, 15, days[0]), their("1.5", 150, 15, DAY + timedelta(days=2))]
    later = [ours[0], our(at=NOON + timedelta(days=2))]
    assert [line.verdict for line in of(apart, later).lines] == ["tokens", "tokens"]  # the days are not side by side


def test_a_file_in_another_time_zone_is_recognised_and_fits_in_that_zone() -> None:
    """A call each hour for some days, each of another size; the provider's days begin at 8:00 UTC."""
    ours = [our(1000 * n * n, n, n, at=NOON + timedelta(hours=n)) for n in range(150)]
    sums: dict[date, list[int]] = {}
    for use in ours:
        total = sums.setdefault((use.at - timedelta(hours=8)).date(), [0, 0])
        total[0] += use.cost_micros
        total[1] += use.input_tokens
    theirs = [their(str(Decimal(cost) / 10**6), count, count, day) for day, (cost, count) in sums.items()]
    utc = of(theirs, ours)
    assert utc.better_hours == -8 and len(utc.lines) > 5
    there = of(theirs, ours, "UTC-8")
    assert (there.better_hours, {line.verdict for line in there.lines}) == (None, {"equal"})
    assert {line.verdict for line in of(theirs, ours, "America/Los_Angeles").lines} == {"equal"}


def test_a_file_with_times_needs_no_time_zone() -> None:
    line = UsageLine(DAY, NOON, "small", Decimal(1), 100, 10)
    [found] = of([line], [our()], "Pacific/Kiritimati").lines
    assert (found.day, found.verdict) == (DAY + timedelta(days=1), "equal")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("gpt-4o-mini", "gpt-4o-mini-2024-07-18"),
        ("claude-sonnet-4-5", "claude sonnet 4.5"),
        ("claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4.5"),
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3-5-sonnet-20241022"),
        ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3.5-sonnet"),
        ("claude-3-haiku-20240307", "claude haiku 3"),
        ("claude-3-5-haiku-latest", "claude haiku 3.5"),
        ("claude-3-7-sonnet-20250219", "claude sonnet 3.7"),
        ("claude-3-5-sonnet-20241022", "claude 3.5 sonnet 2024-10-22"),
        ("claude-sonnet-4-0", "claude sonnet 4"),
        ("claude-opus-4-1-20250805", "claude opus 4.1"),
        ("gemini-2.5-flash", "google/gemini-2.5-flash:free"),
        ("mistral-small-latest", "mistral-small"),
    ],
)
def test_a_model_meets_its_other_names(ours: str, theirs: str) -> None:
    [line] = of([their(model=theirs)], [our(model=ours)]).lines
    assert (line.model, line.verdict) == (stem(ours), "equal")


def test_two_versions_stay_apart_where_both_sides_name_both() -> None:
    both = ["gpt-4o-2024-05-13", "gpt-4o-2024-08-06"]
    assert shared_names(both, both) == dict(zip(both, both, strict=True))
    assert shared_names(["gpt-4o"], both) == dict.fromkeys([*both, "gpt-4o"], "gpt-4o")
    assert stem("ft:gpt-4o-mini-2024-07-18:org::id") == "ft:gpt-4o-mini-2024-07-18:org::id"


def test_a_file_without_models_is_compared_by_day() -> None:
    [line] = of([their("3", None, None, model="")], [our(), our(2_000_000, model="other")]).lines
    assert (line.model, line.verdict) == ("", "equal")


def test_the_sentence_says_whether_both_agree() -> None:
    assert difference_words(of([their()], [our()])) == "The ledger agrees with the file: $1.00 and $1.00."
    assert difference_words(of([their("1.25")], [our()])) == "1 line differs; the ledger has $0.25 less than the file."
    assert difference_words(of([their(None)], [our()])) == "All tokens agree."
    assert difference_words(of([their(None, 1)], [our()])) == "The tokens of 1 line differ."


@pytest.mark.parametrize("name", ["Mars", "../../etc/passwd", "UTC+99", "\x00", "Europe"])
def test_a_time_zone_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="Name a time zone"):
        zone_of(name)
