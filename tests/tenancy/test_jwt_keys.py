"""Keys of JWTs: who verifies what, which algorithm, and that a change of keys ends no token before its time."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from functools import cache
from typing import Any

import httpx
import jwt
import pytest
from channels.db import database_sync_to_async
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from django.db import transaction
from django.test import Client

from agentcore_site import env
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.tokens import family_start
from tests.factories import PASSWORD
from tests.support.callers import Caller
from tests.support.sockets import Socket
from tests.support.workers import Fleet

METHOD = {"jsonrpc": "2.0", "method": "tools/list", "id": 1, "params": {}}


@cache
def private(name: str) -> str:
    """A key of its own for each name."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def public(name: str) -> str:
    key = load_pem_private_key(private(name).encode(), None).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def part(token: str, n: int = 0) -> dict[str, Any]:
    raw = token.split(".")[n]
    body: dict[str, Any] = json.loads(base64.urlsafe_b64decode(raw + "=" * (-len(raw) % 4)))
    return body


def joined(header: dict[str, Any], claims: dict[str, Any], secret: bytes) -> str:
    """A token of HS256 made by hand: libraries refuse to sign by a public key."""
    raw = [base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in (header, claims)]
    mac = hmac.new(secret, ".".join(raw).encode(), hashlib.sha256).digest()
    return ".".join([*raw, base64.urlsafe_b64encode(mac).decode().rstrip("=")])


def given() -> dict[str, str]:
    answer = Caller().post("token", {"username": "olivia", "password": PASSWORD})
    assert answer.status_code == 200, answer.content
    body: dict[str, str] = answer.json()
    return body


def status_of(access: str) -> int:
    caller = Caller()
    caller.headers = {"Authorization": f"Bearer {access}"}
    return int(caller.get("me").status_code)


def key_set() -> list[dict[str, str]]:
    answer = Client().get("/.well-known/jwks.json")
    assert answer.status_code == 200
    keys: list[dict[str, str]] = answer.json()["keys"]
    return keys


@pytest.mark.django_db
def test_others_verify_a_token_by_the_published_key(olivia: Any, settings: Any) -> None:
    settings.JWT_PRIVATE_KEY = private("one")
    access = given()["access"]
    [named] = [one for one in key_set() if one["kid"] == part(access)["kid"]]
    claims = jwt.decode(access, jwt.PyJWK(named).key, algorithms=["RS256"])
    assert claims["user_id"] == str(olivia.pk) and part(access)["alg"] == "RS256"
    assert not {"d", "p", "q", "k"} & set(named)
    assert status_of(access) == 200


@pytest.mark.django_db
def test_a_secret_is_published_nowhere(olivia: Any) -> None:
    access = given()["access"]
    assert part(access)["alg"] == "HS256" and part(access)["kid"]
    assert key_set() == []


@pytest.mark.django_db
def test_a_new_key_signs_and_the_former_key_verifies_until_its_removal(olivia: Any, settings: Any) -> None:
    settings.JWT_PRIVATE_KEY = private("one")
    former = given()
    settings.JWT_PRIVATE_KEY, settings.JWT_VERIFYING_KEYS = private("two"), [public("one")]
    assert status_of(former["access"]) == 200 and len(key_set()) == 2
    renewed = Caller().post("token/refresh", {"refresh": former["refresh"]}).json()
    assert part(renewed["access"])["kid"] != part(former["access"])["kid"]
    settings.JWT_VERIFYING_KEYS = []
    assert status_of(former["access"]) == 401 and status_of(renewed["access"]) == 200
    assert [one["kid"] for one in key_set()] == [part(renewed["access"])["kid"]]


@pytest.mark.django_db
def test_a_key_verifies_before_its_first_signature_so_that_hosts_change_one_by_one(olivia: Any, settings: Any) -> None:
    settings.JWT_PRIVATE_KEY, settings.JWT_VERIFYING_KEYS = private("two"), [public("one")]
    by_the_next = given()["access"]
    settings.JWT_PRIVATE_KEY, settings.JWT_VERIFYING_KEYS = private("one"), [public("two")]
    assert status_of(by_the_next) == 200


@pytest.mark.django_db
def test_a_change_of_the_algorithm_or_the_secret_ends_no_token(olivia: Any, settings: Any) -> None:
    by_secret = given()
    settings.JWT_PRIVATE_KEY = private("one")
    assert status_of(by_secret["access"]) == 200
    by_key = given()["access"]
    settings.JWT_PRIVATE_KEY, settings.JWT_VERIFYING_KEYS = "", [public("one")]
    assert status_of(by_key) == 200 and part(given()["access"])["alg"] == "HS256"
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another secret that is long enough for it"
    assert status_of(by_secret["access"]) == 200
    settings.SECRET_KEY_FALLBACKS = []
    assert status_of(by_secret["access"]) == 401


@pytest.mark.django_db
def test_a_token_from_before_keys_had_ids_is_still_good(olivia: Any, settings: Any) -> None:
    claims = part(given()["access"], 1)
    assert status_of(jwt.encode(claims, settings.SECRET_KEY, algorithm="HS256")) == 200
    assert status_of(jwt.encode(claims, "another secret that is long enough for it", algorithm="HS256")) == 401


