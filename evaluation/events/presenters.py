"""Publishers and dead letters as programs read them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from evaluation.events.models import DeadReason


class EventCredentialOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    agent_id = serializers.UUIDField(allow_null=True, help_text="Null: a service, which publishes for all agents.")
    user = serializers.CharField(help_text="The user name of its connections.")
    created_at = serializers.DateTimeField()
    revoked_at = serializers.DateTimeField(allow_null=True)


class DeadLetterOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    subject = serializers.CharField()
    stream = serializers.CharField()
    sequence = serializers.IntegerField()
    dead_reason = serializers.ChoiceField(choices=DeadReason.choices, source="reason")
    detail = serializers.CharField()
    payload = serializers.CharField(help_text="Without personal data; empty if it may not be kept.")
    tries = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    settled_at = serializers.DateTimeField(allow_null=True)
    outcome = serializers.CharField(help_text="taken or dismissed; empty while it waits.")
