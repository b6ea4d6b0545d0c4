"""The conversation with the provider: authorization code with PKCE, state, nonce (OpenID Connect Core 1.0, RFC 7636).

Each address that its description names goes through the guard of outbound calls. Description and keys are read again at
each sign-in: they are few, and a key that was changed is known at once.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

import jwt
from django.conf import settings

from agentcore_site.outbound import OutboundClient, OutboundError
from agentcore_site.tenancy.single_sign_on.errors import ProviderUnavailable, SignOnRefused

TIMEOUT_SECONDS: Final = 8.0  # of each exchange
LARGEST: Final = 1_000_000  # bytes
CLOCK_SECONDS: Final = 30  # that two clocks may differ
# Signed by a private key: a secret that we share with the provider would sign as well as it does.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
AWAY: Final = "can't be asked right now. Try again in a moment"


@dataclass(frozen=True)
class Attempt:
    """Values that identify one sign-in when the browser comes back."""

    state: str
    nonce: str
    verifier: str

    @classmethod
    def begin(cls) -> Attempt:
        return cls(*(secrets.token_urlsafe(32) for _ in range(3)))

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Attempt:
        return cls(str(kept["state"]), str(kept["nonce"]), str(kept["verifier"]))

    def kept(self) -> dict[str, str]:
        return asdict(self)

    @property
    def challenge(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def authorization_address(attempt: Attempt, *, back: str) -> str:
    """The provider's address for the browser; ``back`` is the address to which it returns.

    Raises:
        ProviderUnavailable: it does not describe itself.
    """
    query = {
        "response_type": "code",
        "client_id": settings.OIDC_CLIENT_ID,
        "redirect_uri": back,
        "scope": settings.OIDC_SCOPES,
        "state": attempt.state,
        "nonce": attempt.nonce,
        "code_challenge": attempt.challenge,
        "code_challenge_method": "S256",
    }
    place = _described("authorization_endpoint", _description())
    return f"{place}{'&' if '?' in place else '?'}{urlencode(query)}"


def claims_of(attempt: Attempt, *, code: str, back: str) -> dict[str, Any]:
    """The provider's claims about the person, from its signed ID token, and from ``userinfo`` where that lacks any.

    Raises:
        ProviderUnavailable: it can't be asked.
        SignOnRefused: it does not take the code, or its token is not for us, not now, or not of this sign-in.
    """
    described = _description()
    given = _tokens(described, attempt, code, back)
    claims = _verified(str(given.get("id_token", "")), attempt, described)
    wanted = {"email", "email_verified"} | ({settings.OIDC_GROUPS_CLAIM} if settings.OIDC_GROUPS else set())
    if wanted - set(claims) and described.get("userinfo_endpoint") and given.get("access_token"):
        headers = {"authorization": f"Bearer {given['access_token']}"}
        more = _fetched(_described("userinfo_endpoint", described), headers=headers)
        if more.get("sub") != claims["sub"]:
            raise SignOnRefused("The provider named two people at once. Try again.")
        claims = {name: more[name] for name in wanted if name in more} | claims
    return claims


def _description() -> dict[str, Any]:
    found = _fetched(f"{settings.OIDC_ISSUER.rstrip('/')}/.well-known/openid-configuration")
    if found.get("issuer") != settings.OIDC_ISSUER:
        raise ProviderUnavailable(
            f"{settings.OIDC_NAME} describes itself as another issuer than OIDC_ISSUER. Ask an admin."
        )
    return found


def _described(name: str, description: Mapping[str, Any]) -> str:
    place = description.get(name)
    if not isinstance(place, str) or not place.startswith(("https://", "http://")):
        raise ProviderUnavailable(f"{settings.OIDC_NAME} does not describe its {name}. Ask an admin.")
    if settings.OIDC_ISSUER.startswith("https://") and not place.startswith("https://"):
        raise ProviderUnavailable(f"{settings.OIDC_NAME} has a {name} without TLS. Ask an admin.")
    return place


def _tokens(description: Mapping[str, Any], attempt: Attempt, code: str, back: str) -> dict[str, Any]:
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": back,
        "code_verifier": attempt.verifier,
        "client_id": settings.OIDC_CLIENT_ID,
    }
    headers = {"content-type": "application/x-www-form-urlencoded"}
    methods = description.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    if settings.OIDC_CLIENT_SECRET and "client_secret_basic" in methods:
        pair = f"{quote(settings.OIDC_CLIENT_ID, '')}:{quote(settings.OIDC_CLIENT_SECRET, '')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    elif settings.OIDC_CLIENT_SECRET:
        form["client_secret"] = settings.OIDC_CLIENT_SECRET
    return _fetched(_described("token_endpoint", description), headers=headers, body=urlencode(form).encode())


def _verified(token: str, attempt: Attempt, description: Mapping[str, Any]) -> dict[str, Any]:
    try:
        header = jwt.get_unverified_header(token)
        keys = jwt.PyJWKSet.from_dict(_fetched(_described("jwks_uri", description))).keys
        named = [key for key in keys if header.get("kid") in (None, key.key_id) and key.public_key_use in (None, "sig")]
        if header.get("alg") not in ALGORITHMS or len(named) != 1:
            raise SignOnRefused("The provider signed with a key that it does not publish. Try again.")
        claims: dict[str, Any] = jwt.decode(
            token,
            named[0].key,
            algorithms=[header["alg"]],
            audience=settings.OIDC_CLIENT_ID,
            issuer=settings.OIDC_ISSUER,
            leeway=CLOCK_SECONDS,
            options={"require": ["exp", "iat", "aud", "iss", "sub"]},
        )
    except jwt.ExpiredSignatureError:
        raise SignOnRefused("What the provider said of you is too old. Try again.") from None
    except jwt.InvalidAudienceError:
        raise SignOnRefused("What the provider said of you is for another site. Ask an admin.") from None
    except jwt.PyJWTError:
        raise SignOnRefused("What the provider said of you can't be verified. Try again.") from None
    if claims.get("azp", settings.OIDC_CLIENT_ID) != settings.OIDC_CLIENT_ID:
        raise SignOnRefused("What the provider said of you is for another site. Ask an admin.")
    if not secrets.compare_digest(str(claims.get("nonce", "")).encode(), attempt.nonce.encode()):
        raise SignOnRefused("This answer belongs to another sign-in. Begin again.")
    return claims


def _fetched(address: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> dict[str, Any]:
    """The JSON object under an address.

    Raises:
        ProviderUnavailable: there is none.
        SignOnRefused: it answers 4xx to what was sent.
    """
    name = settings.OIDC_NAME
    try:
        status, raw = asyncio.run(_exchanged(address, {"accept": "application/json"} | dict(headers or {}), body))
    except TimeoutError:
        raise ProviderUnavailable(f"{name} {AWAY}: no answer came within {TIMEOUT_SECONDS:g} s.") from None
    except OutboundError as error:
        raise ProviderUnavailable(f"{name} {AWAY}. {error}") from None
    if body is not None and 400 <= status < 500:
        raise SignOnRefused(f"{name} does not take this sign-in any more. Begin again.")
    try:
        found = json.loads(raw) if status == 200 and len(raw) <= LARGEST else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ProviderUnavailable(f"{name} {AWAY}: it answered {status}, or with what can't be read.")
    return found


async def _exchanged(address: str, headers: Mapping[str, str], body: bytes | None) -> tuple[int, bytes]:
    async with (
        OutboundClient() as client,
        asyncio.timeout(TIMEOUT_SECONDS),
        await client.send(
            "GET" if body is None else "POST", client.target(address), headers=headers, body=body
        ) as response,
    ):
        return response.status, await response.read(LARGEST)
