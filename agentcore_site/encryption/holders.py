"""Holders of the key that encrypts data keys: this site (a key derived from ``SECRET_KEY``), or an external server."""

from __future__ import annotations

from base64 import b64decode, b64encode
from functools import cache
from typing import Final, Protocol

from agentcore_site import vault
from agentcore_site.lib.key_errors import KeyUnavailable
from agentcore_site.lib.registry import Registry

LOCAL: Final = "local"


class KeyHolder(Protocol):
    """Encrypts and decrypts data keys."""

    def seal(self, key: bytes) -> str:
        """Raises:
        KeyUnavailable: the holder does not answer.
        """
        ...

    def open(self, sealed: str) -> bytes:
        """Raises:
        KeyUnavailable: the holder does not answer, or can't decrypt it.
        """
        ...

    def seal_again(self, sealed: str) -> str:
        """Encrypts the same data key under the holder's newest key. The data key itself need not leave the holder.

        Raises:
            KeyUnavailable: as above.
        """
        ...


holders: Registry[type[KeyHolder]] = Registry("holder of keys", entry_point_group="agentcore.key_holders")


@holders.register(LOCAL)
class LocalHolder:
    """A key derived from ``SECRET_KEY``, as for other secrets in the database."""

    def seal(self, key: bytes) -> str:
        return vault.sealed(b64encode(key).decode())

    def open(self, sealed: str) -> bytes:
        try:
            return b64decode(vault.opened(sealed))
        except vault.Unsealable as error:
            raise KeyUnavailable(
                "A data key can't be opened: SECRET_KEY changed. Put the old one into SECRET_KEY_FALLBACKS."
            ) from error

    def seal_again(self, sealed: str) -> str:
        return self.seal(self.open(sealed))


@cache
def holder(name: str) -> KeyHolder:
    """Raises:
    UnknownName: there is no holder of that name.
    """
    return holders.get(name)()
