"""Texts without the personal data and secrets that were in them."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from experiences.privacy import addresses, assignments, contacts, numbers, prefilter, tokens
from experiences.privacy.kinds import PLACEHOLDER, Span
from experiences.privacy.normalisation import Reading, folded, read
from experiences.privacy.prefilter import signals

# In the order of precedence: where two overlap, the earlier one holds.
_DETECTORS: Final[tuple[tuple[int, Callable[[Reading], Iterator[Span]]], ...]] = (
    (prefilter.PEM, tokens.private_keys),
    (prefilter.KEY, tokens.jwts),
    (prefilter.KEY, tokens.api_keys),
    (prefilter.URL, tokens.url_passwords),
    (prefilter.PASSWORD, assignments.passwords),
    (prefilter.ASSIGNED, assignments.secrets),
    (prefilter.EMAIL, contacts.emails),
    (prefilter.SPELT_EMAIL, contacts.spelt_emails),
    (prefilter.IBAN, numbers.ibans),
    (prefilter.CARD, numbers.cards),
    (prefilter.SSN, numbers.social_security),
    (prefilter.IPV6, addresses.ipv6),
    (prefilter.IPV4, addresses.ipv4),
    (prefilter.PLUS_PHONE, contacts.plus_phones),
    (prefilter.ZEROS_PHONE, contacts.zeros_phones),
    (prefilter.AMERICAN_PHONE, contacts.american_phones),
    (prefilter.ANNOUNCED_PHONE, contacts.announced_phones),
)
# What detectors look at beside a value, to reject it: when such a neighbour has been replaced, they look again.
_TOUCHES_BEFORE: Final = re.compile(r"(?:[\w.-]|\d[ .,/()-]{1,3}|:[0-9A-Fa-f]{0,4}:|[tT@][)\]}>] ?)\Z")
_BEHIND: Final = r"[A-Za-z0-9_]|\.\w|::|:[0-9A-Fa-f]{0,4}:|:00| ?[(\[{<] ?[aAdD@]|[\s_.:=\"'\\(]{1,6}\d{1,3}\.\d"
_TOUCHES_BEHIND: Final = re.compile(rf"{_BEHIND}|[ .,/-]{{0,2}}[(+]{{0,2}}\d")
# Behind a letter a comma or a space sets a number apart from it.
_TOUCHES_LETTER: Final = re.compile(rf"{_BEHIND}|(?:[./-][ .,/-]?|[ ,][./-])?[(+]{{0,2}}\d")
# A password in a URL may hold anything, so any replacement can make one readable. Ports are none.
_OPEN_URL: Final = re.compile(r"://[^\s/?#@:\"'<>]{0,128}:(?!\d{2,5}[/\s\"'])")
# A placeholder can free what stood beside the value ("a.b@c.org+14155552671"). Each round takes something away and
# never touches a placeholder; two rounds are the rule, and the bound keeps hostile texts linear.
_ROUNDS: Final = 8


@dataclass(frozen=True, slots=True)
class Redacted:
    """``counts``: how many of each kind were replaced; kinds that did not occur are absent."""

    text: str
    counts: Mapping[str, int]


def redact(text: str, *, limit: int | None = None) -> str:
    """``text`` with every finding replaced by its kind, as in "[email]"; the same object where there is none.

    ``limit``: characters after which the text is cut off, at a space, and replaced by a note of how many were left
    out. What is not read can't be vouched for, so it is not kept either.
    """
    if limit is not None and len(text) > limit:
        return redact_with_counts(text, limit=limit).text
    plain = text if text.isascii() and "\\" not in text else folded(text)
    passed = signals(plain)
    if not passed:  # the way of most texts
        return text
    for _ in range(_ROUNDS):
        spans, settled = _round(plain, passed)
        if not spans:
            break
        text = _replaced(text, spans)
        if settled:
            break
        plain = folded(text)
        passed = signals(plain)
    return text


def redact_with_counts(text: str, *, limit: int | None = None) -> Redacted:
    """As ``redact``, with the number of replacements by kind."""
    kept, note = _cut(text, limit)
    counts: Counter[str] = Counter()
    for _ in range(_ROUNDS):
        plain = folded(kept)
        spans, settled = _round(plain, signals(plain))
        if not spans:
            break
        counts.update(span.kind for span in spans)
        kept = _replaced(kept, spans)
        if settled:
            break
    return Redacted(kept + note if note else kept, dict(counts))


def find(text: str) -> list[Span]:
    """Spans that one round finds, in order and without overlaps."""
    plain = folded(text)
    return _round(plain, signals(plain))[0]


def _round(plain: str, passed: int) -> tuple[list[Span], bool]:
    """Spans that one round finds in a folded text that passed these gates, and whether a second round can find no
    more."""
    if not passed:
        return [], True
    reading = read(plain)
    spans: list[Span] = []
    for gate, detect in _DETECTORS:
        if passed & gate:
            spans += detect(reading)
    if len(spans) < 2:
        return spans, _settled(plain, spans, urls=bool(passed & prefilter.URL))
    kept = _disjoint(spans)
    whole = len(kept) == len(spans) or _covered(spans, kept)
    return kept, whole and _settled(plain, kept, urls=bool(passed & prefilter.URL))


def _covered(spans: list[Span], kept: list[Span]) -> bool:
    """Whether each span lies within one that is kept (disjoint, in order): nothing of it is left in the text."""
    for start, end, _ in spans:
        around = kept[bisect_right(kept, start, key=itemgetter(0)) - 1]
        if not around[0] <= start <= end <= around[1]:
            return False
    return True


def _disjoint(spans: list[Span]) -> list[Span]:
    """Of overlapping spans the one that was given first; sorted by place."""
    ordered = sorted(spans)
    end = 0
    for span in ordered:
        if span[0] < end:
            break
        end = span[1]
    else:
        return ordered
    ranks = sorted(range(len(spans)), key=spans.__getitem__)
    kept: list[Span] = []
    cluster: list[int] = []
    end = 0
    for rank in ranks:
        span = spans[rank]
        if span.start >= end:
            kept += _first_come(spans, cluster)
            cluster = []
        cluster.append(rank)
        end = max(end, span.end)
    return kept + _first_come(spans, cluster)


def _first_come(spans: list[Span], cluster: list[int]) -> list[Span]:
    kept: list[Span] = []
    for rank in sorted(cluster):
        span = spans[rank]
        at = bisect_left(kept, span)
        if (at == len(kept) or kept[at].start >= span.end) and (at == 0 or kept[at - 1].end <= span.start):
            kept.insert(at, span)
    return kept


def _settled(text: str, spans: list[Span], *, urls: bool) -> bool:
    """True if no more can be found beside the replaced values: no word or number touches or follows them."""
    for start, end, _ in spans:
        behind = _TOUCHES_LETTER if "a" <= text[end - 1] <= "z" else _TOUCHES_BEHIND
        if _TOUCHES_BEFORE.search(text, max(0, start - 6), start) or behind.match(text, end, end + 12):
            return False
    if not urls:
        return True
    ends = {start for start, _, kind in spans if kind == "password"}
    return all(match.end() in ends for match in _OPEN_URL.finditer(text))


def _replaced(text: str, spans: list[Span]) -> str:
    parts: list[str] = []
    done = 0
    for start, end, kind in spans:
        parts += (text[done:start], PLACEHOLDER[kind])
        done = end
    parts.append(text[done:])
    return "".join(parts)


def _cut(text: str, limit: int | None) -> tuple[str, str]:
    if limit is None or len(text) <= limit:
        return text, ""
    # Cut at a space, so that no half of an address is left; a long word without one goes whole.
    at = max(text.rfind(" ", 0, limit), text.rfind("\n", 0, limit), 0)
    return text[:at], f" [{len(text) - at} characters left out]"
