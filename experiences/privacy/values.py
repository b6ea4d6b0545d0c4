"""Redaction of nested JSON-like values."""

from __future__ import annotations

from typing import Any, Final

from experiences.privacy.kinds import PLACEHOLDER, PLACEHOLDERS
from experiences.privacy.redaction import redact

_MAX_DEPTH: Final = 200
TOO_DEEP: Final = "[left out: nested too deep]"

_INERT: Final = frozenset({int, float, bool, type(None)})
_REMEMBERED, _REMEMBERED_LENGTH = 50_000, 200
_clean: set[str] = set()
_plain_keys: set[str] = set()

# Names by themselves; as the end of a longer one they may say another thing.
_PASSWORDS: Final = frozenset({"pwd", "passcode"})
_SECRETS: Final = frozenset(
    {
        "authorization",
        "proxyauthorization",
        "token",
        "credentials",
        "signingkey",
        "encryptionkey",
        "cookie",
        "setcookie",
    }
)
_ENDS: Final = (
    ("password", "password"),
    ("passwd", "password"),
    ("passphrase", "password"),
    ("apikey", "api key"),
    ("accesskey", "api key"),
    ("secretkey", "api key"),
    ("privatekey", "api key"),
    ("authtoken", "api key"),
    ("accesstoken", "api key"),
    ("refreshtoken", "api key"),
    ("idtoken", "api key"),
    ("sessiontoken", "api key"),
    ("bearertoken", "api key"),
    ("apitoken", "api key"),
    ("secret", "api key"),
)


def redact_value(value: Any) -> Any:
    """``value`` with every text in it redacted, keys of dicts included; the same object where nothing changed.

    Strings, lists, tuples and dicts are looked into; anything else is returned as it is. Under a key that names a
    secret ("password", "api_key", "authorization" ...) every text and number is replaced, of any form.
    What lies deeper than 200 levels is replaced by a note.
    """
    return value if _is_untouched(value, 0) else _redacted(value, "", 0)


def is_clean(value: Any) -> bool:
    """Whether ``redact_value`` would return the same object. It builds nothing, and remembers clean texts."""
    return _is_untouched(value, 0)


def secret_kind(key: str) -> str:
    """The kind of secret that a dict's key names, "" for none: "X-Api-Key" → "api key"."""
    if len(key) > 64:
        return ""
    plain = key.lower().replace("_", "").replace("-", "").replace(" ", "")
    if plain in _PASSWORDS:
        return "password"
    if plain in _SECRETS:
        return "api key"
    return next((kind for end, kind in _ENDS if plain.endswith(end)), "")


def _is_clean(text: str) -> bool:
    """True if ``text`` has nothing to redact. Steps say the same words over and over, so what was found clean is
    remembered; what was not never is."""
    if text in _clean:
        return True
    if redact(text) is not text:
        return False
    if len(text) <= _REMEMBERED_LENGTH:
        if len(_clean) >= _REMEMBERED:
            _clean.clear()
        _clean.add(text)
    return True


def _is_plain_key(key: Any) -> bool:
    """Whether a dict's key is a clean text that names no secret."""
    if key in _plain_keys:
        return True
    if not isinstance(key, str) or secret_kind(key) or not _is_clean(key):
        return False
    if len(key) <= _REMEMBERED_LENGTH:
        if len(_plain_keys) >= _REMEMBERED:
            _plain_keys.clear()
        _plain_keys.add(key)
    return True


def _is_untouched(value: Any, depth: int) -> bool:
    """True if nothing in ``value`` has to change. This is the usual case: it is checked first, and builds nothing."""
    kind = type(value)
    if kind is str:
        return value in _clean or _is_clean(value)
    if kind in _INERT:
        return True
    if depth >= _MAX_DEPTH:
        return False
    if kind is dict:
        for key, one in value.items():
            if not (key in _plain_keys or _is_plain_key(key)):
                return False
            if not (one in _clean if type(one) is str else type(one) in _INERT) and not _is_untouched(one, depth + 1):
                return False
        return True
    if kind is list or kind is tuple:
        return all(_is_untouched(one, depth + 1) for one in value)
    return False


def _redacted(value: Any, secret: str, depth: int) -> Any:
    if isinstance(value, str):
        if secret:
            return value if value in PLACEHOLDERS or not value else PLACEHOLDER[secret]
        return redact(value)
    if isinstance(value, dict | list | tuple):
        if depth >= _MAX_DEPTH:
            return TOO_DEEP if value else value
        if isinstance(value, dict):
            return _redacted_dict(value, secret, depth)
        return _redacted_sequence(value, secret, depth)
    if secret and isinstance(value, int | float) and not isinstance(value, bool):
        return PLACEHOLDER[secret]
    return value


def _redacted_sequence(value: list[Any] | tuple[Any, ...], secret: str, depth: int) -> Any:
    changed = None
    for at, one in enumerate(value):
        new = _redacted(one, secret, depth + 1)
        if new is not one:
            if changed is None:
                changed = list(value)
            changed[at] = new
    if changed is None:
        return value
    if isinstance(value, tuple):
        return type(value)(*changed) if hasattr(value, "_fields") else tuple(changed)
    return changed


def _redacted_dict(value: dict[Any, Any], secret: str, depth: int) -> Any:
    pairs: list[tuple[Any, Any]] = []
    changed = False
    for key, one in value.items():
        named = redact(key) if isinstance(key, str) else key
        kind = secret or (secret_kind(key) if isinstance(key, str) else "")
        new = _redacted(one, kind, depth + 1)
        changed = changed or named is not key or new is not one
        pairs.append((named, new))
    if not changed:
        return value
    made: dict[Any, Any] = {}
    for key, one in pairs:
        made[_free(key, made)] = one
    return made


def _free(key: Any, taken: dict[Any, Any]) -> Any:
    """Two addresses as keys become the same text; neither value may be lost."""
    if key not in taken:
        return key
    return next(name for n in range(2, len(taken) + 3) if (name := f"{key} ({n})") not in taken)
