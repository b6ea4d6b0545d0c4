"""Admin of events: read-only."""

from __future__ import annotations

from agentcore_site.identity.administration import KeyedTableAdmin, LongTableAdmin, list_page
from evaluation.events.models import (
    DeadLetter,
    ErasedMessage,
    EventCredential,
    EventPublisher,
    OutboxEvent,
    ReceivedReward,
    ReceivedTrajectory,
    StoredSpan,
    TrainingRequest,
    WaitingSpan,
)

list_page(
    OutboxEvent, "id kind key created_at settled_at tries withheld", KeyedTableAdmin, key_fields=("key", "message_id")
)
list_page(ErasedMessage, "id stream sequence created_at", KeyedTableAdmin)
list_page(EventPublisher, "organization production created_by created_at")
list_page(EventCredential, "name user agent created_by created_at revoked_at")
list_page(
    ReceivedTrajectory, "trajectory_id agent record_id received_at", search_fields=["=trajectory_id", "agent__slug"]
)
list_page(
    ReceivedReward, "reward_id trajectory_id total applied received_at", search_fields=["=reward_id", "=trajectory_id"]
)
list_page(
    DeadLetter,
    "stream sequence reason detail tries outcome created_at",
    list_filter=["reason", "stream", "organization"],
    search_fields=["detail", "=subject"],
)
list_page(
    TrainingRequest,
    "training_job_id algorithm base_model mode agent cost_micros created_at",
    list_filter=["mode", "algorithm", "organization"],
    search_fields=["=training_job_id", "base_model", "agent__slug"],
)
for model, moment in ((WaitingSpan, "received_at"), (StoredSpan, "stored_at")):
    list_page(
        model,
        f"span_id trace_id agent root {moment}",
        LongTableAdmin,
        search_fields=["=trace_id", "=span_id"],
        deferred=("body",),
    )
