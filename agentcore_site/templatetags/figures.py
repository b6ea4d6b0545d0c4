"""Filters of figures: numbers with units, money, times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentcore_site.lib import figures, money_format
from agentcore_site.lib.figures import MINUS

register = template.Library()

NOTHING = "–"
UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def as_number(value: Any) -> float | None:
    """The value as a finite number, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


# -- numbers -----------------------------------------------------------------------------------------------------------


@register.filter
def count(value: Any) -> str:
    """1234567 → 1,234,567."""
    number = as_number(value)
    return NOTHING if number is None else figures.minus(f"{number:,.0f}")


@register.filter
def usd(value: Any) -> str:
    """Dollars: $12.40; below a cent with the digits that matter."""
    number = as_number(value)
    return NOTHING if number is None else money_format.usd(number)


@register.filter
def money(value: Any) -> str | SafeString:
    """Micro-dollars as dollars, as people say them; where that leaves something out, with all of it on hover."""
    number = as_number(value)
    if number is None:
        return NOTHING
    rounded, whole = money_format.money(int(number)), money_format.exact(int(number))
    return rounded if rounded == whole else format_html('<span title="{}">{}</span>', whole, rounded)


@register.filter
def money_text(value: Any) -> str:
    """The same for an attribute, which holds text alone."""
    number = as_number(value)
    return NOTHING if number is None else money_format.money(int(number))


@register.filter
def exact(value: Any) -> str:
    """Micro-dollars to the last one, as the ledger has them."""
    number = as_number(value)
    return NOTHING if number is None else money_format.exact(int(number))


@register.filter
def exact_change(value: Any) -> str:
    """A movement of the ledger in micro-dollars: all of it, with its sign."""
    number = as_number(value)
    if number is None:
        return NOTHING
    return f"{MINUS if number < 0 else '+'}{money_format.exact(abs(int(number)))}"


@register.filter
def percent(value: Any, digits: int = 1) -> str:
    """0.842 → 84.2 %."""
    number = as_number(value)
    return NOTHING if number is None else figures.minus(f"{100 * number:.{digits}f} %")


@register.filter
def points(value: Any) -> str:
    """A difference of rates in points: 0.182 → +18.2."""
    number = as_number(value)
    return NOTHING if number is None else figures.signed(100 * number)


@register.filter
def figure(value: Any, digits: int = 3) -> str:
    """A number with that many significant digits, never in scientific notation unless it is very small."""
    number = as_number(value)
    if number is None:
        return NOTHING
    if number != 0 and abs(number) < 1e-4:
        return figures.minus(f"{number:.1e}")
    if number == int(number) and not 0 < abs(number) < 10:
        return figures.minus(f"{number:,.0f}")
    whole = len(str(int(abs(number)))) if abs(number) >= 1 else 0
    text = f"{number:,.{max(digits - whole, 0)}f}"
    return figures.minus(text)


@register.filter
def signed(value: Any, digits: int = 3) -> str:
    number = as_number(value)
    if number is None:
        return NOTHING
    return f"+{figure(number, digits)}" if number > 0 else figure(number, digits)


@register.filter
def duration(seconds: Any) -> str:
    """Seconds in words of at most two units: 75 → 1 min 15 s."""
    number = as_number(seconds)
    if number is None:
        return NOTHING
    if number < 1:
        return f"{number * 1000:.0f} ms"
    if number < 10:
        return f"{number:.1f} s"
    whole = round(number)
    first = next(i for i, (size, _) in enumerate(UNITS) if whole >= size)
    head, rest = divmod(whole, UNITS[first][0])
    size, name = UNITS[min(first + 1, len(UNITS) - 1)]
    below = f" {rest // size} {name}" if rest // size else ""
    return f"{head} {UNITS[first][1]}{below}"


@register.filter
def milliseconds(value: Any) -> str:
    number = as_number(value)
    if number is None:
        return NOTHING
    if 0 < number < 0.1:
        return f"{1000 * number:.3g} µs"
    return f"{number:.2g} ms" if number < 10 else duration(number / 1000)


@register.filter
def wins(success: Iterable[bool]) -> int:
    """Number of successful rollouts of a group."""
    return sum(map(bool, success))


@register.filter
def exponential(value: Any) -> float | None:
    """A log-probability as a probability."""
    number = as_number(value)
    return None if number is None else math.exp(min(number, 0.0))


# -- times -------------------------------------------------------------------------------------------------------------


@register.filter
def ago(moment: datetime | None) -> str | SafeString:
    """``3 min ago``, with the exact time on hover."""
    if not isinstance(moment, datetime):
        return NOTHING
    passed = timezone.now() - moment
    if passed < timedelta(0):
        words = f"in {duration(-passed.total_seconds())}"
    elif passed < timedelta(seconds=10):
        words = "just now"
    elif passed < timedelta(days=14):
        words = f"{_coarse(passed)} ago"
    else:
        return _time(moment, _day(moment), "day")
    return _time(moment, words)


@register.filter
def day(value: date | None) -> str | SafeString:
    """24 Nov 2026. A moment's day is that of the person's time zone; what is a date is the same for all."""
    if isinstance(value, datetime):
        return _time(value, _day(value), "day")
    return _day(value) if isinstance(value, date) else NOTHING


@register.filter
def moment(value: datetime | None) -> str | SafeString:
    """24 Nov 2026, 23:29:07 UTC; where scripts run, in the person's time zone."""
    if not isinstance(value, datetime):
        return NOTHING
    return _time(value, _exact(value), "moment")


def _time(moment: datetime, words: str, form: str = "") -> SafeString:
    """``form``: the form in which a script writes it again in the person's time zone (static/js/times.js); "" for words
    that hold in every zone. The text on hover is always written again."""
    shown = format_html(' data-shown="{}"', form) if form else ""
    stamp = moment.isoformat()
    return format_html('<time datetime="{}" title="{}"{}>{}</time>', stamp, _exact(moment), shown, words)


def _day(value: date) -> str:
    return f"{value:%-d %b %Y}"


def _exact(moment: datetime) -> str:
    return f"{_day(moment)}, {moment:%H:%M:%S} UTC"


def _coarse(passed: timedelta) -> str:
    seconds = int(passed.total_seconds())
    size, name = next(unit for unit in UNITS if seconds >= unit[0])
    return f"{seconds // size} {name}"


# -- figures of reports ------------------------------------------------------------------------------------------------


UNIT_FILTERS: dict[str, Callable[[Any], str]] = {
    "rate": percent,
    "points": points,
    "usd": usd,
    "ms": milliseconds,
    "seconds": duration,
    "count": count,
}


@register.filter
def unit(value: Any, kind: str) -> str:
    """A metric's value in its unit: "rate", "points", "usd", "ms", "seconds", "count" or none."""
    written = UNIT_FILTERS.get(kind, figure)
    return written(value)


@register.filter
def change(value: Any, kind: str) -> str:
    """A difference in its unit, with its sign; rates in points."""
    number = as_number(value)
    if number is None:
        return NOTHING
    if kind == "rate":
        return points(number)
    sign = MINUS if number < 0 else "+"
    return f"{sign}{unit(abs(number), kind)}"


@register.filter
def p_value(value: Any) -> str:
    number = as_number(value)
    if number is None:
        return NOTHING
    return figures.p_value(number)
