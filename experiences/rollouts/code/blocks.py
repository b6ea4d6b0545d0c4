"""Python in an answer's fenced blocks."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Final

MAX_CODE: Final = 100_000  # characters of an answer's code that are checked
PYTHON: Final = frozenset({"python", "python3", "py"})
_BLOCK = re.compile(
    r"^ {0,3}(?P<fence>```+|~~~+)[ \t]*(?P<language>[^\s`]*)[^\n`]*\n(?P<code>.*?)(?:^ {0,3}(?P=fence)|\Z)", re.M | re.S
)


def python_in(text: str) -> str:
    """The Python blocks of a text, one after the other; "" where there is none. A block that names no language counts
    if it can be parsed."""
    found = [block["code"] for block in _BLOCK.finditer(text) if _is_python(block["language"].lower(), block["code"])]
    code = "\n".join(found)[:MAX_CODE]
    return code if code.strip() else ""


def _is_python(language: str, code: str) -> bool:
    if language:
        return language in PYTHON
    try:
        with warnings.catch_warnings(action="ignore"):
            parsed = ast.parse(code[:MAX_CODE])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    # A word, a number or a line of words joined by commas can be parsed too: that is text.
    return any(
        not isinstance(statement, ast.Expr) or isinstance(statement.value, ast.Call) for statement in parsed.body
    )
