"""REST: one's organisations; their members and invitations, for their admins."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.identity.invitations import (
    invitation_create,
    invitation_get,
    invitation_resend,
    invitation_revoke,
    invitations_open,
    link_at,
)
from agentcore_site.identity.presenters import MemberOut
from agentcore_site.identity.second_factor import factor_take_off, requirement_set
from agentcore_site.lib.errors import Missing
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.members import member_change, member_get, member_remove, members_of, organizations_visible
from agentcore_site.tenancy.models import Invitation, Membership, Organization
from agentcore_site.tenancy.permissions import current_organization
from agentcore_site.tenancy.roles import Role


class OrganizationOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    slug = serializers.CharField()
    max_active_jobs = serializers.IntegerField(help_text="How many jobs may be queued, running or paused at once.")
    second_factor = serializers.BooleanField(help_text="Whether its members give a code of an authenticator.")
    created_at = serializers.DateTimeField()


class OrganizationPatch(Strict):
    second_factor = serializers.BooleanField(help_text="Who has none sets one up at the next sign-in.")


class OrganizationViewSet(ScopedViewSet):
    """The organisations that you belong to. They are made by who runs the site."""

    queryset = Organization.objects.none()
    tag = "people"
    serializer_class = OrganizationOut
    lookup_value_converter = "uuid"
    versioned = ("name", "max_active_jobs", "second_factor")

    @extend_schema(summary="My organisations")
    def list(self, request: Request) -> Response:
        return self.page(organizations_visible(self.actor), OrganizationOut)

    @extend_schema(summary="One organisation")
    def retrieve(self, request: Request, pk: UUID) -> Response:
        return self.answer(self._mine(pk))

    @extend_schema(summary="Set whether an organisation requires a second factor", request=OrganizationPatch)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        found = self._mine(pk)
        requirement_set(self.actor, found, required=parsed(OrganizationPatch, request.data)["second_factor"])
        return self.answer(self._mine(pk))

    def _mine(self, pk: UUID) -> Organization:
        row = organizations_visible(self.actor).filter(pk=pk).first()
        if row is None:
            raise Missing(f"There is no organisation {pk}.")
        return row


class MemberIn(Strict):
    role = serializers.ChoiceField(choices=Role.choices, required=False)
    can_export = serializers.BooleanField(required=False)


class MemberViewSet(ScopedViewSet):
    queryset = Membership.objects.none()
    tag = "people"
    serializer_class = MemberOut
    lookup_value_converter = "int"
    versioned = ("role", "can_export")

    @extend_schema(summary="Members")
    def list(self, request: Request) -> Response:
        rows = members_of(self.actor, current_organization(self.actor)).order_by()
        return self.page(rows, MemberOut)

    @extend_schema(summary="One member")
    def retrieve(self, request: Request, pk: int) -> Response:
        return self.answer(member_get(self.actor, current_organization(self.actor), pk))

    @extend_schema(summary="Change a member's role", request=MemberIn)
    def partial_update(self, request: Request, pk: int) -> Response:
        member = member_get(self.actor, current_organization(self.actor), pk)
        values: dict[str, Any] = {"role": member.role, "can_export": member.can_export} | parsed(MemberIn, request.data)
        return self.answer(member_change(self.actor, member, **values))

    @extend_schema(summary="Remove a member")
    def destroy(self, request: Request, pk: int) -> Response:
        member_remove(self.actor, member_get(self.actor, current_organization(self.actor), pk))
        return Response(status=204)

    @extend_schema(operation_id="members_second_factor_destroy", summary="Take the second factor off a member")
    @action(detail=True, methods=["delete"], url_path="second-factor", pagination_class=None)
    def second_factor(self, request: Request, pk: int) -> Response:
        """Their authenticator and passkeys, for who lost them. All their sign-ins end."""
        factor_take_off(self.actor, member_get(self.actor, current_organization(self.actor), pk))
        return Response(status=204)


class InvitationIn(Strict):
    email = serializers.CharField(max_length=150)
    role = serializers.ChoiceField(choices=Role.choices)
    can_export = serializers.BooleanField(default=False)


class InvitationOut(serializers.Serializer[Any]):
    """The link of an invitation is in the mail alone."""

    id = serializers.UUIDField()
    email = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices)
    can_export = serializers.BooleanField()
    sent_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()


class InvitationViewSet(ReadViewSet):
    queryset = Invitation.objects.none()
    tag = "people"
    serializer_class = InvitationOut
    lookup_value_converter = "uuid"
    versioned = ("sent_at", "expires_at")
    lists = ("Open invitations", lambda actor: invitations_open(actor, current_organization(actor)))
    reads = ("One open invitation", lambda actor, pk: invitation_get(actor, current_organization(actor), pk))

    @extend_schema(summary="Invite a person by e-mail", request=InvitationIn)
    def create(self, request: Request) -> Response:
        organization = current_organization(self.actor)
        values = parsed(InvitationIn, request.data)

        return self.made(request, lambda: invitation_create(self.actor, organization, **values, link=link_at(request)))

    @extend_schema(summary="Send an invitation again", responses={204: None})
    @action(detail=True, methods=["post"], pagination_class=None)
    def resend(self, request: Request, pk: UUID) -> Response:
        row = invitation_get(self.actor, current_organization(self.actor), pk)
        invitation_resend(self.actor, row, link=link_at(request))
        return Response(status=204)

    @extend_schema(summary="Revoke an invitation")
    def destroy(self, request: Request, pk: UUID) -> Response:
        invitation_revoke(self.actor, invitation_get(self.actor, current_organization(self.actor), pk))
        return Response(status=204)
