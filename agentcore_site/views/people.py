"""People of an organisation, for its admins: members, their roles, and invitations."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.forms import ServiceForm
from agentcore_site.console.pages import page, post_page, sent
from agentcore_site.console.tables import Table, noted
from agentcore_site.identity.invitations import (
    invitation_create,
    invitation_get,
    invitation_resend,
    invitation_revoke,
    invitations_open,
    link_at,
)
from agentcore_site.identity.presenters import MemberOut
from agentcore_site.identity.second_factor import factor_take_off, requirement_set, with_factor
from agentcore_site.lib.errors import DomainError
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.members import member_change, member_get, member_remove, members_of
from agentcore_site.tenancy.permissions import current_organization, who_may_what
from agentcore_site.tenancy.role_groups import role_rights
from agentcore_site.tenancy.roles import ROLE_MAY, Role


def without_mail_server() -> str:
    """A warning for the admin where no mail server is set, so that mails are not delivered."""
    if settings.EMAIL_HOST:
        return ""
    return " No mail server is set (EMAIL_HOST), so the mail is a file on the server: DATA_DIR/run/mails."


class InviteForm(ServiceForm):
    refusals = (DomainError,)
    email = forms.CharField(
        label="E-mail address", max_length=150, widget=forms.EmailInput(attrs={"autocomplete": "off"})
    )
    role = forms.ChoiceField(choices=Role.choices, initial=Role.STAKEHOLDER)
    can_export = forms.BooleanField(label="May export data", required=False)

    def refuse(self, error: DomainError) -> None:
        self.add_error("email" if "email" in error.fields else None, error.message)


@page
def people(request: HttpRequest, actor: Actor) -> HttpResponse:
    organization = current_organization(actor)
    members = list(members_of(actor, organization))
    noted(request, Table("members", MemberOut, members_of(actor, organization), "user__username"))
    form = InviteForm(sent(request))
    if form.applied(invitation_create, actor, organization, link=link_at(request)):
        messages.success(request, f"An invitation goes to {form.cleaned_data['email']}.{without_mail_server()}")
        return redirect("people")
    context = {
        "organization": organization,
        "members": members,
        "with_factor": with_factor([member.user_id for member in members]),
        "invitations": invitations_open(actor, organization),
        "roles": Role.choices,
        "form": form,
    }
    return render(request, "people/people.html", context, status=form.status)


@page
def roles(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The rights of each role, for every member."""
    membership = next(iter(actor.memberships.values()), None)
    mine = membership.role if membership else ""
    named = [(role, Role(role).label) for role in ROLE_MAY]
    context = {"rows": who_may_what(role_rights()), "roles": named, "mine": mine}
    return render(request, "people/roles.html", context)


@post_page
def change(request: HttpRequest, actor: Actor, member_id: int) -> HttpResponse:
    member = member_get(actor, current_organization(actor), member_id)
    given = request.POST
    member_change(actor, member, role=given.get("role", ""), can_export=given.get("can_export") == "on")
    messages.success(request, f"Saved what {member.user} may do.")
    return redirect("people")


@post_page
def requirement(request: HttpRequest, actor: Actor) -> HttpResponse:
    required = request.POST.get("required") == "on" if "sent" in request.POST else None
    requirement_set(actor, current_organization(actor), required=required)
    messages.success(
        request, "Members set one up at their next sign-in." if required else "The second factor is optional."
    )
    return redirect("people")


@post_page
def factor_off(request: HttpRequest, actor: Actor, member_id: int) -> HttpResponse:
    member = member_get(actor, current_organization(actor), member_id)
    factor_take_off(actor, member)
    messages.success(request, f"{member.user} signs in without a second factor now, and was signed out everywhere.")
    return redirect("people")


@post_page
def remove(request: HttpRequest, actor: Actor, member_id: int) -> HttpResponse:
    member = member_get(actor, current_organization(actor), member_id)
    member_remove(actor, member)
    messages.success(request, f"{member.user} is no member any more.")
    return redirect("people")


@post_page
def resend(request: HttpRequest, actor: Actor, invitation_id: UUID) -> HttpResponse:
    row = invitation_get(actor, current_organization(actor), invitation_id)
    invitation_resend(actor, row, link=link_at(request))
    messages.success(request, f"It goes to {row.email} again, with a new link.{without_mail_server()}")
    return redirect("people")


@post_page
def revoke(request: HttpRequest, actor: Actor, invitation_id: Any) -> HttpResponse:
    row = invitation_get(actor, current_organization(actor), invitation_id)
    invitation_revoke(actor, row)
    messages.success(request, f"The invitation of {row.email} was revoked.")
    return redirect("people")
