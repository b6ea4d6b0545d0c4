"""Admin of events: read-only."""

from __future__ import annotations

from django.contrib import admin

from agentcore_site.tenancy.administration import KeyedTableAdmin, ReadOnlyAdmin
from evaluation.events.models import (
    DeadLetter,
    ErasedMessage,
    EventCredential,
    EventPublisher,
    OutboxEvent,
    ReceivedReward,
    ReceivedTrajectory,
    TrainingRequest,
)


@admin.register(OutboxEvent)
class OutboxEventAdmin(KeyedTableAdmin):
    list_display = ["id", "kind", "key", "created_at", "settled_at", "tries", "withheld"]
    list_filter = ["kind"]
    key_fields = ("key", "message_id")


@admin.register(ErasedMessage)
class ErasedMessageAdmin(KeyedTableAdmin):
    list_display = ["id", "stream", "sequence", "created_at"]


@admin.register(EventPublisher)
class EventPublisherAdmin(ReadOnlyAdmin):
    list_display = ["organization", "created_by", "created_at"]


@admin.register(EventCredential)
class EventCredentialAdmin(ReadOnlyAdmin):
    list_display = ["name", "user", "agent", "created_by", "created_at", "revoked_at"]
    list_filter = ["organization"]
    list_select_related = ["agent", "created_by"]
    search_fields = ["name", "user", "agent__slug"]


@admin.register(ReceivedTrajectory)
class ReceivedTrajectoryAdmin(ReadOnlyAdmin):
    list_display = ["trajectory_id", "agent", "record_id", "received_at"]
    list_filter = ["organization"]
    list_select_related = ["agent"]
    search_fields = ["=trajectory_id", "agent__slug"]


@admin.register(ReceivedReward)
class ReceivedRewardAdmin(ReadOnlyAdmin):
    list_display = ["reward_id", "trajectory_id", "total", "applied", "received_at"]
    list_filter = ["organization", "applied"]
    search_fields = ["=reward_id", "=trajectory_id"]


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin):
    list_display = ["stream", "sequence", "reason", "detail", "tries", "outcome", "created_at"]
    list_filter = ["reason", "stream", "organization"]
    search_fields = ["detail", "=subject"]


@admin.register(TrainingRequest)
class TrainingRequestAdmin(ReadOnlyAdmin):
    list_display = ["training_job_id", "algorithm", "base_model", "mode", "agent", "cost_micros", "created_at"]
    list_filter = ["mode", "algorithm", "organization"]
    list_select_related = ["agent"]
    search_fields = ["=training_job_id", "base_model", "agent__slug"]
