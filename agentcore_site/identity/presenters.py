"""Keys and members as programs read them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from agentcore_site.rest.money import Usd
from agentcore_site.tenancy.roles import Role


class ApiKeyOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="How the key begins; the rest is not kept.")
    organization_id = serializers.UUIDField()
    scopes = serializers.ListField(child=serializers.CharField())
    per_minute = serializers.IntegerField(allow_null=True, help_text="Calls of models a minute; null: not limited.")
    monthly_usd = Usd(source="monthly_micros", allow_null=True, help_text="For calls of models; null: not limited.")
    addresses = serializers.ListField(
        child=serializers.CharField(), help_text="From which alone it may be used; none: from everywhere."
    )
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    revoked_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)


class MemberOut(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    username = serializers.CharField(source="user.username")
    email = serializers.CharField(source="user.email")
    role = serializers.ChoiceField(choices=Role.choices)
    can_export = serializers.BooleanField()
    created_at = serializers.DateTimeField()
