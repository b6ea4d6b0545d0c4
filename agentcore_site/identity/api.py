"""REST: the caller's account, tokens, and API keys."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth import authenticate
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework_simplejwt.serializers import TokenObtainSerializer
from rest_framework_simplejwt.views import TokenViewBase

from agentcore_site.identity.presenters import ApiKeyOut
from agentcore_site.identity.sign_ins import program_of, sign_in_end, sign_ins_of
from agentcore_site.lib.errors import Missing
from agentcore_site.rest.money import UsdIn
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.throttling import TokenThrottle
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.addresses import client_address
from agentcore_site.tenancy.erasure import erasures_visible, subject_erase
from agentcore_site.tenancy.models import ApiKey, Erasure, TokenFamily
from agentcore_site.tenancy.roles import SCOPES, Role
from agentcore_site.tenancy.services import (
    MAX_DAYS,
    MAX_PER_MINUTE,
    MOST_ADDRESSES,
    api_key_create,
    api_key_revoke,
    check_scopes,
)
from agentcore_site.tenancy.tokens import family_end, family_refresh, family_start, sign_out_everywhere

SIGN_IN_KINDS = [("browser", "browser"), ("program", "program")]
TOKEN = OpenApiExample("Sign in", {"username": "olivia", "password": "correct horse battery staple"}, request_only=True)


class TokenIn(TokenObtainSerializer):  # type: ignore[misc]
    """``scope`` narrows both tokens, like a key's scopes; it never widens what the role allows."""

    scope = serializers.CharField(
        max_length=400, required=False, help_text=f"Scopes with spaces between, of: {', '.join(SCOPES)}."
    )

    otp = serializers.CharField(
        max_length=40, required=False, help_text="A code of your authenticator or a recovery code, if you have one."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        given = {"username": attrs["username"], "password": attrs["password"], "otp": attrs.get("otp")}
        self.user = authenticate(self.context["request"], **given)
        if self.user is None:
            raise AuthenticationFailed(self.error_messages["no_active_account"], "no_active_account")
        scopes = check_scopes(attrs["scope"].split()) if attrs.get("scope") else []
        actor = Actor(self.user, ip=client_address(self.context["request"]), interface="jwt")
        return dict(family_start(actor, scopes, program=program_of(self.context["request"])))


class RefreshIn(serializers.Serializer[Any]):
    refresh = serializers.CharField(max_length=4000, help_text="Used up by this: keep the one in the answer.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return dict(family_refresh(attrs["refresh"], ip=client_address(self.context["request"])))


class RevokeIn(serializers.Serializer[Any]):
    refresh = serializers.CharField(max_length=4000)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        family_end(attrs["refresh"])
        return {}


class TokensOut(serializers.Serializer[Any]):
    refresh = serializers.CharField()
    access = serializers.CharField()


@extend_schema_view(
    post=extend_schema(summary="Get an access and a refresh token", tags=["me"], examples=[TOKEN], responses=TokensOut)
)
class TokenView(TokenViewBase):  # type: ignore[misc]
    serializer_class = TokenIn
    throttle_classes = (TokenThrottle,)


@extend_schema_view(
    post=extend_schema(
        summary="Get new tokens for a refresh token",
        description="The one that was sent is used up; sent again, it ends all tokens of its sign-in.",
        tags=["me"],
        responses=TokensOut,
    )
)
class RefreshView(TokenViewBase):  # type: ignore[misc]
    serializer_class = RefreshIn
    throttle_classes = (TokenThrottle,)


class RevokeView(TokenViewBase):  # type: ignore[misc]
    """Ends the sign-in that a refresh token belongs to: every access and refresh token of it."""

    tag = "me"
    serializer_class = RevokeIn
    throttle_classes = (TokenThrottle,)

    @extend_schema(summary="Sign out: end the tokens of a sign-in", responses={204: None})
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        super().post(request, *args, **kwargs)
        return Response(status=204)


class MembershipOut(serializers.Serializer[Any]):
    organization_id = serializers.UUIDField()
    organization = serializers.CharField(source="organization.name")
    role = serializers.ChoiceField(choices=Role.choices)
    may = serializers.SerializerMethodField(help_text="What you may do there by this key, token or session.")

    def get_may(self, row: Any) -> list[str]:
        actor: Actor = self.context["actor"]
        return sorted(one for one in actor.rights[row.organization_id] if actor.may(one, row.organization_id))


class MeOut(serializers.Serializer[Any]):
    username = serializers.CharField()
    email = serializers.CharField()
    scopes = serializers.ListField(
        child=serializers.CharField(), allow_null=True, help_text="The key's scopes; null for a session or a token."
    )
    organizations = MembershipOut(many=True)


class MeViewSet(ScopedViewSet):
    tag = "me"
    serializer_class = MeOut

    @extend_schema(summary="The current user, with roles and rights")
    def retrieve(self, request: Request) -> Response:
        actor = self.actor
        me = {
            "username": actor.user.username,
            "email": actor.user.email,
            "scopes": None if actor.scopes is None else sorted(actor.scopes),
            "organizations": list(actor.memberships.values()),
        }
        return self.answer(me)

    @extend_schema(summary="Sign out everywhere", responses={204: None})
    def sign_out(self, request: Request) -> Response:
        """Ends every session of the console and every token of yours. API keys stay."""
        sign_out_everywhere(self.actor)
        return Response(status=204)


class SignInOut(serializers.Serializer[Any]):
    """A session of the console in a browser, or the tokens of a program."""

    id = serializers.UUIDField()
    kind = serializers.ChoiceField(choices=SIGN_IN_KINDS)
    created_at = serializers.DateTimeField()
    used_at = serializers.DateTimeField(help_text="To within five minutes; of tokens: when they were last renewed.")
    ip = serializers.CharField()
    client = serializers.CharField(help_text="The browser or the program, in words.")


class SignInViewSet(ScopedViewSet):
    """My own sign-ins: few, and of two tables, so that they come on one page."""

    queryset = TokenFamily.objects.none()
    tag = "me"
    serializer_class = SignInOut
    pagination_class = None  # type: ignore[assignment]
    lookup_value_converter = "uuid"

    @extend_schema(summary="My active sign-ins")
    def list(self, request: Request) -> Response:
        return Response(SignInOut(sign_ins_of(self.actor), many=True).data)

    @extend_schema(summary="End one of my sign-ins")
    def destroy(self, request: Request, pk: UUID) -> Response:
        """The session, or all tokens of it, open nothing from the next request on."""
        sign_in_end(self.actor, pk)
        return Response(status=204)


class NewApiKeyOut(ApiKeyOut):
    key = serializers.CharField(help_text="The key itself. It is shown this once.")


class ApiKeyIn(Strict):
    name = serializers.CharField(max_length=80)
    scopes = serializers.ListField(
        child=serializers.CharField(max_length=40), max_length=20, help_text=f"Of: {', '.join(SCOPES)}."
    )
    days = serializers.IntegerField(min_value=1, max_value=MAX_DAYS, default=90, help_text="How long it lives.")
    per_minute = serializers.IntegerField(
        min_value=1,
        max_value=MAX_PER_MINUTE,
        allow_null=True,
        default=None,
        help_text="Calls of models through the gateway; as many may come at once. Null: not limited.",
    )
    monthly_usd = UsdIn(
        source="monthly_micros",
        allow_null=True,
        default=None,
        help_text="What its calls of models may cost in a month (UTC). Null: not limited.",
    )
    addresses = serializers.ListField(
        child=serializers.CharField(max_length=60),
        max_length=MOST_ADDRESSES,
        default=list,
        help_text="Addresses and networks (10.0.0.0/8) from which alone it may be used. None: from everywhere.",
    )


KEY = OpenApiExample(
    "A key for CI", {"name": "ci", "scopes": ["training:view", "training:start"], "days": 30}, request_only=True
)


class ApiKeyViewSet(ScopedViewSet):
    """My own keys."""

    queryset = ApiKey.objects.none()
    tag = "me"
    serializer_class = ApiKeyOut
    lookup_value_converter = "uuid"
    versioned = ("name", "revoked_at")
    shown_once = {"create": "key"}

    @extend_schema(summary="My API keys")
    def list(self, request: Request) -> Response:
        return self.page(ApiKey.objects.visible_to(self.actor).filter(user=self.actor.user), ApiKeyOut)

    @extend_schema(summary="Make an API key", request=ApiKeyIn, responses={201: NewApiKeyOut}, examples=[KEY])
    def create(self, request: Request) -> Response:
        values = parsed(ApiKeyIn, request.data)

        def work() -> Response:
            row, key = api_key_create(self.actor, **values)
            return Response({**ApiKeyOut(row).data, "key": key}, status=201)

        return self.once(request, work)

    @extend_schema(summary="One of my API keys")
    def retrieve(self, request: Request, pk: UUID) -> Response:
        return self.answer(self._mine(pk))

    @extend_schema(summary="Revoke an API key")
    def destroy(self, request: Request, pk: UUID) -> Response:
        api_key_revoke(self.actor, self._mine(pk))
        return Response(status=204)

    def _mine(self, pk: UUID) -> ApiKey:
        row = ApiKey.objects.visible_to(self.actor).filter(user=self.actor.user, id=pk).first()
        if row is None:
            raise Missing(f"You have no API key {pk}.")
        return row


class ErasureIn(Strict):
    identifiers = serializers.ListField(child=serializers.CharField(max_length=200), min_length=1, max_length=20)
    dry_run = serializers.BooleanField(default=False, help_text="Only count what would be erased.")


class ErasureOut(serializers.Serializer[Any]):
    """It names no person: ``digests`` are keyed digests of the identifiers."""

    id = serializers.UUIDField()
    digests = serializers.ListField(child=serializers.CharField())
    found = serializers.DictField(child=serializers.IntegerField(), help_text="Rows by place.")
    left = serializers.DictField(child=serializers.IntegerField(), help_text="Rows that can't be changed or read.")
    notes = serializers.ListField(child=serializers.CharField(), help_text="What to do now, and why rows are left.")
    created_at = serializers.DateTimeField()


class ErasureViewSet(ScopedViewSet):
    queryset = Erasure.objects.none()
    tag = "privacy"
    serializer_class = ErasureOut
    orderings = {"-created_at": "created_at"}
    lookup_value_converter = "uuid"

    @extend_schema(summary="Reports of erasures")
    def list(self, request: Request) -> Response:
        return self.page(erasures_visible(self.actor), ErasureOut)

    @extend_schema(
        summary="Erase what is kept of a person", request=ErasureIn, responses={200: ErasureOut, 201: ErasureOut}
    )
    def create(self, request: Request) -> Response:
        """All that holds an identifier is deleted, or loses these words. It can't be undone."""
        values = parsed(ErasureIn, request.data)

        def work() -> Response:
            report = subject_erase(self.actor, values["identifiers"], dry_run=values["dry_run"])
            return self.answer(report, status=200 if values["dry_run"] else 201)

        return self.once(request, work)

    @extend_schema(summary="One report of an erasure")
    def retrieve(self, request: Request, pk: UUID) -> Response:
        row = erasures_visible(self.actor).filter(id=pk).first()
        if row is None:
            raise Missing(f"There is no erasure {pk}.")
        return self.answer(row)
