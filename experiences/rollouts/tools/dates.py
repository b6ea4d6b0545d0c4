"""Questions about weekdays and dates, read by what they mention and not by their exact words."""

from __future__ import annotations

import calendar
import re
from datetime import date, timedelta
from typing import NamedTuple

from experiences.rollouts.tools.base import FunctionTool, ToolError
from experiences.rollouts.tools.text_parsing import PARENTHESES

WEEKDAYS = tuple(calendar.day_name)
MONTHS = tuple(calendar.month_name)[1:]
MAX_SPAN_DAYS = 100_000

_DAY = "|".join(WEEKDAYS)
_MONTH = "|".join(MONTHS)
_DATE = re.compile(rf"(?:\b({_DAY}), )?\b({_MONTH}) (\d{{1,2}})(?:st|nd|rd|th)?\b(?:, (\d{{4}}))?")
_NUMERIC_DATE = re.compile(r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b")
_ORDINAL = re.compile(rf"\b(first|second|third|fourth|last) ({_DAY})\b")
_MONTH_YEAR = re.compile(rf"\b({_MONTH})(?: of)? (\d{{4}})\b")
_YEAR = re.compile(r"\b(\d{4})\b")
_DAYS = re.compile(r"\b(\d{1,6})[- ]days?\b")
_BACKWARD = re.compile(r"\b(ago|before|backward|earlier|preceding)\b")
_BUSINESS = re.compile(r"business days?|working days?|excluding weekends", re.IGNORECASE)
_FREE_WEEKDAY = re.compile(rf"\b({_DAY})s?\b(?!, (?:{_MONTH}) )")
_FIRST_OF_YEAR = re.compile(r"\b(first day of the year|January 1(?:st)?)\b")


class Mention(NamedTuple):
    """A date as a text prints it: weekday and year may be missing."""

    weekday: str
    month: int
    day: int
    year: int | None


def calendar_tool(text: str) -> str:
    """The answer to a question about leap years, weekdays of dates, offsets, ordinals or counted days.

    Raises:
        ToolError: the text mentions no date, or one that does not exist.
    """
    try:
        return _answer(text)
    except (ValueError, OverflowError):
        raise ToolError("a date in the text does not exist") from None


def _answer(text: str) -> str:
    if "leap" in text:
        return "Yes" if calendar.isleap(_year(text)) else "No"
    plain = PARENTHESES.sub(" ", text)  # "(Monday through Sunday)" and the like describe the answer's form
    ordinal = _ORDINAL.search(plain)
    if ordinal is not None:
        return _ordinal_day(plain, ordinal.group(1), ordinal.group(2))
    mentions = _mentions(plain)
    if not mentions:
        raise ToolError("no date in the text")
    if all(mention.year is None for mention in mentions):
        return _from_first_of_year(plain, mentions)
    if len(mentions) >= 2:
        return _count_between(text, plain, mentions)
    return _weekday_of(plain, mentions[0])


def _year(text: str) -> int:
    found = _YEAR.search(text)
    if found is None:
        raise ToolError("no year in the text")
    return int(found.group(1))


def _mentions(text: str) -> list[Mention]:
    found = [
        Mention(weekday, MONTHS.index(month) + 1, int(day), int(year) if year else None)
        for weekday, month, day, year in _DATE.findall(text)
    ]
    return found or [Mention("", int(month), int(day), int(year)) for month, day, year in _NUMERIC_DATE.findall(text)]


def _ordinal_day(text: str, ordinal: str, weekday: str) -> str:
    found = _MONTH_YEAR.search(text)
    if found is None:
        raise ToolError("no month with its year in the text")
    year, month = int(found.group(2)), MONTHS.index(found.group(1)) + 1
    days = [
        day
        for day in range(1, calendar.monthrange(year, month)[1] + 1)
        if WEEKDAYS[date(year, month, day).weekday()] == weekday
    ]
    place = -1 if ordinal == "last" else ("first", "second", "third", "fourth").index(ordinal)
    return str(days[place])


def _from_first_of_year(text: str, mentions: list[Mention]) -> str:
    """The year is not named, so it is taken as a common year, in which January 1 is the named weekday."""
    targets = [mention for mention in mentions if (mention.month, mention.day) != (1, 1)]
    if not targets or _FIRST_OF_YEAR.search(text) is None:
        raise ToolError("no weekday of January 1 and later date in the text")
    days = (date(2023, targets[0].month, targets[0].day) - date(2023, 1, 1)).days
    return WEEKDAYS[(WEEKDAYS.index(free_weekday(text)) + days) % 7]


def _weekday_of(text: str, mention: Mention) -> str:
    day = date(mention.year or 1, mention.month, mention.day)
    offset = _DAYS.search(text)
    if offset is not None:
        days = int(offset.group(1))
        day += timedelta(days=-days if _BACKWARD.search(text) else days)
    return WEEKDAYS[day.weekday()]


def _count_between(text: str, plain: str, mentions: list[Mention]) -> str:
    named = next(mention.year for mention in mentions if mention.year is not None)
    start = _placed(mentions[0], named)
    end = _placed(mentions[1], named)
    if end < start:
        end = _placed(mentions[1]._replace(weekday=""), named + 1)
    days = (end - start).days + 1
    if not 0 < days <= MAX_SPAN_DAYS:
        raise ToolError("the dates are not in order")
    per_weekday = [days // 7 + ((index - start.weekday()) % 7 < days % 7) for index in range(7)]
    if _BUSINESS.search(text):
        return str(sum(per_weekday[:5]))
    return str(per_weekday[WEEKDAYS.index(free_weekday(plain))])


def free_weekday(text: str) -> str:
    """The first weekday in the text that is not part of a date.

    Raises:
        ToolError: there is none.
    """
    found = _FREE_WEEKDAY.search(text)
    if found is None:
        raise ToolError("no weekday in the text apart from those of dates")
    return found.group(1)


def _placed(mention: Mention, named_year: int) -> date:
    """The date in the year that agrees with its printed weekday: some texts print the year before.

    The generator calendar_arithmetic prints the configured year for an end date that lies in the next one.
    """
    year = mention.year or named_year
    for candidate in (year, year + 1, year - 1):
        try:
            day = date(candidate, mention.month, mention.day)
        except ValueError:
            continue
        if not mention.weekday or WEEKDAYS[day.weekday()] == mention.weekday:
            return day
    return date(year, mention.month, mention.day)


CALENDAR = FunctionTool("calendar", "Answers questions about weekdays, dates and leap years.", calendar_tool)
