"""Pages and REST of events: who publishes, what was not taken."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from evaluation.events.models import DeadLetter, EventCredential, EventPublisher
from tests import factories
from tests.support.callers import Caller
from tests.support.pages import html

pytestmark = pytest.mark.django_db


@pytest.fixture
def boss(adam: Any) -> Client:
    client = Client()
    client.force_login(adam)
    return client


def test_a_publisher_is_made_its_password_shown_once_and_revoked(boss: Client, agent: Any) -> None:
    page = html(boss.get("/events/"))
    assert "No publisher yet" in page and "has no NATS server" in page
    made = html(boss.post("/events/", {"name": "researcher", "agent": agent.pk}))
    row = EventCredential.objects.get()
    assert row.user in made and row.digest.startswith("$2b$")
    assert "The password is shown only once." in made and row.digest not in made
    assert "The password is shown only once." not in html(boss.get("/events/"))
    boss.post(f"/events/publishers/{row.pk}/revoke/")
    assert "revoked" in html(boss.get("/events/?state=revoked"))
    assert "No publisher matches" in html(boss.get("/events/?state=alive"))


def test_publishing_is_switched_on_and_off(boss: Client, olivia: Any) -> None:
    boss.post("/events/publishing/", {"on": "1"})
    assert EventPublisher.objects.get().organization.slug == "acme"
    assert "have been published since" in html(boss.get("/events/"))
    assert Caller(olivia).get("event-publishing").json() == {"publishes": True, "production": True, "waiting": 0}
    boss.post("/events/publishing/", {"on": "0"})
    assert not EventPublisher.objects.exists()
    assert boss.post("/events/publishing/", {"on": "perhaps"}).status_code == 400


def test_dead_letters_are_searched_filtered_and_dismissed(boss: Client, acme: Any, elsewhere: Any) -> None:
    assert "No dead letter" in html(boss.get("/events/dead-letters/"))
    mine = factories.DeadLetterFactory(organization=acme, detail="No agent Zanzibar is registered.")
    factories.DeadLetterFactory(organization=acme, reason="schema", detail="turns: [] is too short")
    factories.DeadLetterFactory(organization=elsewhere, detail="Of others.")
    page = html(boss.get("/events/dead-letters/"))
    assert "Zanzibar" in page and "too short" in page and "Of others" not in page
    assert "too short" not in html(boss.get("/events/dead-letters/?q=zanzibar"))
    assert "Zanzibar" not in html(boss.get("/events/dead-letters/?reason=schema"))
    boss.post(f"/events/dead-letters/{mine.pk}/dismiss/")
    assert "Zanzibar" not in html(boss.get("/events/dead-letters/?state=open"))
    refused = boss.post(f"/events/dead-letters/{mine.pk}/retry/")
    assert (refused.status_code, "dismissed already" in html(refused)) == (409, True)


def test_programs_do_the_same_by_rest(adam: Any, charlie: Any, acme: Any, agent: Any) -> None:
    api = Caller(adam)
    made = api.post("event-publishers", {"name": "researcher", "agent": agent.slug}).json()
    assert len(made["password"]) > 20
    assert "password" not in api.get("event-publishers").json()["results"][0]
    assert api.delete(f"event-publishers/{made['id']}").status_code == 204
    letter = factories.DeadLetterFactory(organization=acme)
    assert Caller(charlie).get("dead-letters").json()["results"] == []
    assert api.get("dead-letters?reason=unknown_agent").json()["results"][0]["detail"] == letter.detail
    refused = api.post(f"dead-letters/{letter.pk}/retry", {})
    assert (refused.status_code, DeadLetter.objects.get().tries) == (409, 1)
    assert api.post(f"dead-letters/{letter.pk}/dismiss", {}).json()["outcome"] == "dismissed"
