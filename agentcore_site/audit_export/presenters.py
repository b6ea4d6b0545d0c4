"""The audit log as programs read it."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class AuditEventOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    number = serializers.IntegerField()
    at = serializers.DateTimeField()
    organization_id = serializers.UUIDField()
    user_id = serializers.IntegerField(allow_null=True)
    actor = serializers.CharField()
    door = serializers.CharField(help_text="By which interface.")
    ip = serializers.CharField()
    request_id = serializers.CharField()
    action = serializers.CharField()
    target_type = serializers.CharField()
    target_id = serializers.CharField()
    target = serializers.CharField()
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)
