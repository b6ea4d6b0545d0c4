"""Secrets that don't print: no repr, no log line, no exception and no pickle shows them."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from typing import Any, Final, NoReturn

MASK: Final = "***"
SHORTEST: Final = 4  # a shorter secret is none, and masking it would leave holes in every message
LONG: Final = 12  # a shorter one (EMPTY, token, ollama) may be a part of a word that is none of it, as in max_tokens
# What looks like a key, in our texts and in others': providers echo the key they refuse, some of them almost whole.
# Words such as key_features or Bearer token are none.
KEY_LIKE: Final = re.compile(
    r"\b(?i:sk|gsk|xai)[-_][\w*.-]{6,}|\b(?i:pk|rk|key)[-_](?=[\w*.-]*[\d*])[\w*.-]{6,}"
    r"|\b(?i:bearer)\s+(?!(?i:auth\w*|token|scheme|header|realm|key|credential)s?\b)[^\s\"',]{4,}"
)


class Secret:
    """A text that only ``reveal`` gives out."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("A secret is not pickled: send its name and read it where it is used.")


def looks_like_a_key(text: str) -> bool:
    return KEY_LIKE.search(text) is not None


def masked(text: str, secrets: Iterable[Secret]) -> str:
    """``text`` without these secrets and without anything that looks like a key."""
    for secret in secrets:
        if len(value := secret.reveal()) >= LONG:
            text = text.replace(value, MASK)
        elif len(value) >= SHORTEST:
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", MASK, text)
    return KEY_LIKE.sub(MASK, text)
