"""Signs that a text was written to steer a model and not to teach it.

Texts that agents read and results of tools are not trusted. A lesson learned from them may carry an order ("ignore your
instructions"), a pretended role or an address for leaked data. Such a text is never given to an agent: it is
quarantined with the reason, for review by a person.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from functools import cache
from typing import Final

from experiences.learning.lessons.orders import ORDERS
from experiences.learning.lessons.readings import decoded, is_disguised, readings

_ORDERS: Final = (
    r"\b(?:ignore|disregard|forget|override|bypass|do not (?:follow|obey)|don't (?:follow|obey))\b[^.]{0,40}"
    r"\b(?:previous|prior|earlier|above|all|any|other|system|your|these|those|the)\b[^.]{0,20}"
    r"\b(?:instruction|prompt|rule|guideline|message|direction|order|polic|safeguard)"
    r"|\b(?:forget|ignore|disregard) everything (?:above|before|you)\b"
    r"|\bpay no attention to\b[^.]{0,40}\b(?:instruction|rule|prompt|above|earlier)"
    r"|\byour (?:real|true|new|actual) (?:task|goal|purpose|instruction|objective|mission)"
)
_ROLES: Final = (
    r"\byou are (?:now|no longer)\b|\bfrom now on,? you\b|\bjailbreak|\bdeveloper mode\b"
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
_UNCHECKED: Final = (
    r"\b(?:approve|accept|grant|allow|authori[sz]e|refund|confirm|pay|release|sign)\b[^.]{0,20}"
    r"\b(?:every|all|any|each)\b[^.]{0,60}\b(?:without|regardless|unconditionally|no matter|even if)\b"
    r"|\bwithout (?:asking|telling|informing|notifying) (?:the |any)?(?:user|admin|owner|person|human|operator)"
    r"|\b(?:do not|don't|never) (?:tell|inform|warn|notify) (?:the |any)?(?:user|admin|owner|human)[^.]{0,20}\babout\b"
)
# A function that destroys, pays or gives rights, in imperative mood; lessons about other functions are what is wanted.
_FUNCTIONS: Final = (
    r"\b(?:call|run|execute|invoke|use|trigger)\s+(?:the\s+)?(?:tool\s+|function\s+)?[`'\"]?"
    r"(?:delete|remove|drop|wipe|purge|erase|refund|transfer|pay|send|grant|revoke|disable|reset|shutdown|kill|exec|eval"
    r"|export|upload|approve|withdraw|sudo)_\w"
    r"|\b(?:delete|drop|wipe|purge|erase|transfer|refund|grant|shutdown)_\w{1,40}\(|\brm -rf\b|\bdrop table\b"
)
# Top-level domains by name, since "notes.txt", "main.py" and a full stop without a space are no addresses.
_DOMAINS: Final = (
    "com|net|org|io|ru|cn|xyz|dev|app|ai|co|info|biz|top|site|online|shop|club|tech|example|onion|uk|de|fr|es|nl|eu|ch"
    "|jp|kr|br|mx|ca|tk|su|ua|icu|vip|click|link|live|cloud|store|space|website|gov|edu|mil|рф|中国"
)
_DOT: Final = r"\s?(?:\.|\[\.\]|\[dot\]|\(dot\))\s?"
_ADDRESSES: Final = (
    r"\b[a-z][a-z0-9+.-]{1,9}://|\bwww\.[a-z0-9-]|\b(?:javascript|mailto):"
    rf"|\w(?:\.|\[\.\]|\s?\[dot\]\s?|\s?\(dot\)\s?)(?:{_DOMAINS})\b(?!\()"
    rf"|\w\s?(?:@|\[at\]|\(at\))\s?[\w-]{{1,63}}{_DOT}\w"
    r"|\b(?:\d{1,3}\.){3}\d{1,3}\b|\b(?:[0-9a-f]{1,4}:){4}"
)
_SPELLED: Final = r"(?<!\w)(?:\w[\s._*·-]{1,4}){6}\w(?!\w)"
_MARKERS: Final = (
    r"<\|[a-z_]{2,20}\|>|\[/?inst\]|<</?sys>>|<<<|>>>|</\s*[a-z_]+\s*>|\bend of (?:system )?prompt\b"
    r"|\bnew (?:instructions?|rules?|orders?|task)\s*:"
)
_SIGNS: Final = (
    ("it orders the reader to leave its instructions", _ORDERS),
    ("it pretends to speak for the system", r"(?:^|[\n\"'(\[])\s*(?:system|assistant|developer|user|tool)\s*:"),
    ("it holds a role marker", _MARKERS),
    ("it gives the reader another role", _ROLES),
    ("it asks for secrets", _SECRETS),
    ("it holds an address", _ADDRESSES),
    ("it asks to send something away", _SENDING),
    (
        "it holds markup or code that is run",
        r"<\s*(?:script|img|iframe|a|svg|tool_call|function)\b|!\[[^\]]*\]\(|\bjavascript:|```|<!--",
    ),
    ("it orders the reader to agree without a check, or to hide something", _UNCHECKED),
    ("it orders a call of a function that destroys, pays or gives rights", _FUNCTIONS),
    ("it spells words letter by letter", _SPELLED),
    *ORDERS,
    ("it holds a call of a tool", r"\"(?:tool_calls?|function|arguments)\"\s*:"),
)
_COMPILED: Final = tuple((why, re.compile(pattern, re.IGNORECASE)) for why, pattern in _SIGNS)
_FORBIDS: Final = re.compile(
    r"\b(?:never|not|don't|avoid|without|instead of|cannot|can't)\b[^.;!?]{0,25}$", re.IGNORECASE
)
_HIDDEN: Final = {"Cf", "Co", "Cn", "Cs"}  # categories of characters that are not shown


def suspicion(text: str, functions: Collection[str] = ()) -> str:
    """Why the text is not to be trusted; "" where nothing speaks against it. ``functions``: names of those that act,
    whose call no text may order (``ordered_call``)."""
    if any(unicodedata.category(char) in _HIDDEN for char in text):
        return "it holds characters that are not shown"
    if any(unicodedata.category(char) == "Cc" and char not in "\n\t" for char in text):
        return "it holds control characters"
    if is_disguised(text):
        return "it holds words in letters of two alphabets"
    if hidden := decoded(text):
        return suspicion(hidden, functions) or "it holds encoded text"
    found = (why for reading in readings(text) for why, pattern in _COMPILED if pattern.search(reading))
    if why := next(found, ""):
        return why
    name = ordered_call(text, functions)
    return f"it orders a call of {name}, a function of this agent that acts" if name else ""


def ordered_call(text: str, functions: Collection[str]) -> str:
    """The function among ``functions`` whose call the text orders; "" for none.

    A name counts after a verb of calling, at the beginning of a clause, or with an opening bracket behind it, and not
    after a word that forbids. Names are found with spaces and hyphens in the place of underscores, with or without the
    name of their server in front (``server__tool``).
    """
    for reading in readings(text) if functions else ():
        for name in sorted(functions):
            if any(not _FORBIDS.search(reading[: match.start()]) for match in _order_of(name).finditer(reading)):
                return name
    return ""


@cache
def _order_of(name: str) -> re.Pattern[str]:
    server, _, tool = name.lower().rpartition("__")
    words = r"[\s_-]?".join(map(re.escape, re.split(r"[_-]+", tool)))
    whole = rf"[`'\"]?(?:{re.escape(server)}[\s_-]{{1,2}})?{words}\b" if server else rf"[`'\"]?{words}\b"
    verbs = r"\b(?:call|run|execute|invoke|use|trigger|start|apply|do)\s+(?:the\s+|a\s+)?(?:tool\s+|function\s+)?"
    clause = r"(?:^|[.,;:!?]\s*|\b(?:then|always|first|immediately|just|please|and)\s+)"
    return re.compile(rf"(?:{verbs}|{clause}){whole}|\b{words}\s?\(", re.IGNORECASE)