@pytest.mark.django_db
def test_no_algorithm_is_taken_for_another(olivia: Any, settings: Any) -> None:
    settings.JWT_PRIVATE_KEY = private("one")
    good = given()["access"]
    header, claims = part(good), part(good, 1)
    assert status_of(good) == 200
    # The classic: the public key, which is known to all, as the secret of HS256.
    for secret in (public("one"), public("one").strip(), json.dumps(key_set()[0])):
        for kid in ({"kid": header["kid"]}, {}):
            assert status_of(joined({"alg": "HS256", "typ": "JWT"} | kid, claims, secret.encode())) == 401
    # The secret's name beside the other algorithm, none at all, and a key of the attacker's own.
    named = jwt.encode(claims, settings.SECRET_KEY, algorithm="HS256", headers={"kid": header["kid"]})
    unsigned = jwt.encode(claims, None, algorithm="none", headers={"kid": header["kid"]})
    foreign = jwt.encode(claims, private("foreign"), algorithm="RS256", headers={"kid": header["kid"]})
    brought = jwt.encode(claims, private("foreign"), algorithm="RS256", headers={"jwk": key_set()[0], "kid": "mine"})
    other = jwt.encode(claims, private("one"), algorithm="RS512", headers={"kid": header["kid"]})
    assert [status_of(one) for one in (named, unsigned, foreign, brought, other)] == [401] * 5


@database_sync_to_async
@transaction.atomic
def watched(operator: Actor, organization: Any) -> Job:
    return lifecycle.submit(operator, kind="training", organization=organization, title="watched")


@pytest.mark.django_db(transaction=True)
async def test_sockets_take_either_algorithm(acme: Any, operator: Actor, settings: Any) -> None:
    job = await watched(operator, acme)
    by_secret = (await database_sync_to_async(family_start)(operator))["access"]
    settings.JWT_PRIVATE_KEY = private("one")
    by_key = (await database_sync_to_async(family_start)(operator))["access"]
    for token in (by_secret, by_key):
        one = Socket(f"/ws/jobs/{job.id}/", authorization=f"Bearer {token}")
        await one.connect()
        await one.disconnect()


@pytest.mark.django_db(transaction=True)
@pytest.mark.thorough(reason="a site is started")
def test_rest_rpc_and_mcp_of_the_real_server_take_either_algorithm(olivia: Any, settings: Any, fleet: Fleet) -> None:
    settings.JWT_PRIVATE_KEY = private("one")
    by_former = family_start(Actor(olivia))["access"]
    settings.JWT_PRIVATE_KEY = ""
    by_secret = family_start(Actor(olivia))["access"]
    site = f"http://127.0.0.1:{fleet.web(JWT_PRIVATE_KEY=private('two'), JWT_VERIFYING_KEYS=public('one'))}"
    settings.JWT_PRIVATE_KEY = private("two")
    by_key = family_start(Actor(olivia))["access"]
    settings.JWT_PRIVATE_KEY = private("foreign")
    foreign = family_start(Actor(olivia))["access"]

    async def statuses(token: str) -> list[int]:
        headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
        async with httpx.AsyncClient(base_url=site, headers=headers, trust_env=False, timeout=60) as http:
            described = METHOD | {"method": "rpc.discover"}
            return [
                (await http.get("/api/v1/me")).status_code,
                (await http.post("/api/v1/jsonrpc", json=described)).status_code,
                (await http.post("/mcp", json=METHOD)).status_code,
            ]

    for token in (by_former, by_secret, by_key):
        assert asyncio.run(statuses(token)) == [200, 200, 200]
    assert asyncio.run(statuses(foreign)) == [401, 401, 401]


def test_keys_that_are_none_are_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    small = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    curve = ec.generate_private_key(ec.SECP256R1())
    for key in ("nonsense", public("one"), *(pem_of(one) for one in (small, curve))):
        monkeypatch.setenv("JWT_PRIVATE_KEY", key)
        with pytest.raises(env.BadEnvironment, match="JWT_PRIVATE_KEY"):
            env.rsa_private_key("JWT_PRIVATE_KEY")
    for keys in ("nonsense", private("one"), public("one") + "and more"):
        monkeypatch.setenv("JWT_VERIFYING_KEYS", keys)
        with pytest.raises(env.BadEnvironment, match="JWT_VERIFYING_KEYS"):
            env.rsa_public_keys("JWT_VERIFYING_KEYS")
    monkeypatch.setenv("JWT_VERIFYING_KEYS", public("one") + "\n" + public("two"))
    assert [one + "\n" for one in env.rsa_public_keys("JWT_VERIFYING_KEYS")] == [public("one"), public("two")]
    monkeypatch.delenv("JWT_VERIFYING_KEYS")
    assert env.rsa_public_keys("JWT_VERIFYING_KEYS") == []


def pem_of(key: Any) -> str:
    result: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return result.decode()
