"""Numbers in words, and small pictures: what they say and that nothing slips through them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from django.template import Context, Template
from django.utils import timezone

from agentcore_site.console.svg import (
    ForestRow,
    HistoryPoint,
    bar_around_zero,
    dots,
    forest,
    history,
    level,
    sparkline,
)
from agentcore_site.templatetags import console, figures


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (figures.usd(12.4), "$12.40"),
        (figures.usd(1234.5), "$1,234.50"),
        (figures.usd(0.0042), "$0.0042"),
        (figures.usd(0.00001), "$0.00001"),
        (figures.usd(0.000_041_6), "$0.0000416"),
        (figures.money(3_120_000), "$3.12"),
        (figures.money(None), "–"),
        (figures.percent(0.842), "84.2 %"),
        (figures.percent(1, 0), "100 %"),
        (figures.points(0.182), "+18.2"),
        (figures.points(-0.05), "−5.0"),
        (figures.figure(0.12345), "0.123"),
        (figures.figure(1234.5), "1,234"),
        (figures.figure(85.0), "85"),
        (figures.figure(0), "0"),
        (figures.figure(float("nan")), "–"),
        (figures.signed(0.5), "+0.500"),
        (figures.signed(-0.5), "−0.500"),
        (figures.duration(0.25), "250 ms"),
        (figures.duration(75), "1 min 15 s"),
        (figures.duration(3600), "1 h"),
        (figures.duration(90_000), "1 d 1 h"),
        (figures.milliseconds(0.5), "0.5 ms"),
        (figures.milliseconds(0.003), "3 µs"),
        (figures.percent(-0.083), "−8.3 %"),
        (figures.usd(-1.5), "−$1.50"),
        (figures.day(date(2026, 11, 5)), "5 Nov 2026"),
        (figures.milliseconds(2500), "2.5 s"),
        (figures.p_value(0.0002), "<\u00a0.001"),
        (figures.p_value(0.034), ".034"),
        (figures.change(-2.25, "ms"), "−2.2 ms"),
        (figures.change(0.182, "rate"), "+18.2"),
        (console.shown(True), "on"),
        (console.shown(None), "off"),
        (console.shown(0.03), "0.03"),
    ],
)
def test_numbers_are_written_for_people(written: str, expected: str) -> None:
    assert written == expected


@pytest.mark.parametrize(
    ("back", "expected"),
    [
        (timedelta(seconds=3), "just now"),
        (timedelta(seconds=42), "42 s ago"),
        (timedelta(minutes=3, seconds=20), "3 min ago"),
        (timedelta(hours=5, minutes=59), "5 h ago"),
        (timedelta(days=2), "2 d ago"),
        (-timedelta(minutes=10, seconds=1), "in 10 min"),
    ],
)
def test_times_are_relative_with_the_exact_one_on_hover(back: timedelta, expected: str) -> None:
    moment = timezone.now() - back
    shown = str(figures.ago(moment))
    assert f">{expected}" in shown and f"{moment:%-d %b %Y, %H:%M:%S} UTC" in shown


def test_a_sparkline_ends_where_the_values_end() -> None:
    rising = sparkline([0.0, None, 0.5, 1.0])
    assert "success from 0 % to 100 %" in rising and rising.count(",") == 3
    assert "polyline" not in sparkline([0.4]) and "nothing measured yet" in sparkline([])


def test_colours_run_from_the_worst_to_the_best_reward() -> None:
    assert [level(reward, -1, 1) for reward in (-1, -0.5, 0, 0.5, 1, 9)] == ["r0", "r1", "r2", "r3", "r4", "r4"]
    assert level(None, -1, 1) == "none" and level(0.3, 0.3, 0.3) == "r2"


def test_a_failure_is_a_ring_and_not_only_another_colour() -> None:
    drawn = dots([1.0, -1.0, None], [True, False, False], low=-1, high=1, signal=True)
    assert 'class="dot r4"' in drawn and 'class="dot r0 ring"' in drawn and 'class="dot none ring"' in drawn


def test_bars_go_right_for_good_and_left_for_bad_and_never_out() -> None:
    assert 'class="bar-up" x="36.0" y="1" width="17.5"' in bar_around_zero(1, 2)
    assert 'class="bar-down" x="1.0" y="1" width="35.0"' in bar_around_zero(-5, 2)
    assert 'width="0.0"' in bar_around_zero(1, 0)


def test_a_forest_row_that_touches_zero_is_unsure() -> None:
    drawn = forest([ForestRow("A", 0.5, 0.1, 0.9, True), ForestRow("B", -0.1, -0.5, 0.3, False)])
    assert "forest-mark better" in drawn and "forest-mark unsure" in drawn


def test_names_in_pictures_are_escaped() -> None:
    drawn: Any = forest([ForestRow("<b>", 0.5, None, None, True)], label='"><script>')
    shown = Template("{{ drawn }}").render(Context({"drawn": drawn}))
    assert shown == drawn and "<script>" not in shown and "<b>" not in shown and "&lt;b&gt;" in shown


def test_long_texts_are_folded_with_their_beginning() -> None:
    folded = str(console.fold("saw", "first line\n" + "x" * 2000))
    assert "<details>" in folded and "2,011 characters" in folded and ": first line…" in folded
    assert "<details>" not in str(console.fold("saw", "short"))
    assert "&lt;i&gt;" in str(console.fold("error", "<i>"))


def test_a_history_with_links_is_no_image_whose_parts_a_screen_reader_skips() -> None:
    linked = HistoryPoint(0.5, 0.4, 0.6, 0, "Release 1", url="/releases/1/")
    assert 'role="group" aria-label="Scores"' in history([linked], label="Scores")
    assert 'role="img" aria-label="Scores"' in history([replace(linked, url="")], label="Scores")
