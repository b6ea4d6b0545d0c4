"""A provider's lines of usage against the ledger's, by day and model, each difference with its reason. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

from agentcore_site.lib.money import MICROS
from agentcore_site.lib.money_format import money
from budgets.usage_files.reading import UsageLine

CENT: Final = MICROS // 100
MOST_TRIED: Final = 50_000  # of the ledger's hours, for the search of a better time zone
# Verdicts, from those that need work to those that need none, with their names.
VERDICTS: Final = {
    "price": "price differs",
    "tokens": "tokens differ",
    "cost": "cost differs",
    "theirs_only": "provider only",
    "ours_only": "ledger only",
    "other_day": "other day",
    "rounding": "rounding",
    "equal": "equal",
}
FINE: Final = ("other_day", "rounding", "equal")


@dataclass(frozen=True, slots=True)
class LedgerUse:
    """Calls of a model in a quarter of an hour, as the ledger has them. ``estimated``: calls whose tokens we counted;
    ``charged``: calls without an answer in time, which were charged."""

    at: datetime
    model: str
    cost_micros: int
    input_tokens: int
    output_tokens: int
    calls: int
    estimated: int = 0
    charged: int = 0


@dataclass(frozen=True, slots=True)
class Side:
    """Sums of a day and model. None: not said."""

    cost_micros: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    calls: int = 0
    estimated: int = 0
    charged: int = 0


@dataclass(frozen=True, slots=True)
class ComparedLine:
    """A day and model. ``model``: "" for files that name none. ``why``: sentences."""

    day: date
    model: str
    ours: Side | None
    theirs: Side | None
    verdict: str = ""
    why: str = ""

    @property
    def difference_micros(self) -> int | None:
        """The ledger less the provider; None: the provider's file has no costs."""
        if self.theirs is not None and self.theirs.cost_micros is None:
            return None
        return ((self.ours.cost_micros or 0) if self.ours else 0) - (
            (self.theirs.cost_micros or 0) if self.theirs else 0
        )

    @property
    def token_differences(self) -> tuple[int, int] | None:
        """(prompt, answer), the ledger less the provider; None: the provider's file has no tokens of this line."""
        if self.theirs is not None and self.theirs.input_tokens is None and self.theirs.output_tokens is None:
            return None
        ours, theirs = self.ours or Side(), self.theirs or Side()
        prompt = (ours.input_tokens or 0) - (theirs.input_tokens or 0)
        answer = (ours.output_tokens or 0) - (theirs.output_tokens or 0)
        if self.theirs is not None:  # a file with one kind of tokens says nothing of the other
            prompt = 0 if theirs.input_tokens is None else prompt
            answer = 0 if theirs.output_tokens is None else answer
        return prompt, answer

    @property
    def name(self) -> str:
        return VERDICTS[self.verdict]


@dataclass(frozen=True, slots=True)
class Comparison:
    """``better_hours``: the file's days fit far better where they begin so many hours from UTC's; None: they don't."""

    lines: list[ComparedLine]
    first: date
    last: date
    has_costs: bool
    better_hours: int | None = None

    @property
    def ours_micros(self) -> int:
        return sum(line.ours.cost_micros or 0 for line in self.lines if line.ours)

    @property
    def theirs_micros(self) -> int | None:
        return sum(line.theirs.cost_micros or 0 for line in self.lines if line.theirs) if self.has_costs else None

    @property
    def counts(self) -> list[tuple[str, str, int, int]]:
        """(verdict, its name, lines, micro-dollars between both), of those that occur."""
        found = []
        for verdict, name in VERDICTS.items():
            of = [line for line in self.lines if line.verdict == verdict]
            if of:
                found.append((verdict, name, len(of), sum(line.difference_micros or 0 for line in of)))
        return found

    @property
    def differing(self) -> list[ComparedLine]:
        """Lines that need a look."""
        return [line for line in self.lines if line.verdict not in FINE]


def compared(theirs: Sequence[UsageLine], ours: Sequence[LedgerUse], zone: tzinfo) -> Comparison:
    """Both by day of ``zone`` and model, from the first to the last day of the file, in order of day and model."""
    cells = _cells(theirs, ours, zone)
    days = [day for (day, _), (_, their) in cells.items() if their is not None]
    named = {model for (_, model), (_, their) in cells.items() if their is not None}
    lines = [
        _judged(ComparedLine(day, model, our, their), named)
        for (day, model), (our, their) in sorted(cells.items(), key=lambda item: item[0])
    ]
    has_costs = any(line.dollars is not None for line in theirs)
    found = Comparison(_around_midnight(lines), min(days), max(days), has_costs)
    return replace(found, better_hours=_better_hours(theirs, ours, found))


# -- names -------------------------------------------------------------------------------------------------------------


