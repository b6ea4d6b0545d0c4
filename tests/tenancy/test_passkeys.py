"""Passkeys: made on the page *Signing in*, used alone and after a password. The device is a key of this test's, which
signs as the standard says (WebAuthn level 2, section 6)."""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from django.core.cache import cache
from django.test import Client
from fido2.cose import ES256
from fido2.utils import websafe_encode
from fido2.webauthn import AttestationObject, AttestedCredentialData, AuthenticatorData, CollectedClientData

from agentcore_site.audit.models import AuditEvent
from agentcore_site.identity.second_factor import factor_take_off, with_factor
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Membership, Organization, Passkey
from tests import factories
from tests.factories import PASSWORD
from tests.support.callers import Caller
from tests.support.pages import html
from tests.tenancy.test_second_factor import Authenticator

pytestmark = pytest.mark.django_db

ORIGIN = "https://agents.example.org"
FLAG = AuthenticatorData.FLAG


@pytest.fixture(autouse=True)
def fresh_cache(settings: Any) -> None:
    cache.clear()  # wrong ones are counted
    settings.PUBLIC_URL = ORIGIN
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


class Device:
    """An authenticator with one key. ``counts``: whether it counts its uses."""

    def __init__(self, *, counts: bool = True) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.id = secrets.token_bytes(32)
        self.counter, self.counts = 0, counts

    def made(self, options: dict[str, Any], *, origin: str = ORIGIN) -> str:
        public = AttestedCredentialData.create(b"\0" * 16, self.id, ES256.from_cryptography_key(self.key.public_key()))
        about = self._about(options["publicKey"]["rp"]["id"], FLAG.AT | FLAG.UP | FLAG.UV, public)
        attestation = AttestationObject.create("none", about, {})
        client = CollectedClientData.create("webauthn.create", options["publicKey"]["challenge"], origin)
        return self._answer({"clientDataJSON": client, "attestationObject": attestation})

    def signed(self, options: dict[str, Any], *, origin: str = ORIGIN, verified: bool = True) -> str:
        self.counter += self.counts
        flags = FLAG.UP | (FLAG.UV if verified else FLAG(0))
        about = self._about(options["publicKey"]["rpId"], flags)
        client = CollectedClientData.create("webauthn.get", options["publicKey"]["challenge"], origin)
        signature = self.key.sign(about + client.hash, ec.ECDSA(hashes.SHA256()))
        return self._answer({"clientDataJSON": client, "authenticatorData": about, "signature": signature})

    def _about(self, host: str, flags: Any, public: bytes = b"") -> AuthenticatorData:
        return AuthenticatorData.create(hashlib.sha256(host.encode()).digest(), flags, self.counter, public)

    def _answer(self, response: dict[str, bytes]) -> str:
        plain = {name: websafe_encode(bytes(value)) for name, value in response.items()}
        own = websafe_encode(self.id)
        return json.dumps(
            {"id": own, "rawId": own, "type": "public-key", "response": plain, "clientExtensionResults": {}}
        )


def post(client: Client, path: str, **form: str) -> Any:
    return client.post(path, form)


def registered(person: Any, device: Device, *, name: str = "laptop", code: str = "") -> Any:
    client = Client()
    client.force_login(person)
    options = post(client, "/account/passkeys/begin/").json()
    return post(client, "/account/passkeys/", name=name, answer=device.made(options), code=code)


def entering(device: Device, client: Client | None = None, **how: Any) -> tuple[Client, Any]:
    client = client or Client()
    options = post(client, "/sign-in/passkey/begin/").json()
    return client, post(client, "/sign-in/passkey/", answer=device.signed(options, **how), next="/people/roles/")


def inside(client: Client) -> bool:
    return client.get("/account/").status_code == 200  # type: ignore[arg-type]


