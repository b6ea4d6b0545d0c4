"""Answers that are data: a field of a JSON object, JSON values, calls of functions."""

from __future__ import annotations

import ast
import json
import re
from typing import Any, Final

from experiences.rollouts.environments.answers import MarkedAnswer

MAX_DATA: Final = 20_000  # characters
_FIELDS: Final = ("final_answer", "finalanswer", "answer", "result", "output", "value", "label")
_CALLS: Final = re.compile(r"\[?\s*[A-Za-z_][\w.]*\s*\(.*\)\s*\]?", re.DOTALL)
_ONE_CALL: Final = re.compile(r"(?P<before>[^()]{1,200}?)`{0,3}(?P<call>[A-Za-z_][\w.]*\(.*\))`{0,3}\.?", re.DOTALL)
_DENIES: Final = re.compile(r"\b(?:not|never|avoid|instead|wrong)\b|n't\b")


def field_of(answer: str) -> str:
    """The answer within an answer that is a JSON object with a field for it; else the answer."""
    text = answer.strip()
    if not text.startswith("{") or len(text) > MAX_DATA:
        return answer
    found = _json(text)
    if not isinstance(found, dict):
        return answer
    fields = {re.sub(r"[\s-]+", "_", str(name).strip().lower()): value for name, value in found.items()}
    value = next((fields[name] for name in _FIELDS if name in fields), None)
    if isinstance(value, bool) or value is None or not isinstance(value, str | int | float):
        return answer if not isinstance(value, bool) else MarkedAnswer(str(value).lower())
    return MarkedAnswer(value)


def data_in(text: str) -> Any:
    """A value by which two texts of JSON, or of calls, are equal: spaces, quotes and the order of names aside. None:
    the text is neither."""
    text = text.strip()
    if len(text) > MAX_DATA or (text[:1] not in "{[" and not _CALLS.fullmatch(text)):
        return None
    found = _json(text)
    if isinstance(found, dict | list):
        return "json", _frozen(found)
    return _calls(text) if _CALLS.fullmatch(text) else None


def call_in(text: str) -> Any:
    """``data_in`` of the only call in a sentence that does not deny it; None for other texts."""
    found = _ONE_CALL.fullmatch(text.strip()) if len(text) <= MAX_DATA else None
    return None if found is None or _DENIES.search(found["before"]) else _calls(found["call"])


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _frozen(value: Any) -> Any:
    """The value with whole numbers in one form, truth apart from numbers, and names in order."""
    if isinstance(value, dict):
        return tuple(sorted((str(name), repr(_frozen(one))) for name, one in value.items()))
    if isinstance(value, list | tuple | set):
        return tuple(map(_frozen, value))
    if isinstance(value, bool) or value is None:
        return ("word", value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _calls(text: str) -> Any:
    """Calls of functions with values as arguments; their order counts for nothing, as they are made together."""
    try:
        tree = ast.parse(text, mode="eval").body
        calls = tree.elts if isinstance(tree, ast.List) else [tree]
        return "calls", tuple(sorted(repr(_call(one)) for one in calls))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _call(node: ast.expr) -> tuple[Any, ...]:
    """Raises ValueError: it is no call of values."""
    if not isinstance(node, ast.Call):
        raise ValueError("no call")
    named = sorted((str(one.arg), repr(_frozen(_value(one.value)))) for one in node.keywords)
    return ast.unparse(node.func), tuple(_frozen(_value(one)) for one in node.args), tuple(named)


def _value(node: ast.expr) -> Any:
    words = {"true": True, "false": False, "null": None}
    if isinstance(node, ast.Name) and node.id in words:
        return words[node.id]
    return ast.literal_eval(node)
