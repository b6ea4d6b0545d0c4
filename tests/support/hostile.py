"""Values that no form, query or parameter expects, and where to put them."""

from __future__ import annotations

import random
from typing import Any, Final

TEXTS: Final = (
    "", " ", "\x00", "a\x00b", "\r\nX-Injected: 1", "'; DROP TABLE jobs_job; --", "<script>alert(1)</script>",
    "{{7*7}}", "%s%n%d", "%00", "../../../../etc/passwd", "\u202e\u200b", "🐘" * 300, "é" * 1_000, "x" * 20_000,
    "null", "true", "nan", "inf", "-inf",
    "1e400", "9" * 400, "-1", "0", "0x10", "٣", "1,5", "2025-13-45", "0000-00-00T00:00:00Z",
    "9999-12-31T23:59:59+99:99", "00000000-0000-0000-0000-000000000000", "[" * 500, '{"a": ' * 200,
    "=cmd|' /C calc'!A0", "http://169.254.169.254/", "http://[::1", "javascript:alert(1)", "\\", "_", "%",
    "*", "(" * 60, "(a+)+$", "\ufffe", "2147483648", "9223372036854775808", "1.5", "on", "None", "__all__", "-",
    ".", ",", "a__b__c", "id", "-id,-id",
)  # fmt: skip
"""What a field of a form or a query may hold: no lone surrogates, which no browser can send."""

VALUES: Final[tuple[Any, ...]] = (
    *TEXTS, "\ud800", None, True, False, 0, -1, 1.5, 2**31, 2**63, 2**70, -(2**64), 1e308, 5e-324, [], [[]], [None], {},
    {"": ""}, {"a": {"b": {"c": []}}}, ["x"] * 300, {"$ne": 1}, [{}] * 60,
)  # fmt: skip
"""What a parameter in JSON may hold."""

BODIES: Final = (
    b"", b"{", b"\xff\xfe", b"nul", b"[]", b"[[]]", b"{}", b"1", b'"x"', b"null", b"[" * 5_000 + b"]" * 5_000,
    b'{"a": ' * 2_000 + b"1" + b"}" * 2_000, b'{"a": NaN}', b'{"a": 1e999}', b'{"a": "\\ud800"}', b'{"a": "\\u0000"}',
    b'{"a": 1, "a": 2}', b"\xef\xbb\xbf{}", b" " * 100_000, b"a=1&b=2", b"--x\r\n\r\n--x--",
)  # fmt: skip
"""Whole bodies that are no request."""


def deep(chance: random.Random) -> Any:
    """A value within values, as deep as a parser may be asked to go."""
    value: Any = chance.choice(TEXTS)
    for _ in range(chance.choice((3, 20, 400))):
        value = [value] if chance.random() < 0.5 else {"a": value}
    return value
