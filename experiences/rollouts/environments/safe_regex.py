"""Untrusted patterns on untrusted text, with a time limit (ReDoS).

Python's own engine backtracks without a limit and lets no other thread run meanwhile: one row could stop a worker.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

MAX_PATTERN: Final = 1_000
SEARCH_SECONDS: Final = 0.1  # of the event loop's time; an honest pattern takes a thousandth of it

# Escaped characters, which mean the same everywhere.
_PLAIN: Final = re.compile(r"\\.", re.DOTALL)
# To Python's engine these are letters; to the one that searches here, a number of errors or a class of characters.
_FOREIGN: Final = re.compile(r"\{[eids\d<=+,\s]*[eids][eids\d<=+,\s]*(?::[^}]*)?\}|\[\[:\^?\w+:\]")

Search = Callable[[str, float], bool]
"""(text, seconds) -> whether the pattern is found in it. Raises TooSlow."""


class TooSlow(Exception):
    """A check that did not come to its end in time; the answer is not counted as right."""


def compiled(pattern: str, *, case_sensitive: bool = True) -> Search:
    """A search for ``pattern``, written as for Python's ``re``.

    Raises:
        ValueError: it is too long or faulty. The message is for the row's author.
    """
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"its regular expression is longer than {MAX_PATTERN:,} characters.")
    if _FOREIGN.search(_PLAIN.sub("", pattern)):
        raise ValueError(
            "its regular expression has braces or brackets that engines read differently"
            " (fuzzy matching such as {e<=1}, or [[:alpha:]]); escape them to mean the characters."
        )
    import regex  # type: ignore[import-untyped]  # its tables are large, and most workers check no pattern

    flags = regex.VERSION0 if case_sensitive else regex.VERSION0 | regex.IGNORECASE
    try:
        re.compile(pattern)  # what only the other engine knows would make a row mean something else elsewhere
        made = regex.compile(pattern, flags)
    except (re.error, regex.error, RecursionError, OverflowError) as error:
        raise ValueError(f"its regular expression is faulty: {error}.") from None

    def found(text: str, seconds: float) -> bool:
        try:
            return made.search(text, timeout=max(seconds, 0.001)) is not None
        except TimeoutError:
            raise TooSlow("the regular expression takes too long on this answer") from None

    return found
