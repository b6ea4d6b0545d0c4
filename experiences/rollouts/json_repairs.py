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
    import json_repair

    try:
        value = json_repair.loads(text, skip_json_loads=True)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError, TypeError):
        return None
    return value if isinstance(value, dict | list) and value else None


def _depth(text: str) -> int:
    deepest = depth = 0
    for character in text:
        depth += (character in "{[") - (character in "}]")
        deepest = max(deepest, depth)
    return deepest