def test_a_passkey_signs_its_person_in_without_a_password(olivia: Any) -> None:
    device = Device()
    assert registered(olivia, device)["Location"] == "/account/"
    client, answer = entering(device)
    assert (answer.status_code, answer["Location"]) == (302, "/people/roles/")
    shown = html(client.get("/account/"))  # type: ignore[arg-type]
    assert "laptop" in shown and "not used yet" not in shown
    actions = AuditEvent.objects.filter(actor="olivia").values_list("action", flat=True)
    assert {"passkey.added", "person.signed_in"} <= set(actions)


def test_an_answer_is_good_once_and_of_its_own_browser(olivia: Any) -> None:
    device = Device(counts=False)
    registered(olivia, device)
    client = Client()
    answer = device.signed(post(client, "/sign-in/passkey/begin/").json())
    assert post(Client(), "/sign-in/passkey/", answer=answer).status_code == 400  # another browser's
    assert post(client, "/sign-in/passkey/", answer=answer).status_code == 302
    client.logout()
    assert post(client, "/sign-in/passkey/", answer=answer).status_code == 400


@pytest.mark.parametrize(
    "how",
    [{"origin": "https://agents.example.net"}, {"origin": "https://evil.agents.example.org"}, {"verified": False}],
)
def test_a_passkey_of_another_site_or_without_user_verification_is_refused(olivia: Any, how: dict[str, Any]) -> None:
    device = Device()
    registered(olivia, device)
    client, answer = entering(device, **how)
    assert answer.status_code == 400 and not inside(client)
    refused = AuditEvent.objects.get(action="person.sign_in_failed")
    assert refused.after["step"] == "passkey"


@pytest.mark.parametrize("answer", ["", "{}", "[]", "null", '{"rawId": 7}', "x" * 30_000, '{"id":"a","rawId":"YQ"}'])
def test_an_invalid_answer_is_refused(olivia: Any, answer: str) -> None:
    client = Client()
    post(client, "/sign-in/passkey/begin/")
    assert post(client, "/sign-in/passkey/", answer=answer).status_code == 400
    client.force_login(olivia)
    post(client, "/account/passkeys/begin/")
    assert post(client, "/account/passkeys/", name="x", answer=answer).status_code == 400
    assert not Passkey.objects.exists()


def test_a_copy_is_noticed_by_its_counter(olivia: Any) -> None:
    device = Device()
    registered(olivia, device)
    assert entering(device)[1].status_code == 302
    device.counter = 0  # as in a copy that was made before
    assert entering(device)[1].status_code == 400
    assert Passkey.objects.get().sign_count == 1


def test_one_that_was_removed_or_whose_person_is_switched_off_opens_nothing(olivia: Any) -> None:
    device, other = Device(), Device()
    registered(olivia, device)
    registered(olivia, other, name="phone")
    client = Client()
    client.force_login(olivia)
    gone = Passkey.objects.get(name="laptop")
    assert post(client, f"/account/passkeys/{gone.pk}/remove/").status_code == 302
    assert entering(device)[1].status_code == 400
    assert AuditEvent.objects.get(action="passkey.removed").before == {"name": "laptop"}
    olivia.is_active = False
    olivia.save()
    assert entering(other)[1].status_code == 400


def test_a_person_with_a_passkey_needs_the_passkey_after_the_password(olivia: Any, adam: Any) -> None:
    device, stolen = Device(), Device()
    registered(olivia, device)
    registered(adam, stolen)
    client = Client()
    first = post(client, "/sign-in/", username="olivia", password=PASSWORD)
    assert first["Location"] == "/sign-in/code/" and not inside(client)
    shown = html(client.get("/sign-in/code/"))  # type: ignore[arg-type]
    assert "Use a passkey" in shown and 'name="code"' not in shown
    # It has to be hers.
    assert entering(stolen, client)[1].status_code == 400 and not inside(client)
    # After a password the device need not ask who holds it.
    assert entering(device, client, verified=False)[1].status_code == 302 and inside(client)
    # Programs take no password of hers any more.
    token = client.post("/api/v1/token", {"username": "olivia", "password": PASSWORD}, content_type="application/json")
    assert token.status_code == 403 and "Make an API key in the console (Keys)" in token.json()["detail"]
    given = {"username": "olivia", "password": PASSWORD, "otp": "123456"}
    coded = client.post("/api/v1/token", given, content_type="application/json")
    assert coded.status_code == 403 and coded.json()["detail"] == token.json()["detail"]
    wrong = client.post("/api/v1/token", given | {"password": "wrong"}, content_type="application/json")
    assert wrong.status_code == 401 and "API key" not in wrong.json()["detail"]  # who does not know it learns nothing


