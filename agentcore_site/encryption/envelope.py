"""Encrypted texts: compressed, then AES-256-GCM under a data key, as ``sealed:<version of the key>:<base64>``.

The content is a nonce of 96 random bits, the ciphertext and its tag of 128 bits. Associated data name the column and
the row, so that a text can't be decrypted in another place. Pure: no Django.
"""

from __future__ import annotations

import os
import re
import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from agentcore_site.lib.key_errors import Unopenable

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
LEVEL: Final = 1  # of zlib: higher ones cost several times as much for a few percent
SEALED: Final = re.compile(r"sealed:(\d{1,4}):([A-Za-z0-9+/]*={0,2})")
PLAIN: Final = "sealed:0:"  # before a plain text that looks like an encrypted one


@dataclass(frozen=True, slots=True)
class OpenKey:
    """A decrypted data key. ``version`` from 1 on."""

    version: int
    cipher: AESGCM

    @classmethod
    def of(cls, version: int, key: bytes) -> OpenKey:
        return cls(version, AESGCM(key))

    def seal(self, data: bytes, place: str) -> str:
        """``place``: column and row."""
        nonce = os.urandom(NONCE_BYTES)
        sealed = nonce + self.cipher.encrypt(nonce, zlib.compress(data, LEVEL), self._about(place))
        return f"sealed:{self.version}:{b64encode(sealed).decode()}"

    def open(self, sealed: str, place: str) -> bytes:
        """Raises:
        Unopenable: it is of another place or key, or was altered.
        """
        raw = b64decode(sealed.rpartition(":")[2])
        try:
            data = self.cipher.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], self._about(place))
        except (InvalidTag, ValueError):
            raise Unopenable(
                f"An encrypted text ({place}) does not open with data key {self.version}: it was altered, or moved here"
                " from another row."
            ) from None
        return zlib.decompress(data)

    def _about(self, place: str) -> bytes:
        return f"{self.version}/{place}".encode()


def version_of(text: str) -> int:
    """The version of the key that encrypted a text; 0 for none."""
    found = SEALED.fullmatch(text) if text.startswith("sealed:") else None
    return int(found[1]) if found else 0
