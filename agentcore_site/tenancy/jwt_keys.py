"""The keys of JWTs: the one that signs, and all that verify.

Each key has an id (``kid``) and one algorithm. A token is verified by the key that it names, and by that key's
algorithm: what its header says of the algorithm has to agree, so that no public key passes for a secret
(RFC 8725, section 3.1). With ``JWT_PRIVATE_KEY`` tokens are signed by RS256, else by HS256 with ``SECRET_KEY``. What
verifies besides: ``SECRET_KEY`` and its fallbacks, and the public keys of ``JWT_VERIFYING_KEYS``. So a change of the
key or of the algorithm ends no token before its time.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from django.conf import settings
from rest_framework_simplejwt.backends import TokenBackend
from rest_framework_simplejwt.exceptions import TokenBackendError, TokenBackendExpiredToken
from rest_framework_simplejwt.tokens import AccessToken as BaseAccessToken
from rest_framework_simplejwt.tokens import RefreshToken as BaseRefreshToken

HS256: Final = "HS256"
RS256: Final = "RS256"


@dataclass(frozen=True)
class VerifyingKey:
    """``key`` is a secret of HS256 or a public key of RS256."""

    kid: str
    algorithm: str
    key: Any


@dataclass(frozen=True)
class KeyRing:
    """``signing`` signs with ``private`` and verifies like the others."""

    signing: VerifyingKey
    private: Any
    verifying: tuple[VerifyingKey, ...]

    def of(self, header: dict[str, Any]) -> list[VerifyingKey]:
        """The keys that may have signed a token with this header: the one that it names. A token without a name was
        made before keys had ids."""
        algorithm, kid = header.get("alg"), header.get("kid")
        return [key for key in self.verifying if key.algorithm == algorithm and kid in (None, key.kid)]


def key_ring() -> KeyRing:
    """The keys of this process."""
    return _ring(
        settings.SECRET_KEY,
        tuple(settings.SECRET_KEY_FALLBACKS),
        settings.JWT_PRIVATE_KEY,
        tuple(settings.JWT_VERIFYING_KEYS),
    )


@lru_cache(maxsize=4)
def _ring(secret: str, former: tuple[str, ...], private: str, public: tuple[str, ...]) -> KeyRing:
    secrets = [VerifyingKey(_secret_id(one), HS256, one) for one in (secret, *former)]
    others = [_public(load_pem_public_key(one.encode())) for one in public]
    if not private:
        return KeyRing(secrets[0], secret, (*secrets, *others))
    key: Any = load_pem_private_key(private.encode(), None)
    mine = _public(key.public_key())
    return KeyRing(mine, key, (mine, *(one for one in others if one.kid != mine.kid), *secrets))


def _public(key: Any) -> VerifyingKey:
    return VerifyingKey(_thumbprint(key), RS256, key)


def _secret_id(secret: str) -> str:
    """A name from which the secret can't be found."""
    return hmac.new(secret.encode(), b"agentcore/jwt/kid/v1", hashlib.sha256).hexdigest()[:16]


def _thumbprint(key: RSAPublicKey) -> str:
    """RFC 7638: the digest of the public numbers, in their canonical form."""
    named = jwt.algorithms.RSAAlgorithm.to_jwk(key, as_dict=True)
    canonical = json.dumps({name: named[name] for name in ("e", "kty", "n")}, separators=(",", ":"))
    return base64.urlsafe_b64encode(hashlib.sha256(canonical.encode()).digest()).decode().rstrip("=")


def public_set() -> dict[str, list[dict[str, str]]]:
    """The public keys as a JSON Web Key Set (RFC 7517). A secret is never in it."""
    keys = [key for key in key_ring().verifying if key.algorithm == RS256]
    return {"keys": [_as_jwk(key) for key in keys]}


def _as_jwk(key: VerifyingKey) -> dict[str, str]:
    numbers = jwt.algorithms.RSAAlgorithm.to_jwk(key.key, as_dict=True)
    return {"kty": "RSA", "use": "sig", "alg": RS256, "kid": key.kid, "n": numbers["n"], "e": numbers["e"]}


class RingBackend(TokenBackend):
    """Signs and verifies by the ring, which is read for each token, since a test may change the settings."""

    def __init__(self) -> None:
        super().__init__(HS256)

    def encode(self, payload: dict[str, Any]) -> str:
        ring = key_ring()
        return jwt.encode(payload, ring.private, algorithm=ring.signing.algorithm, headers={"kid": ring.signing.kid})

    def decode(self, token: Any, verify: bool = True) -> dict[str, Any]:
        """The claims of a token.

        Raises:
            TokenBackendExpiredToken: it was signed by us, and its time is over.
            TokenBackendError: anything else.
        """
        try:
            keys = key_ring().of(jwt.get_unverified_header(token))
        except jwt.InvalidTokenError as error:
            raise TokenBackendError("Token is invalid") from error
        for key in keys:
            try:
                found: dict[str, Any] = jwt.decode(
                    token, key.key, algorithms=[key.algorithm], options={"verify_aud": False}
                )
                return found
            except jwt.ExpiredSignatureError as error:
                raise TokenBackendExpiredToken("Token is expired") from error
            except jwt.InvalidSignatureError:
                continue  # a token without a key's name may be of another of them
            except jwt.InvalidTokenError as error:
                raise TokenBackendError("Token is invalid") from error
        raise TokenBackendError("Token is invalid")


class AccessToken(BaseAccessToken):
    _token_backend = RingBackend()


class RefreshToken(BaseRefreshToken):
    _token_backend = RingBackend()
    access_token_class = AccessToken