def stem(model: str) -> str:
    """A model's name without the parts in which a provider's export and its API differ: vendor, version, variant."""
    name = model.casefold().strip()
    if name.startswith("ft:"):
        return name
    name = name.rsplit("/", 1)[-1].split(":", 1)[0]
    name = re.sub(r"^(?:[a-z]{2,6}\.)?(?:anthropic|amazon|meta|mistral|cohere|deepseek)\.", "", name)
    name = re.sub(r"[\s._]+", "-", name)
    name = re.sub(r"-v\d+$", "", name)
    name = re.sub(r"[-@](?:20\d{2}-?\d{2}-?\d{2}|latest)$", "", name)
    # Anthropic's console writes "Claude Haiku 3.5" of claude-3-5-haiku, and "Claude Sonnet 4" of claude-sonnet-4-0.
    name = re.sub(r"^claude-(\d(?:-\d)?)-([a-z]+)$", r"claude-\2-\1", name)
    return re.sub(r"^(claude-[a-z]+-\d)-0$", r"\1", name)


def shared_names(ours: Iterable[str], theirs: Iterable[str]) -> dict[str, str]:
    """The name under which each model is compared. Names that both sides have stay; others meet under their stem."""
    by_stem: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for side, names in enumerate((ours, theirs)):
        for name in names:
            by_stem[stem(name)][side].add(name)
    found: dict[str, str] = {}
    for common, (our, their) in by_stem.items():
        apart = our == their or not our or not their
        found |= {name: name if apart else common for name in our | their}
    return found


# -- sums --------------------------------------------------------------------------------------------------------------

Cells = dict[tuple[date, str], tuple[Side | None, Side | None]]


def _cells(theirs: Sequence[UsageLine], ours: Sequence[LedgerUse], zone: tzinfo) -> Cells:
    any_model = any(line.model for line in theirs)
    names = shared_names({use.model.casefold() for use in ours}, {line.model for line in theirs if line.model})
    their_lines: dict[tuple[date, str], list[UsageLine]] = defaultdict(list)
    for line in theirs:
        day = line.at.astimezone(zone).date() if line.at else line.day
        their_lines[day, names.get(line.model, line.model)].append(line)
    first, last = min(day for day, _ in their_lines), max(day for day, _ in their_lines)
    our_uses: dict[tuple[date, str], list[LedgerUse]] = defaultdict(list)
    for use in ours:
        day = use.at.astimezone(zone).date()
        if first <= day <= last:
            our_uses[day, names[use.model.casefold()] if any_model else ""].append(use)
    return {
        key: (
            _our_side(our_uses[key]) if key in our_uses else None,
            _their_side(their_lines[key]) if key in their_lines else None,
        )
        for key in our_uses.keys() | their_lines.keys()
    }


def _our_side(uses: Sequence[LedgerUse]) -> Side:
    def total(name: str) -> int:
        return sum(getattr(use, name) for use in uses)

    return Side(*map(total, ("cost_micros", "input_tokens", "output_tokens", "calls", "estimated", "charged")))


def _their_side(lines: Sequence[UsageLine]) -> Side:
    def total(of: Callable[[UsageLine], Decimal | int | None]) -> Decimal | int | None:
        known = [value for line in lines if (value := of(line)) is not None]
        return sum(known) if known else None

    dollars = total(lambda line: line.dollars)
    prompt, answer = total(lambda line: line.input_tokens), total(lambda line: line.output_tokens)
    return Side(
        None if dollars is None else round(Decimal(dollars) * MICROS),
        None if prompt is None else int(prompt),
        None if answer is None else int(answer),
    )


# -- reasons -----------------------------------------------------------------------------------------------------------


def _judged(line: ComparedLine, named: set[str]) -> ComparedLine:
    verdict, why = _verdict(line, named)
    return replace(line, verdict=verdict, why=" ".join([why, *_of_ours(line, verdict)]).strip())


def _verdict(line: ComparedLine, named: set[str]) -> tuple[str, str]:
    if line.ours is None:
        return "theirs_only", "No call of this model went through the product on this day: another program or key."
    if line.theirs is None:
        if line.model not in named:
            return "ours_only", "The file does not name this model: it is another provider's, or was not billed."
        return "ours_only", "The file has nothing of this model on this day."
    money_apart, tokens_apart = line.difference_micros, line.token_differences
    if tokens_apart is not None and tokens_apart != (0, 0):
        return "tokens", f"The provider counts {_tokens(tokens_apart)}."
    if money_apart is None or money_apart == 0:
        return "equal", "" if money_apart == 0 else "Tokens are equal; the file has no cost of them."
    if abs(money_apart) <= max(CENT, line.ours.calls):  # each call is rounded up to a micro-dollar
        return "rounding", "Within what both sides round: a cent, or a micro-dollar a call."
    if tokens_apart is None:
        return "cost", "The file has no tokens of this line. With a file of tokens the reason can be seen."
    ours, theirs = line.ours.cost_micros or 0, line.theirs.cost_micros or 0
    times = f"charged {theirs / ours:.3g} times what the ledger's price gives" if ours > 0 else "charged a price"
    return "price", f"Tokens are equal, so the price differs: the provider {times}."


def _tokens(apart: tuple[int, int]) -> str:
    parts = zip(("prompt", "answer"), apart, strict=True)
    return " and ".join(
        f"{abs(count):,} {kind} tokens {'fewer' if count > 0 else 'more'}" for kind, count in parts if count
    )


