"""Secrets that are known by the words before them: ``password=...``, ``"api_key": "..."``, ``Bearer ...``."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import Final

from experiences.privacy.checksums import looks_random
from experiences.privacy.kinds import PLACEHOLDERS, Span
from experiences.privacy.normalisation import Reading
from experiences.privacy.tokens import is_blank

# All patterns here read lower-case text: alternatives that begin with a literal are then skipped through at a
# search's speed, which case-insensitive ones are not.
_SIGN: Final = r"(?P<between>\\{0,3}[\"'`]?\]?[ \t]{0,4}(?:>(?=\S)|(?:=>|:=|===?|[:=])[ \t]{0,4})"
_PASSWORD: Final = re.compile(
    r"(?:passwor[dt]|passwd|passphrase|passcode|pwd|contraseña|senha|mot de passe|pass)"
    r"(?:[_-]?(?:hash|value|confirmation|again|new|old|[0-9])|s)?"
    rf"{_SIGN}|[ ](?:is|was|ist|lautet|es|est|é)[ :][ ]{{0,3}}|(?<=--password)[ ]|(?<=--passphrase)[ ])"
)
_SECRET: Final = re.compile(
    r"(?:api[_ -]?key|access[_ -]?key|auth[_-]?key|account[_-]?key|shared[_-]?key|private[_-]?key|signing[_-]?key"
    r"|encryption[_-]?key|virtual[_-]?key|secret(?:[ ]key)?|token|credential)"
    r"(?:[_-]?(?:key|id|value|access|token|secret|base64|string|hash)){0,3}"
    rf"{_SIGN}|[ ](?:is|was)[ :][ ]{{0,3}}|[ ](?=\S{{12}}))"
)
_HEADER: Final = re.compile(
    r"authorization\\{0,3}[\"'`]?\s{0,4}[:=]\s{0,4}\\{0,3}[\"'`]?(?P<scheme>basic|bearer|token|apikey|key)?\s{0,4}"
    r"(?P<value>[a-z0-9._~+/=-]{6,4096})"
    r"|bearer\s{1,4}(?P<bearer>[a-z0-9._~+/=-]{8,4096})"
)

_OPENS: Final = re.compile(r"\\{0,3}[\"'`]")
_BARE: Final = re.compile(r"[^\s\"'`<>&]{1,512}")
_MARK: Final = re.compile("|".join(map(re.escape, PLACEHOLDERS)))
_NEXT_PAIR: Final = re.compile(r"[,;]\s?[\w.-]{1,40}[=:]")
_TAIL: Final = ",;:.)}]\\"
_LONGEST: Final = 512

# What code and prose say where no secret is.
_TYPES: Final = re.compile(
    r"(?:none|null|nil|true|false|undefined|str|string|int|bool|bytes|text|any|optional|password|passwd|pwd|secret|token"
    r"|input|env|nan|secretstr|char|varchar|unset|redacted|masked)(?!\w)",
    re.IGNORECASE,
)
_PROSE: Final = re.compile(
    r"required|hidden|empty|missing|invalid|incorrect|wrong|correct|expired|forgotten|reset|changed?|weak|strong"
    r"|necessary|needed|not|too|the|a|an|your|my|our|their|this|that|same|stored|encrypted|hashed|protected|default"
    r"|number",
    re.IGNORECASE,
)
_CALL: Final = re.compile(r"[A-Za-z_][\w.]*[(\[]|(?:self|os|cfg|config|settings|args|request|env|process|options)\.\w")
# Names of code: settings.password, raw_password, EllipticCurvePrivateKey.
_NAME: Final = re.compile(r"[A-Za-z_]+(?:\.[A-Za-z_]+)+|[a-z]+(?:_[a-z]+)+|[A-Z]+(?:_[A-Z]+)+|(?:[A-Z][a-z]+){2,}")
_WORD_FOLLOWS: Final = re.compile(r" [a-z]{2,}(?![\w@=:.-])")
# Forty characters with slashes among them; a path of that length has more.
_AWS_SECRET: Final = re.compile(r"(?=.{40}\Z)(?!(?:[^/]*/){5})(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z0-9/+]*")
_YOURS: Final = re.compile(r"your|my[-_]|example|dummy|placeholder|insert|replace", re.IGNORECASE)


def passwords(reading: Reading) -> Iterator[Span]:
    """``password: ...``, ``PWD=...``, ``"passwd": "..."``, "my password is ..."."""
    for found in _PASSWORD.finditer(reading.low):
        span = _value(reading.text, found, "password", _is_password)
        if span is not None:
            yield span


def secrets(reading: Reading) -> Iterator[Span]:
    """Keys, tokens and secrets by their names, and ``Authorization`` headers."""
    low = reading.low
    if "auth" in low or "bearer" in low:
        for found in _HEADER.finditer(low):
            span = _of_header(reading.text, found)
            if span is not None:
                yield span
    for found in _SECRET.finditer(low):
        span = _value(reading.text, found, "api key", _is_secret)
        if span is not None:
            yield span


def _of_header(text: str, found: re.Match[str]) -> Span | None:
    group = "value" if found["value"] else "bearer"
    value = text[found.start(group) : found.end(group)].rstrip(".")
    if is_blank(value) or _YOURS.match(value):
        return None
    start = found.start(group)
    if found["scheme"] == "basic" and _is_pair(value):
        return Span(start, start + len(value), "password")
    if not any(map(str.isdigit, value)) and len(value) < 20:
        return None
    return Span(start, start + len(value), "api key")


def _is_pair(value: str) -> bool:
    """Base64 of user:password (RFC 7617)."""
    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4))
    except (binascii.Error, ValueError):
        return False


Check = Callable[[str, bool, bool, re.Match[str]], bool]


def _value(text: str, found: re.Match[str], kind: str, is_one: Check) -> Span | None:
    """The value assigned behind ``found``, if it is a secret by ``is_one(value, quoted, more words follow, found)``."""
    start = found.end()
    before = text[found.start() - 1 : found.start()]
    if before == "[" and text.startswith(PLACEHOLDERS, found.start() - 1):  # it names nothing, it replaces
        return None
    if before == "/" and found["between"] == ">":  # </password>
        return None
    opens = _OPENS.match(text, start)
    if opens is not None:
        end = text.find(opens[0], opens.end(), opens.end() + _LONGEST)
        if end > 0 and "\n" not in text[opens.end() : end]:
            value = text[opens.end() : end]
            return Span(opens.end(), end, kind) if is_one(value, True, False, found) else None
        start = opens.end()
    mark = _MARK.search(text, start, start + _LONGEST)
    bare = _BARE.match(text, start, mark.start() if mark else len(text))
    if bare is None:
        return None
    pair = _NEXT_PAIR.search(bare[0])
    value = bare[0][: pair.start()] if pair else bare[0]
    if not value.startswith("["):
        value = value.rstrip(_TAIL) or value
    follows = bool(_WORD_FOLLOWS.match(text, start + len(value)))
    return Span(start, start + len(value), kind) if is_one(value, False, follows, found) else None


def _is_password(value: str, quoted: bool, follows: bool, found: re.Match[str]) -> bool:
    if len(value) < (1 if quoted else 4) or is_blank(value) or _YOURS.match(value) or _names_no_password(found):
        return False
    if quoted:
        return not _TYPES.fullmatch(value) and not (_is_said(found) and " " in value)
    if _TYPES.match(value) or value[0] in "{[(" or _CALL.match(value):
        return False
    if found["between"].strip() and not _is_said(found) and _NAME.fullmatch(value):
        return False
    plain = value.isalpha() and value[1:] == value[1:].lower()
    if found["between"] == "=":
        return not (plain and _is_bare_pass(found))
    if _is_said(found):  # "the password is incorrect"
        return len(value) >= 5 and not plain and not (value.isalpha() and value.isupper())
    if _is_bare_pass(found) and (plain or value.isdigit()):  # "pass: 12, fail: 3"
        return False
    return not (plain and (follows or _PROSE.fullmatch(value)))


def _is_said(found: re.Match[str]) -> bool:
    """With a verb in between: "my password is ..."."""
    return found["between"].strip(" \t:").isalpha()


def _is_bare_pass(found: re.Match[str]) -> bool:
    """The name is "pass" as a word of its own."""
    return not found[0][4:5].isalpha() and found.string[found.start() - 1 : found.start()] not in {"_", "-"}


def _names_no_password(found: re.Match[str]) -> bool:
    """The name ends in "pass" and is another word: bypass, highpass."""
    return not found[0][4:5].isalpha() and found.string[found.start() - 1 : found.start()].isalpha()


def _is_secret(value: str, quoted: bool, follows: bool, found: re.Match[str]) -> bool:
    if len(value) < 8 or is_blank(value) or _YOURS.match(value) or _NAME.fullmatch(value):
        return False
    if not quoted and _CALL.match(value):
        return False
    between = found["between"].strip()
    weak = found[0].startswith(("token", "credential"))
    has_digit, has_letter = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    if not between or between.isalpha():  # "the token 3f8a...": nothing but a machine's value will do
        plain = "/" not in value or bool(_AWS_SECRET.fullmatch(value))
        return len(value) >= 16 and looks_random(value) and " " not in value and plain
    if has_digit and has_letter:
        return " " not in value or (quoted and not weak)
    if quoted:
        return not weak and len(value) >= 12
    return len(value) >= 20 and has_letter and value.lower() != value
