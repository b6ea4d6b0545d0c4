"""Halves of surrogate pairs: a server that cuts its stream in the middle of an emoji sends each half by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

REPLACEMENT = "\ufffd"


def paired(text: str) -> str:
    """``text`` with halves that lie side by side as one character, and U+FFFD for a half that is alone."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean(text: str) -> str:
    """``text`` without NUL and lone surrogates."""
    return paired(text.replace("\0", REPLACEMENT) if "\0" in text else text)


def all_paired(value: Any) -> Any:
    """A JSON value of which each text and name is ``paired`` and each number finite, else null. Raises
    RecursionError."""
    if isinstance(value, str):
        return paired(value)
    if isinstance(value, Mapping):
        return {paired(name): all_paired(item) for name, item in value.items()}
    if isinstance(value, list):
        return [all_paired(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Halves:
    """Joins the pieces of one text: a first half waits for the next piece."""

    def __init__(self) -> None:
        self._waiting = ""

    def join(self, piece: str) -> str:
        if not self._waiting and piece.isascii():
            return piece
        whole, self._waiting = self._waiting + piece, ""
        if whole and "\ud800" <= whole[-1] <= "\udbff":
            whole, self._waiting = whole[:-1], whole[-1]
        return paired(whole)

    def rest(self) -> str:
        """U+FFFD for a half that waits in vain, else nothing."""
        waiting, self._waiting = self._waiting, ""
        return REPLACEMENT if waiting else ""