def test_passkey_is_a_second_factor_where_the_organisation_asks_for_one(
    olivia: Any, adam: Any, acme: Organization
) -> None:
    device = Device()
    registered(olivia, device)
    Organization.objects.update(second_factor=True)
    client = Client()
    assert post(client, "/sign-in/", username="olivia", password=PASSWORD)["Location"] == "/sign-in/code/"
    assert entering(device, client)[1].status_code == 302
    assert with_factor([olivia, adam]) == {olivia.pk}
    kept = post(client, f"/account/passkeys/{Passkey.objects.get().pk}/remove/")
    assert kept.status_code == 409 and Passkey.objects.exists()
    # An admin takes it off who lost it.
    factor_take_off(Actor(adam), Membership.objects.get(user=olivia))
    assert not Passkey.objects.exists() and not inside(client)


def test_a_person_with_an_authenticator_gives_its_code_to_make_or_remove_one(olivia: Any) -> None:
    app, device = Authenticator(olivia), Device()
    assert registered(olivia, device).status_code == 400
    assert registered(olivia, device, code=app.code()).status_code == 302
    client = Client()
    client.force_login(olivia)
    path = f"/account/passkeys/{Passkey.objects.get().pk}/remove/"
    assert post(client, path).status_code == 400 and Passkey.objects.exists()
    assert post(client, path, code=app.code()).status_code == 302 and not Passkey.objects.exists()


def test_anothers_passkey_is_not_there_and_one_is_made_once(olivia: Any, dan: Any) -> None:
    device = Device()
    registered(olivia, device)
    assert registered(dan, device).status_code == 409
    client = Client()
    client.force_login(dan)
    assert post(client, f"/account/passkeys/{Passkey.objects.get().pk}/remove/").status_code == 404
    assert registered(dan, Device(), name=" ").status_code == 400


def test_a_site_with_sign_in_by_a_provider_alone_accepts_no_passkey(olivia: Any, settings: Any) -> None:
    device = Device()
    registered(olivia, device)
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_ONLY = "https://login.example.org", "site", True
    settings.OIDC_ORGANIZATION = "acme"
    assert entering(device)[1].status_code == 400


@pytest.mark.parametrize("url", ["", "http://agents.example.org", "https://192.0.2.1"])
def test_without_an_address_of_the_site_there_are_none_and_the_page_says_so(
    olivia: Any, settings: Any, url: str
) -> None:
    settings.PUBLIC_URL = url
    client = Client()
    client.force_login(olivia)
    shown = html(client.get("/account/"))  # type: ignore[arg-type]
    assert "PUBLIC_URL" in shown and "Add a passkey" not in shown
    assert post(client, "/account/passkeys/begin/").status_code == 404
    assert post(Client(), "/sign-in/passkey/begin/").status_code == 404
    assert "passkey" not in html(Client().get("/sign-in/"))  # type: ignore[arg-type]


def test_a_key_makes_none(olivia: Any) -> None:
    caller = Caller(olivia)
    answer = caller.client.post("/account/passkeys/begin/", headers=caller.headers)
    assert answer.status_code in {302, 401, 403} and not Passkey.objects.exists()


def test_a_person_without_an_organisation_has_passkeys_too() -> None:
    person, device = factories.UserFactory(username="nobody-yet"), Device()
    registered(person, device)
    client, answer = entering(device)
    assert answer.status_code == 302 and inside(client)
