"""The number of values in a JSON text, before it is parsed. Pure, no Django."""

from __future__ import annotations


def most_values(text: bytes) -> int:
    """An upper bound of the values in a JSON text, by its commas and brackets, also those within strings.

    A parsed value takes up to 70 bytes where its text takes two. Counting is a thousand times as fast as parsing.
    """
    return text.count(b",") + text.count(b"[") + text.count(b"{") + 1
