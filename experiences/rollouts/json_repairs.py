"""JSON that a model wrote with wrong punctuation: read by json_repair, after strict reading has failed.

Only the punctuation is repaired (commas, quotes, comments, line breaks in texts). What was cut off is no JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

MAX_REPAIRED: Final = 50_000  # characters; the package takes seconds beyond
MAX_DEPTH: Final = 100
_WHOLE: Final = re.compile(r"\s*(?:\{.*\}|\[.*\])\s*", re.DOTALL)
_DAMAGED: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # no model writes these, and no punctuation explains them
_NO_VALUE: Final = re.compile(r"\b(?:NaN|Infinity|undefined)\b")
_QUOTES: Final = str.maketrans(dict.fromkeys("“”„‘’«»", '"'))
_TEXTS: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def repaired(text: str) -> Any:
    """The object or list that ``text`` means; None where it is none, or was cut off. Numbers that are none in JSON are
    refused."""
    if len(text) > MAX_REPAIRED or not _WHOLE.fullmatch(text) or _DAMAGED.search(text):
        return None
    outside = _TEXTS.sub("", text)
    if not outside.translate(_QUOTES).isascii():
        return None
    if _NO_VALUE.search(outside) or outside.count("{") > outside.count("}") or outside.count("[") > outside.count("]"):
        return None
    if max(outside.count("{"), outside.count("[")) > MAX_DEPTH * 10 or _depth(outside) > MAX_DEPTH:
        return None
    if len(_bracketed(text)[0]) > 1:  # the package makes one of several
        return None
    import json_repair

    try:
        value = json_repair.loads(text, skip_json_loads=True)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError, TypeError):
        return None
    return value if isinstance(value, dict | list) and value else None


def json_in_words(text: str) -> tuple[list[Any], bool]:
    """(the different objects and lists between the words of a text, whether a bracket was never closed). Each is read
    strictly or repaired; brackets that hold no JSON are words. Beside an object, lists of numbers are references."""
    found: list[Any] = []
    spans, cut = _bracketed(text[:MAX_REPAIRED])
    for span in spans:
        try:
            value = json.loads(span)
        except (ValueError, RecursionError):
            value = repaired(span) if span[0] == "[" or ":" in span else None
        if isinstance(value, dict | list) and value not in found:
            found.append(value)
    if any(isinstance(value, dict) for value in found):
        found = [value for value in found if isinstance(value, dict) or not _of_numbers(value)]
    return found, cut


def _of_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, int) for value in values)


def _bracketed(text: str) -> tuple[list[str], bool]:
    """(the outermost parts in balanced brackets, whether one is left open). Brackets within double quotes are text."""
    spans, closing, start, quoted, at = [], list[str](), 0, False, 0
    while at < len(text):
        character = text[at]
        if quoted:
            at += character == "\\"
            quoted = character != '"'
        elif closing and character == '"':
            quoted = True
        elif character in "{[":
            start = start if closing else at
            closing.append("}" if character == "{" else "]")
        elif closing and character == closing[-1]:
            closing.pop()
            if not closing:
                spans.append(text[start : at + 1])
        at += 1
    return spans, bool(closing)


def _depth(text: str) -> int:
    deepest = depth = 0
    for character in text:
        depth += (character in "{[") - (character in "}]")
        deepest = max(deepest, depth)
    return deepest
