"""Kinds of personal data and secrets, and their placeholders."""

from __future__ import annotations

from typing import Final, NamedTuple

KINDS: Final = ("email", "phone", "ssn", "card", "iban", "ip", "api key", "jwt", "password")


class Span(NamedTuple):
    """``text[start:end]`` is of ``kind``; offsets in characters."""

    start: int
    end: int
    kind: str


# What is stored instead: the kind and nothing else, so that the value can't be got back.
PLACEHOLDER: Final = {kind: f"[{kind}]" for kind in KINDS}
PLACEHOLDERS: Final = tuple(PLACEHOLDER.values())