def _of_ours(line: ComparedLine, verdict: str) -> list[str]:
    """Sentences on calls of ours that explain a difference."""
    if line.ours is None or verdict in ("equal", "rounding"):
        return []
    found = []
    if line.ours.estimated:
        found.append(f"The service did not report the tokens of {_calls(line.ours.estimated)}: we counted them.")
    if line.ours.charged:
        found.append(f"{_calls(line.ours.charged)} had no answer in time and cost what was held, or the highest cost.")
    return found


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count:,} calls"


def _around_midnight(lines: list[ComparedLine]) -> list[ComparedLine]:
    """Differences that days side by side cancel are of calls around midnight: each side has its own day's end."""
    by_model: dict[str, list[int]] = defaultdict(list)
    for index, line in enumerate(lines):
        if line.verdict in ("tokens", "cost", "ours_only", "theirs_only"):
            by_model[line.model].append(index)
    found = list(lines)
    for indices in by_model.values():
        taken: set[int] = set()
        for size in (2, 3):
            for start in range(len(indices) - size + 1):
                window = indices[start : start + size]
                if taken & set(window) or not _cancel([lines[index] for index in window]):
                    continue
                taken |= set(window)
                days = f"{lines[window[0]].day:%-d %b} to {lines[window[-1]].day:%-d %b}"
                why = (
                    f"From {days} the differences cancel: calls around midnight, which each side books on another day."
                )
                for index in window:
                    found[index] = replace(lines[index], verdict="other_day", why=why)
    return found


def _cancel(lines: Sequence[ComparedLine]) -> bool:
    if any((after.day - before.day).days != 1 for before, after in pairwise(lines)):
        return False
    moneys = [line.difference_micros for line in lines if line.difference_micros is not None]
    tokens = [line.token_differences for line in lines if line.token_differences is not None]
    sums = [sum(prompt for prompt, _ in tokens), sum(answer for _, answer in tokens)]
    if any(line.theirs is not None and line.token_differences is None for line in lines):
        sums = []  # costs alone
    # All in the same direction is no cancelling, also where the sum is within a cent.
    return abs(sum(moneys)) <= CENT and not any(sums) and len({(one or 0) > 0 for one in moneys or [0, 1]}) > 1


# -- time zones --------------------------------------------------------------------------------------------------------


def zone_of(name: str) -> tzinfo:
    """A time zone by its name (Europe/Berlin), or by its hours (UTC, UTC+2, UTC-8). Raises ValueError."""
    text = name.strip().replace("\u2212", "-")
    if (found := re.fullmatch(r"(?:UTC|GMT)?([+-]\d{1,2})(?::?00)?", text, re.IGNORECASE)) and abs(int(found[1])) <= 14:
        return timezone(timedelta(hours=int(found[1])))
    try:
        return ZoneInfo(text or "UTC")
    except (ValueError, OSError, KeyError):  # no such zone, a folder, or no name at all
        raise ValueError("Name a time zone: UTC, UTC-8, Europe/Berlin.") from None


def _better_hours(theirs: Sequence[UsageLine], ours: Sequence[LedgerUse], now: Comparison) -> int | None:
    """Hours from UTC with less than half of the difference; None: no such hours, or the days are right by now."""
    open_lines = [line for line in now.lines if line.verdict not in ("rounding", "equal")]
    if not open_lines or len(ours) > MOST_TRIED or all(line.at for line in theirs):
        return None
    amounts = {hours: _apart(_cells(theirs, ours, timezone(timedelta(hours=hours)))) for hours in range(-12, 15)}
    best = min(amounts, key=lambda hours: (amounts[hours], abs(hours)))
    known = _apart({(line.day, line.model): (line.ours, line.theirs) for line in now.lines})
    return best if amounts[best] * 2 < known and known > CENT else None


def _apart(cells: Mapping[tuple[date, str], tuple[Side | None, Side | None]]) -> int:
    """The sum of all differences: micro-dollars, or tokens where the file has no costs. Models that only one side has
    don't count."""
    both = {model for (_, model), sides in cells.items() if sides[1] is not None}
    total = 0
    for (day, model), (our, their) in cells.items():
        if model not in both:
            continue
        line = ComparedLine(day, model, our, their)
        if (apart := line.difference_micros) is not None:
            total += abs(apart)
        elif (tokens := line.token_differences) is not None:
            total += abs(tokens[0]) + abs(tokens[1])
    return total


def difference_words(comparison: Comparison) -> str:
    """A sentence: whether the ledger agrees with the file."""
    theirs = comparison.theirs_micros
    count = len(comparison.differing)
    lines = f"{count:,} line{'s' if count != 1 else ''}"
    if theirs is None:
        return "All tokens agree." if not count else f"The tokens of {lines} differ."
    if not count:
        return f"The ledger agrees with the file: {money(comparison.ours_micros)} and {money(theirs)}."
    apart = comparison.ours_micros - theirs
    more = "the same in all" if not apart else f"{money(abs(apart))} {'more' if apart > 0 else 'less'} than the file"
    return f"{lines} differ{'s' if count == 1 else ''}; the ledger has {more}."
