"""Secrets in the database: sealed with the site's key, opened only where they are used.

Fernet (AES-128-CBC with HMAC-SHA256) under a key that is derived from ``SECRET_KEY`` by HKDF, so that no other use
of that key can be turned into this one. After a change of ``SECRET_KEY`` the old one goes into
``SECRET_KEY_FALLBACKS``: what it sealed still opens, and is sealed again when it is next saved.
"""

from __future__ import annotations

import base64
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings


class Unsealable(ValueError):
    """The sealed text was made with another key, or altered."""


def sealed(text: str) -> str:
    """``text`` so that only this site can read it; "" stays ""."""
    return _keys(settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS).encrypt(text.encode()).decode() if text else ""


def opened(token: str) -> str:
    """The secret in a sealed token.

    Raises:
        Unsealable: with another SECRET_KEY, or not by us. The secret has to be entered again.
    """
    if not token:
        return ""
    try:
        return _keys(settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS).decrypt(token.encode()).decode()
    except InvalidToken:
        raise Unsealable(
            "A stored secret can't be opened: SECRET_KEY changed. Enter it again, or put the old key into"
            " SECRET_KEY_FALLBACKS."
        ) from None


@lru_cache(maxsize=4)
def _keys(*secrets: str) -> MultiFernet:
    return MultiFernet([Fernet(_derived(secret)) for secret in secrets])


def _derived(secret: str) -> bytes:
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"agentcore/vault/v1").derive(secret.encode())
    return base64.urlsafe_b64encode(derived)
