"""Figures and names as sentences and tables write them: one minus sign, one form of p values."""

from __future__ import annotations

from typing import Final

NO_BREAK: Final = "\u00a0"
MINUS: Final = "−"  # U+2212, as wide as a plus sign


def signed(value: float, digits: int = 1) -> str:
    """With its sign: +18.2, −5.0."""
    return minus(f"{value:+.{digits}f}")


def minus(text: str) -> str:
    """A written number whose sign is a minus and not a hyphen."""
    return text.replace("-", MINUS)


def p_value(value: float) -> str:
    """Without the zero before the point, as the APA writes what can't exceed 1: .034, < .001."""
    return f"<{NO_BREAK}.001" if value < 0.001 else f"{value:.3f}".lstrip("0")


def p_words(value: float) -> str:
    """In a sentence: p = .034, p < .001, on one line."""
    text = p_value(value)
    sign = "" if text.startswith("<") else f"={NO_BREAK}"
    return f"p{NO_BREAK}{sign}{text}"


def counted(n: int, one: str, several: str = "") -> str:
    """1 query, 1,200 queries; for a regular plural ``one`` is enough: 3 checks."""
    return f"{n:,} {one if n == 1 else several or one + 's'}"


def spelled(name: str) -> str:
    """A name of code in words: ``early_stopping.enabled`` → early stopping · enabled."""
    return name.replace("_", " ").replace(".", " · ")
