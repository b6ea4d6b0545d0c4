"""Data keys encrypted by the transit engine of HashiCorp Vault or OpenBao, over HTTP. Its key never leaves the server.

The stored value is the engine's answer: ``vault:v<version of its key>:<base64>``.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any, Final
from urllib.parse import quote

from django.conf import settings

from agentcore_site.encryption.holders import holders
from agentcore_site.lib.http_client import http_client_of
from agentcore_site.lib.key_errors import KeyUnavailable
from agentcore_site.lib.row_scope import in_request

NAME: Final = "vault"
SECONDS: Final = 5.0
REQUEST_SECONDS: Final = 0.9  # to connect, and again the same for an answer, within a request


@holders.register(NAME)
class TransitHolder:
    """The key ``VAULT_TRANSIT_KEY`` of the engine at ``VAULT_TRANSIT_MOUNT``."""

    def seal(self, key: bytes) -> str:
        return str(self._ask("encrypt", {"plaintext": b64encode(key).decode()})["ciphertext"])

    def open(self, sealed: str) -> bytes:
        return b64decode(self._ask("decrypt", {"ciphertext": sealed})["plaintext"])

    def seal_again(self, sealed: str) -> str:
        return str(self._ask("rewrap", {"ciphertext": sealed})["ciphertext"])

    def _ask(self, what: str, body: dict[str, str]) -> dict[str, Any]:
        server = http_client_of(settings.VAULT_ADDR)
        path = f"{server.path}/v1/{settings.VAULT_TRANSIT_MOUNT}/{what}/{quote(settings.VAULT_TRANSIT_KEY)}"
        headers = {"X-Vault-Token": settings.VAULT_TOKEN, "X-Vault-Request": "true", "Content-Type": "application/json"}
        if settings.VAULT_NAMESPACE:
            headers["X-Vault-Namespace"] = settings.VAULT_NAMESPACE
        seconds = REQUEST_SECONDS if in_request() else SECONDS
        try:
            status, _, answer = server.exchange(
                "POST", path, seconds=seconds, headers=headers, body=json.dumps(body).encode()
            )
            if status == 200:
                return dict(json.loads(answer)["data"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KeyUnavailable(
                "The key server (VAULT_ADDR) does not answer. Nothing was lost; try again later."
            ) from error
        raise KeyUnavailable(f"The key server (VAULT_ADDR) refuses to {what} with {status}: {_errors(answer)}")


def _errors(body: bytes) -> str:
    try:
        return "; ".join(map(str, json.loads(body)["errors"]))[:300] or "it gives no reason."
    except (ValueError, KeyError, TypeError):
        return "it gives no reason."
