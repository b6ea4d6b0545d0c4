"""People: no member without consent, an invitation is for its address alone, an admin always remains."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core import mail
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Conflict
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.mails import mails_send
from agentcore_site.tenancy.members import member_change, member_remove
from agentcore_site.tenancy.models import Invitation, Mail, Membership, Organization
from agentcore_site.tenancy.roles import Role
from tests import factories
from tests.support.callers import Caller

pytestmark = pytest.mark.django_db

LONG = "a long enough password"


@pytest.fixture(autouse=True)
def fresh_cache() -> None:
    cache.clear()


@pytest.fixture
def ada(acme: Organization) -> Any:
    """An admin who is no superuser."""
    ada = factories.UserFactory(username="ada", is_staff=True)
    factories.MembershipFactory(organization=acme, user=ada, role=Role.ADMIN)
    return ada


@pytest.fixture
def desk(ada: Any) -> Client:
    client = Client()
    client.force_login(ada)
    return client


def invited(desk: Client, email: str, role: str = Role.DEVELOPER) -> str:
    """Invites, and gives the path of the link in the mail."""
    answer = desk.post("/people/", {"email": email, "role": role})
    assert answer.status_code == 302, answer.content
    return link()


def link() -> str:
    mails_send()
    match = re.search(r"http://testserver(/invitations/\S+/)", mail.outbox[-1].body)
    assert match is not None
    return match.group(1)


def test_a_person_without_an_account_makes_one_by_the_link_in_the_mail(desk: Client, acme: Organization) -> None:
    path = invited(desk, " New.Person@Example.org ")
    assert mail.outbox[-1].to == ["new.person@example.org"]
    assert not Membership.objects.filter(user__email="new.person@example.org").exists()
    stranger = Client()
    page = stranger.get(path)
    shown = page.content.decode()
    assert "Acme Research" in shown and "developer" in shown and "ada" in shown
    assert page["Referrer-Policy"] == "same-origin" and page["Cache-Control"] == "no-store"
    assert stranger.post(path, {"password": "short"}).status_code == 400
    assert not get_user_model().objects.filter(email="new.person@example.org").exists()
    assert stranger.post(path, {"password": LONG})["Location"] == "/"
    member = Membership.objects.get(user__username="new.person@example.org")
    assert (member.organization, member.role, member.can_export) == (acme, Role.DEVELOPER, False)
    assert stranger.get("/agents/").status_code == 200
    assert Client().get(path).status_code == 404
    logged = AuditEvent.objects.filter(organization_id=acme.id).values_list("action", flat=True)
    assert {"invitation.created", "invitation.accepted", "membership.created", "user.created"} <= set(logged)


def test_an_account_accepts_what_is_for_its_address_and_nothing_else(desk: Client, charlie: Any, olivia: Any) -> None:
    path = invited(desk, "charlie@example.com")
    other, his = Client(), Client()
    other.force_login(olivia)
    his.force_login(charlie)
    assert other.post(path).status_code == 403
    assert Client().post(path, {"password": LONG}).status_code == 409
    assert his.post(path)["Location"] == "/"
    assert charlie.memberships.count() == 2 and his.post(path).status_code == 404


def test_an_answer_does_not_reveal_whether_an_address_has_an_account(desk: Client, charlie: Any) -> None:
    def answered(email: str) -> tuple[int, str, str]:
        answer = desk.post("/people/", {"email": email, "role": Role.STAKEHOLDER}, follow=True)
        return answer.status_code, answer.redirect_chain[0][0], answer.content.decode().count("An invitation goes to")

    assert answered("charlie@example.com") == answered("unknown@example.com")
    mails_send()
    known, unknown = (re.sub(r"/invitations/\S+|\S+@example.com", "", one.body) for one in mail.outbox)
    assert known == unknown


def test_an_invitation_is_declined_and_nothing_happens(desk: Client) -> None:
    path = invited(desk, "new@example.org")
    people = get_user_model().objects.count()
    assert "declined" in Client().post(path, {"decline": "yes"}).content.decode()
    assert get_user_model().objects.count() == people and Client().get(path).status_code == 404
    assert Invitation.objects.get().outcome == "declined"
    assert AuditEvent.objects.filter(action="invitation.declined").exists()


def test_a_link_ends_after_seven_days_when_sent_again_and_when_revoked(desk: Client) -> None:
    first = invited(desk, "new@example.org")
    row = Invitation.objects.get()
    assert first.split("/")[2] not in str(Invitation.objects.values().get())
    assert desk.post(f"/people/invitations/{row.pk}/resend/").status_code == 429
    Invitation.objects.update(sent_at=timezone.now() - timedelta(minutes=2))
    assert desk.post(f"/people/invitations/{row.pk}/resend/").status_code == 302
    second = link()
    assert (Client().get(first).status_code, Client().get(second).status_code) == (404, 200)
    Invitation.objects.update(expires_at=timezone.now())
    assert Client().get(second).status_code == 404 and "new@example.org" in desk.get("/people/").content.decode()
    third = invited(desk, "new@example.org")
    row = Invitation.objects.get(outcome="")
    assert desk.post("/people/", {"email": "new@example.org", "role": "admin"}).status_code == 400
    assert desk.post(f"/people/invitations/{row.pk}/revoke/").status_code == 302
    assert Client().get(third).status_code == 404 and Client().post(third, {"password": LONG}).status_code == 404
    assert Mail.objects.exclude(body="").count() == 0
    logged = AuditEvent.objects.values_list("action", flat=True)
    assert {"invitation.resent", "invitation.revoked"} <= set(logged)


@pytest.mark.parametrize("given", [{"email": "x"}, {"email": "a@b.c\x00"}, {"email": "a@example.org", "role": "king"}])
def test_a_refused_invitation_is_explained_on_the_form(given: dict[str, str], desk: Client) -> None:
    assert desk.post("/people/", {"role": Role.OPERATOR} | given).status_code == 400
    assert not Invitation.objects.exists()


def test_the_last_admin_can_neither_leave_nor_be_made_less(desk: Client, ada: Any, dan: Any) -> None:
    last, other = ada.memberships.get(), dan.memberships.get()
    for path in (f"/people/{last.pk}/remove/", f"/people/{last.pk}/"):
        assert desk.post(path, {"role": Role.OPERATOR}).status_code == 409
    change = reverse("admin:tenancy_membership_change", args=[last.pk])
    desk.post(change, {"role": Role.OPERATOR})
    refused = desk.post(reverse("admin:tenancy_membership_delete", args=[last.pk]), {"post": "yes"}, follow=True)
    assert "last admin" in refused.content.decode()
    selected = {"action": "delete_selected", "_selected_action": [last.pk, other.pk], "post": "yes"}
    desk.post(reverse("admin:tenancy_membership_changelist"), selected)
    last.refresh_from_db()
    assert last.role == Role.ADMIN and not Membership.objects.filter(pk=other.pk).exists()


def test_a_member_gets_another_role_and_leaves(desk: Client, dan: Any, olivia: Any) -> None:
    row = dan.memberships.get()
    assert desk.post(f"/people/{row.pk}/", {"role": Role.ADMIN, "can_export": "on"}).status_code == 302
    row.refresh_from_db()
    assert (row.role, row.can_export) == (Role.ADMIN, True)
    assert desk.post(f"/people/{row.pk}/", {"role": "king"}).status_code == 400
    assert desk.post(f"/people/{olivia.memberships.get().pk}/remove/").status_code == 302
    assert not olivia.memberships.exists() and get_user_model().objects.filter(pk=olivia.pk).exists()


def test_two_admins_who_remove_each_other_leave_one(ada: Any, acme: Organization) -> None:
    eve = factories.UserFactory(username="eve")
    theirs = factories.MembershipFactory(organization=acme, user=eve, role=Role.ADMIN)
    member_remove(Actor(ada), theirs)
    with pytest.raises(Conflict):
        member_change(Actor(ada), ada.memberships.get(), role=Role.OPERATOR, can_export=False)


@pytest.mark.parametrize("person", ["stella", "dan", "olivia"])
def test_people_are_for_admins(person: str, request: pytest.FixtureRequest, ada: Any) -> None:
    client, row = Client(), ada.memberships.get()
    client.force_login(request.getfixturevalue(person))
    assert client.get("/people/").status_code == 403
    assert "/people/" not in client.get("/").content.decode()
    for path in ("/people/", f"/people/{row.pk}/", f"/people/{row.pk}/remove/"):
        assert client.post(path, {"email": "a@example.org", "role": Role.ADMIN}).status_code == 403
    assert not Invitation.objects.exists() and Caller(request.getfixturevalue(person)).get("members").status_code == 403


def test_an_admin_of_another_organisation_finds_no_person(desk: Client, charlie: Any, ada: Any) -> None:
    invited(desk, "new@example.org")
    charlie.memberships.update(role=Role.ADMIN)
    client = Client()
    client.force_login(charlie)
    row, member = Invitation.objects.get(), ada.memberships.get()
    assert "ada" not in client.get("/people/").content.decode()
    for path in (f"/people/{member.pk}/", f"/people/{member.pk}/remove/"):
        assert client.post(path, {"role": Role.STAKEHOLDER}).status_code == 404
    for act in ("resend", "revoke"):
        assert client.post(f"/people/invitations/{row.pk}/{act}/").status_code == 404
    api = Caller(charlie)
    assert api.get("invitations").json()["results"] == [] and len(api.get("members").json()["results"]) == 1
    assert api.delete(f"members/{member.pk}").status_code == 404
    assert api.delete(f"invitations/{row.pk}").status_code == 404


def test_people_and_invitations_over_rest(ada: Any, dan: Any) -> None:
    api = Caller(ada)
    made = api.post("invitations", {"email": "new@example.org", "role": "operator"})
    assert made.status_code == 201 and "token" not in str(made.json()) and "digest" not in str(made.json())
    assert api.post("invitations", {"email": "new@example.org", "role": "operator"}).status_code == 409
    assert Client().get(link()).status_code == 200
    assert [one["email"] for one in api.get("invitations").json()["results"]] == ["new@example.org"]
    assert api.post(f"invitations/{made.json()['id']}/resend").status_code == 429
    assert api.delete(f"invitations/{made.json()['id']}").status_code == 204
    row = dan.memberships.get()
    assert api.patch(f"members/{row.pk}", {"role": "operator"}).json()["role"] == "operator"
    assert api.delete(f"members/{row.pk}").status_code == 204 and not dan.memberships.exists()
    assert api.delete(f"members/{ada.memberships.get().pk}").status_code == 409


def test_the_admin_invites_too(desk: Client, acme: Organization) -> None:
    values = {"organization": str(acme.pk), "email": "new@example.org", "role": Role.OPERATOR}
    assert desk.post(reverse("admin:tenancy_invitation_add"), values).status_code == 302
    assert Client().get(link()).status_code == 200
    again = desk.post(reverse("admin:tenancy_invitation_add"), values, follow=True)
    assert "This address has an open invitation" in again.content.decode() and Invitation.objects.count() == 1
    row = Invitation.objects.get()
    desk.post(reverse("admin:tenancy_invitation_changelist"), {"action": "revoke", "_selected_action": [str(row.pk)]})
    assert Invitation.objects.get().outcome == "revoked"


def test_without_a_mail_server_the_link_is_in_a_file_and_in_no_log(
    acme: Organization, adam: Any, settings: Any, tmp_path: Path
) -> None:
    settings.EMAIL_BACKEND, settings.EMAIL_FILE_PATH = "django.core.mail.backends.filebased.EmailBackend", str(tmp_path)
    client = Client()
    client.force_login(adam)
    shown = client.post("/people/", {"email": "nina@example.org", "role": "operator"}, follow=True).content.decode()
    assert "No mail server is set" in shown
    mails_send()
    [path] = tmp_path.iterdir()
    link = re.search(r"/invitations/[\w-]{40,}/", path.read_text())
    assert link is not None and Client().get(link[0]).status_code == 200
