"""Days and times of the day in the forms in which people write them."""

from __future__ import annotations

import re
from datetime import date
from typing import Final

# Names of months by their number: English, German, French, Spanish, Italian, Portuguese, Dutch.
_NAMES: Final = (
    "january jan januar janvier jänner enero gennaio janeiro januari",
    "february feb februar février fevrier febrero febbraio fevereiro februari",
    "march mar märz maerz mars marzo março marco maart",
    "april apr avril abril aprile",
    "may mai mayo maggio maio mei",
    "june jun juni juin junio giugno junho",
    "july jul juli juillet julio luglio julho",
    "august aug août aout agosto augustus",
    "september sep sept septembre septiembre settembre setembro",
    "october oct oktober okt octobre octubre ottobre outubro",
    "november nov novembre noviembre novembro",
    "december dec dezember dez décembre decembre diciembre dicembre dezembro",
)
_MONTHS: Final = {name: number for number, names in enumerate(_NAMES, start=1) for name in names.split()}
_MONTH: Final = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\.?"
_DAY: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th|er|\.)?"
_YEAR: Final = r"(?P<year>\d{4})"
_FIRST: Final = (
    r"(?:(?:it|this|that)(?:'s| is| was| happened| took place) )?(?:(?:on|am|le|el|il) )?(?:the )?(?:[^\W\d]+day,? )?"
)
_CLOCK: Final = r"(?:[t ]00:00(?::00(?:\.0+)?)?(?:z|[+-]00:?00)?)?"
_DATES: Final = tuple(
    re.compile(_FIRST + form)
    for form in (
        rf"{_MONTH} {_DAY},? {_YEAR}",
        rf"{_DAY} (?:of )?(?:de )?{_MONTH},? (?:de )?{_YEAR}",
        rf"{_DAY}-{_MONTH}-{_YEAR}",
        rf"{_YEAR}[-/.](?P<month>\d{{1,2}})[-/.](?P<day>\d{{1,2}}){_CLOCK}",
        rf"{_YEAR} ?年 ?(?P<month>\d{{1,2}}) ?月 ?(?P<day>\d{{1,2}}) ?日",
        rf"(?P<day>\d{{1,2}})\.(?P<month>\d{{1,2}})\.{_YEAR}",
    )
)
_SLASHED: Final = re.compile(rf"{_FIRST}(\d{{1,2}})([/-])(\d{{1,2}})\2{_YEAR}")
_OF_YEAR: Final = re.compile(rf"(?:it was )?(?:in |im )?{_MONTH},? (?:of |de )?{_YEAR}")
_TIME: Final = re.compile(
    r"(?:it(?:'s| is) |at )?(?P<hour>\d{1,2})(?:[:.h](?P<minute>\d\d))?(?::00)? ?(?:(?P<half>[ap])\.? ?m\b\.?|uhr)?"
)


def date_in(text: str) -> date | None:
    """The day that a ``comparable`` text is, where its form leaves no doubt; None for other texts."""
    found = next((match for form in _DATES if (match := form.fullmatch(text))), None)
    if found is not None:
        month = found["month"]
        return _day(int(found["year"]), int(month) if month.isdigit() else _MONTHS[month], int(found["day"]))
    if (slashed := _SLASHED.fullmatch(text)) is None:
        return None
    one, other = int(slashed[1]), int(slashed[3])
    if one > 12 >= other or one == other:
        return _day(int(slashed["year"]), other, one)
    return _day(int(slashed["year"]), one, other) if other > 12 >= one else None  # else either may be the month


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def month_in(text: str) -> tuple[int, int] | None:
    """The (year, month) that a ``comparable`` text names in words; None for other texts."""
    found = _OF_YEAR.fullmatch(text)
    return None if found is None else (int(found["year"]), _MONTHS[found["month"]])


def time_in(text: str) -> int | None:
    """The minute of the day that a ``comparable`` text is, "15:30" or "3:30 pm"; None for other texts."""
    found = _TIME.fullmatch(text)
    if found is None or not (found["half"] or (found["minute"] and ":" in text)):
        return None
    hour, minute = int(found["hour"]), int(found["minute"] or 0)
    if found["half"]:
        hour = hour % 12 + (12 if found["half"] == "p" else 0) if 1 <= hour <= 12 else 99
    return hour * 60 + minute if hour < 24 and minute < 60 else None
