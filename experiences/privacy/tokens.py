"""Keys and tokens that are known by their own form: API keys, JWTs, private keys, passwords in URLs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from experiences.privacy.checksums import is_jwt_header, looks_random
from experiences.privacy.kinds import PLACEHOLDERS, Span
from experiences.privacy.normalisation import Reading

# All are at least this long without a break: a substring search finds where they could begin.
_LONG: Final = "x" * 20
_RUNS: Final = str.maketrans(
    {chr(code): "x" if chr(code).isalnum() or chr(code) in "-_" else " " for code in range(128)}
)
_KEY: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:AKIA|ASIA|ABIA|ACCA|AGPA|AIDA|AIPA|ANPA|ANVA|AROA)[A-Z0-9]{16}(?![A-Za-z0-9])"  # AWS
    r"|gh[pousr]_[A-Za-z0-9]{16,255}|github_pat_[A-Za-z0-9_]{16,255}"  # GitHub
    r"|glpat-[\w-]{14,64}"  # GitLab
    r"|xox[abeoprs]-[A-Za-z0-9-]{15,255}|xapp-\d-[A-Za-z0-9-]{13,255}"  # Slack
    r"|AIza[\w-]{35}(?![\w-])"  # Google
    r"|[srp]k_(?:live|test)_[A-Za-z0-9]{12,255}|whsec_[A-Za-z0-9+/=]{14,128}"  # Stripe
    r"|hf_[A-Za-z0-9]{17,64}(?![A-Za-z0-9])"  # Hugging Face
    r"|npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])|pypi-AgE[\w-]{40,255}|dop_v1_[a-f0-9]{64}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"
    # The rest could be words: "sk-container-id-1" is a class of a style sheet.
    r"|(?:[spr]k[-_]|gsk_|r8_|xai-|pplx-|nvapi-|tvly-|fw_|csk-|ntn_|lin_api_|key-)(?P<value>[\w-]{16,512}))"
)
# Those in several parts, known by what comes before the last one: SendGrid, Google, Telegram, Slack's webhooks.
_HEAD: Final = re.compile(
    r"(?:(?<![A-Za-z0-9])(?:SG\.(?:[\w-]{16,32}\.)?|ya29\.)"
    r"|(?<=\d{8}:)|(?<=hooks\.slack\.com/services/)T[A-Z0-9]{6,12}/B[A-Z0-9]{6,12}/)\Z"
)
_TAIL: Final = re.compile(r"\.[\w-]{16,64}")
_JWT: Final = re.compile(r"e(?<![\w-]e)[yw][A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{4,8000}\.(?:[A-Za-z0-9_-]{1,2000})?")
_PEM_BEGIN: Final = re.compile(r"-----BEGIN (?P<name>[A-Z ]{0,24}PRIVATE KEY(?: BLOCK)?)-----")
_PEM_BODY: Final = re.compile(r"[A-Za-z0-9+/=:, \t\r\n-]*")
_PEM_LONGEST: Final = 20_000
_USERINFO: Final = re.compile(
    r"://(?P<user>[^\s/?#@:\"'<>]{0,128}):(?P<password>[^\s/?#\"'<>]{1,256})@(?=\w|\[(?:ip\]|[0-9a-fA-F:]))"
)


def api_keys(reading: Reading) -> Iterator[Span]:
    """Of known providers, by their prefixes."""
    text = reading.text
    runs = reading.outline.translate(_RUNS)
    start = runs.find(_LONG)
    while start >= 0:
        end = runs.find(" ", start)
        end = end if end >= 0 else len(runs)
        head = _HEAD.search(text, max(0, start - 80), start) if text[start - 1 : start] in {".", ":", "/"} else None
        if head is not None:
            tail = _TAIL.match(text, end)
            yield Span(head.start(), tail.end() if tail else end, "api key")
        else:
            for match in _KEY.finditer(text, start, end + 1):
                if match["value"] is None or _is_drawn(match["value"]):
                    yield Span(match.start(), match.end(), "api key")
        start = runs.find(_LONG, end)


def _is_drawn(value: str) -> bool:
    return looks_random(value) and (len(value) >= 40 or max(map(len, re.split("[-_]", value))) >= 12)


def jwts(reading: Reading) -> Iterator[Span]:
    """Three parts in base64url, of which the first is a JSON header; the third may be empty (unsecured)."""
    text = reading.text
    if not ("eyJ" in text or "ewo" in text or "eyA" in text or "ew0" in text):  # {" and { followed by a space or a line
        return
    for found in _JWT.finditer(text):
        if is_jwt_header(found[0].partition(".")[0]):
            yield Span(found.start(), found.end(), "jwt")


def private_keys(reading: Reading) -> Iterator[Span]:
    """PEM blocks from BEGIN to END, or as far as they look like one where the end is missing."""
    text = reading.text
    done = 0
    for found in _PEM_BEGIN.finditer(text):
        begin = found.end()
        if found.start() < done:
            continue
        end = f"-----END {found['name']}-----"
        at = text.find(end, begin, begin + _PEM_LONGEST)
        if at >= 0 and _PEM_BODY.fullmatch(text, begin, at):
            done = at + len(end)
            yield Span(found.start(), done, "api key")
            continue
        body = _PEM_BODY.match(text, begin, begin + _PEM_LONGEST)
        if body is not None and len(body[0]) >= 16:  # else the bare words of the header
            done = body.end()
            yield Span(found.start(), done, "api key")


def url_passwords(reading: Reading) -> Iterator[Span]:
    """The password of scheme://user:password@host; the user and the host stay."""
    for found in _USERINFO.finditer(reading.text):
        if not is_blank(found["password"]):
            yield Span(found.start("password"), found.end("password"), "password")


_BLANK: Final = re.compile(
    r"([*.•x#_-])\1+|\$\{.*|\$\(.*|\$(?:[A-Z_]+|[a-z_]+)|\{\{.*|\{\w*\}?|<.*|%\(.*|%[A-Z_]+%|%s"
    r"|\[(?i:redacted|filtered|hidden|masked)\].*",
    re.DOTALL,
)


def is_blank(value: str) -> bool:
    """A mask, a variable or one of our own placeholders is in the place of a secret."""
    return bool(_BLANK.fullmatch(value)) or ("[" in value and any(mark in value for mark in PLACEHOLDERS))
