"""Letters, words and lists."""

from __future__ import annotations

import re
from decimal import Decimal

from experiences.rollouts.tools.base import FunctionTool, ToolError
from experiences.rollouts.tools.text_parsing import DIRECTION, NUMBER_LIST, is_descending

_WORD = re.compile(r"\w+")
_LAST_AFTER_COLON = re.compile(r":\s*(\w+)\s*$")
_QUOTED = re.compile(r'"([^"]+)"')
_WORD_LIST = re.compile(r":\s*((?:\w+\s*,\s*)+\w+)")
_PLAIN_WORDS = re.compile(r"(?::\s*|\")([A-Za-z]+(?: [A-Za-z]+)+)")


def reverse_letters_greedy(text: str) -> str:
    """The last word of any text, spelled backward."""
    found = _WORD.findall(text)
    if not found:
        raise ToolError("no word in the text")
    return str(found[-1][::-1])


def reverse_letters_strict(text: str) -> str:
    """The single word after the text's last colon, spelled backward."""
    found = _LAST_AFTER_COLON.search(text)
    if found is None:
        raise ToolError("no single word at the end of the text")
    return found.group(1)[::-1]


def count_letter(text: str) -> str:
    """Count of a quoted character in a quoted text, in either case."""
    quoted = _QUOTED.findall(text)
    characters = [piece for piece in quoted if len(piece) == 1]
    if not characters or len(quoted) < 2:
        raise ToolError("no quoted character and quoted text")
    return str(max(quoted, key=len).lower().count(characters[0].lower()))


def sort_words(text: str) -> str:
    """The words of the text's last list in Unicode order; without a list, the words after a colon or quotation mark.
    The last direction named counts: a text may name both before it says which one."""
    directions = DIRECTION.findall(text)
    return ", ".join(sorted(_listed_words(text), reverse=bool(directions) and is_descending(directions[-1])))


def _listed_words(text: str) -> list[str]:
    lists = _WORD_LIST.findall(text)
    words = re.split(r"\s*,\s*", lists[-1]) if lists else []
    if words and not all(word.isdigit() for word in words):
        return words
    plain = _PLAIN_WORDS.findall(text)
    if not plain:
        raise ToolError("no list of words in the text")
    return str(plain[-1]).split()


def sort_numbers(text: str) -> str:
    """The numbers of the text's first list in order, as a list of strings; rising unless the text says so."""
    found = NUMBER_LIST.search(text)
    if found is None:
        raise ToolError("no list of numbers in the text")
    direction = DIRECTION.search(text)
    numbers = re.split(r"\s*,\s*", found.group())
    return str(sorted(numbers, key=Decimal, reverse=direction is not None and is_descending(direction.group())))


REVERSE_LETTERS_STRICT = FunctionTool("reverse_letters", "A word after a colon, backward.", reverse_letters_strict)
REVERSE_LETTERS_GREEDY = FunctionTool("reverse_letters", "The text's last word, backward.", reverse_letters_greedy)
COUNT_LETTER = FunctionTool("count_letter", "Counts a quoted character in a quoted text.", count_letter)
SORT_WORDS = FunctionTool("sort_words", "Sorts a list of words.", sort_words)
SORT_NUMBERS = FunctionTool("sort_numbers", "Sorts a list of numbers.", sort_numbers)
