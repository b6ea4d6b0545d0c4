"""What makes a text look as if it were written to steer a model and not to teach it.

What agents read, tools say and models repeat is nobody's word. A lesson that was learned from it may carry an order
("ignore what you were told"), a pretended role or an address to send things to. Such a text is never told to an agent:
it is put in quarantine with the reason, and a person looks at it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_ORDERS: Final = (
    r"\b(?:ignore|disregard|forget|override|bypass|do not (?:follow|obey)|don't (?:follow|obey))\b[^.]{0,40}"
    r"\b(?:previous|prior|earlier|above|all|any|other|system|your|these|those|the)\b[^.]{0,20}"
    r"\b(?:instruction|prompt|rule|guideline|message|direction|order|polic|safeguard)"
)
_ROLES: Final = (
    r"\byou are (?:now|no longer)\b|\bjailbreak|\bdeveloper mode\b"
    r"|\bact as (?:if|though|an?|the)\b.{0,30}\b(?:dan|admin|root|system|developer)\b"
)
_SECRETS: Final = (
    r"\b(?:reveal|print|show|repeat|send|leak|output|disclose)\b[^.]{0,40}"
    r"\b(?:system prompt|api[ _-]?key|password|secret|credential|token|instructions)\b"
)
_SENDING: Final = (
    r"\b(?:send|post|upload|forward|exfiltrate|e-?mail)\b[^.]{0,40}"
    r"\b(?:to|at) (?:this|the following|an?) (?:address|url|server|webhook|e-?mail|endpoint)"
)
_MARKERS: Final = (
    r"<\|[a-z_]{2,20}\|>|\[/?inst\]|<</?sys>>|<<<|>>>|</\s*[a-z_]+\s*>|\bend of (?:system )?prompt\b"
    r"|\bnew (?:instructions?|rules?|orders?|task)\s*:"
)
_SIGNS: Final = (
    ("it tells the reader to leave its instructions", _ORDERS),
    ("it pretends to speak for the system", r"(?:^|[\n\"'(\[])\s*(?:system|assistant|developer|user|tool)\s*:"),
    ("it holds a role marker", _MARKERS),
    ("it gives the reader another role", _ROLES),
    ("it asks for secrets", _SECRETS),
    ("it holds an address", r"https?://|\bwww\.[a-z0-9-]+\.|\b[a-z0-9-]+\.(?:com|net|org|io|ru|cn|xyz)\b"),
    ("it asks to send something away", _SENDING),
    (
        "it holds markup or code that is run",
        r"<\s*(?:script|img|iframe|a|svg|tool_call|function)\b|!\[[^\]]*\]\(|\bjavascript:|```",
    ),
    ("it holds a call of a tool", r"\"(?:tool_calls?|function|arguments)\"\s*:"),
)
_COMPILED: Final = tuple((why, re.compile(pattern, re.IGNORECASE)) for why, pattern in _SIGNS)
_HIDDEN: Final = {"Cf", "Co", "Cn", "Cs"}  # categories of characters that nobody sees


def suspicion(text: str) -> str:
    """Why the text is not to be trusted; "" where nothing speaks against it."""
    if any(unicodedata.category(char) in _HIDDEN for char in text):
        return "it holds characters that nobody sees"
    if any(unicodedata.category(char) == "Cc" and char not in "\n\t" for char in text):
        return "it holds control characters"
    folded = unicodedata.normalize("NFKC", text)
    return next((why for why, pattern in _COMPILED if pattern.search(folded)), "")
