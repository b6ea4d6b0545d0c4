"""Finding numbers, lists and directions in a text. Shared by the tools; knows nothing of any of them."""

from __future__ import annotations

import re

from experiences.rollouts.tools.base import ToolError

INTEGER = re.compile(r"\d+")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)")
INTEGER_LIST = re.compile(r"(?<![\w.,-])\d+(?:(?:\s*,\s*(?:and\s+)?|\s+and\s+)\d+)+(?![\w-]|\.\d)")
NUMBER_LIST = re.compile(
    r"(?<![\w.'])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?:\s*,\s*[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)+(?!\w|\.\d)"
)
PARENTHESES = re.compile(r"\([^()]*\)")
DIRECTION = re.compile(r"\b(ascending|increasing|descending|decreasing)\b", re.IGNORECASE)
LARGEST_INTEGER_DIGITS = 400  # of a text that people write; keeps every tool's work small


def integers(text: str) -> list[int]:
    """Every run of digits in the text, as integers.

    Raises:
        ToolError: there is none, or one is absurdly long.
    """
    runs = INTEGER.findall(text)
    if not runs:
        raise ToolError("no integer in the text")
    if max(map(len, runs)) > LARGEST_INTEGER_DIGITS:
        raise ToolError("a number in the text is too long")
    return [int(run) for run in runs]


def only_integer_list(text: str) -> list[int]:
    """The integers of the one comma-separated list that holds every number of the text.

    Raises:
        ToolError: there is no such list, or there are numbers beside it.
    """
    found = INTEGER_LIST.search(text)
    if found is None:
        raise ToolError("no list of integers in the text")
    if INTEGER.search(text[: found.start()] + text[found.end() :]):
        raise ToolError("there are numbers beside the list")
    return integers(found.group())


def is_descending(mention: str) -> bool:
    return mention.lower() in ("descending", "decreasing")
