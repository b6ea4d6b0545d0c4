"""Every column of every table in which a person's words may be, and the words put into it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.apps import apps
from django.contrib.postgres.fields import ArrayField
from django.db import connection, models
from psycopg.types.json import Jsonb

from tests.support.owner import as_owner

# Columns that only the product writes: names from a closed list, our own ids and digests, sealed values. A developer
# who adds a column for texts of persons registers it with an erasure, and leaves this list alone.
OURS: Final = frozenset(
    {
        # Of Django: no rows of an organisation.
        "auth.Permission.name", "auth.Permission.codename", "auth.Group.name", "contenttypes.ContentType.app_label",
        "contenttypes.ContentType.model", "sessions.Session.session_key", "sessions.Session.session_data",
        "auth.User.password", "admin.LogEntry.object_id",
        # Numbers by length and kind.
        "budgets.ModelPrice.tiers", "budgets.ModelPrice.rates",
        "site_roof.TableSize.name", "experiences.TrajectoryArchive.sha256",
        "experiences.TrajectoryExport.format", "experiences.TrajectoryExport.mark",
        "experiences.TrajectoryExport.archives", "experiences.ExportPart.path", "experiences.ExportPart.sha256",
        "warehouse.WarehouseStore.name", "warehouse.HourlyMeasure.purpose", "warehouse.HourlyMeasure.arm",
        "events.OutboxEvent.data", "events.OutboxEvent.withheld", "events.EventCredential.user",
        "events.EventCredential.digest", "events.ReceivedTrajectory.digest", "events.ReceivedReward.digest",
        "events.TrainingRequest.digest", "events.TrainingRequest.algorithm",
        "events.WaitingSpan.trace_id", "events.WaitingSpan.span_id",
        "events.StoredSpan.trace_id", "events.StoredSpan.span_id",
        "events.DeadLetter.stream", "events.DeadLetter.outcome",
        "events.ErasedMessage.stream", "events.ErasedMessage.mark",
        "notices.SiteEvent.type", "notices.WebhookEndpoint.types", "notices.WebhookEndpoint.sealed_url",
        "notices.WebhookEndpoint.sealed_secret", "notices.WebhookEndpoint.sealed_former",
        "notices.NoticePreferences.bell", "notices.NoticePreferences.mail", "notices.NoticePreferences.digest_week",
        "notices.NoticePreferences.time_zone",
        # Digests, and what is sealed.
        "serving.Release.digest", "serving.SuiteVersion.digest", "serving.SuiteRun.digest", "serving.SuiteRun.done",
        "serving.SurvivalRun.digest", "serving.SurvivalRun.done", "serving.SurvivalRun.results",
        "serving.ProductionTrace.key",
        # Tokens, kept only where the words that they say are in the trace whole: it goes with those.
        "serving.ProductionTrace.sampled",
        "tenancy.Invitation.digest", "tenancy.TokenFamily.current",
        "tenancy.TokenFamily.previous", "tenancy.BrowserSession.session_key", "tenancy.SecondFactor.sealed",
        "tenancy.SecondFactor.recovery", "tenancy.ProviderAccount.issuer",
        "tenancy.Passkey.credential_id", "tenancy.Passkey.key",
        "tenancy.ApiKey.prefix", "tenancy.ApiKey.digest", "tenancy.ApiKey.addresses",
        "tenancy.Erasure.digests", "jobs.ShareLink.digest",
        "experiences.ModelEndpoint.api_key", "experiences.ModelEndpoint.gateway_key", "experiences.ToolServer.token",
        "experiences.ModelEndpoint.virtual_key", "experiences.ModelEndpoint.gateway_config",
        "experiences.Agent.authorization", "experiences.EndpointServer.place",
        "experiences.Dataset.sha256", "experiences.PromptPack.stamp", "experiences.Experience.stamp",
        "experiences.Question.asked", "experiences.PromptPack.earlier_stamps",
        "training.PolicyCheckpoint.sha256", "training.GraderSample.scorer", "training.GraderSample.data_digest",
        "training.GraderJudgement.digest", "evaluation.EvaluationRun.sha256", "evaluation.EvaluationRun.acts_by",
        "evaluation.HeldOutUse.fingerprint",
        "site_roof.IdempotencyRecord.fingerprint", "audit.Seal.kind",
        "audit.Seal.digests", "audit.Seal.previous", "audit.Seal.digest", "audit.ErasedWords.digest",
        "site_roof.SavedView.page", "site_roof.SiteFact.name", "site_roof.SiteFact.value",
        "encryption.DataKey.holder", "encryption.DataKey.sealed",
        "jobs.HostProcess.place", "jobs.HostProcess.name", "jobs.HostProcess.host",
        # Words from a closed list of ours.
        "tenancy.Membership.role", "tenancy.ApiKey.scopes", "tenancy.Erasure.found", "tenancy.Erasure.left",
        "tenancy.Erasure.notes", "audit.AuditEvent.door", "audit.AuditEvent.action", "audit.AuditEvent.target_type",
        "jobs.Job.kind", "jobs.Job.requested", "jobs.JobEvent.type", "jobs.JobEvent.level",
        "budgets.Reservation.purpose", "budgets.LedgerDay.purpose",
        "budgets.LedgerEntry.purpose", "budgets.LedgerEntry.source", "experiences.Agent.environment",
        "experiences.TrajectoryRecord.purpose", "experiences.TrajectoryRecord.arm", "experiences.TrajectoryRecord.line",
        "experiences.ExperienceChange.action", "experiences.Question.stage", "experiences.PlaybookVersion.action",
        "experiences.PlaybookChange.action", "experiences.ContextDelta.category", "experiences.Evolution.trigger",
        "experiences.Agent.reward", "training.TrainingRun.environment", "training.TrainingRun.policy_kind",
        "training.TrainingRun.preset",
        "evaluation.EvaluationRun.lines", "evaluation.EvaluationRun.done", "evaluation.EvaluationResult.arm",
        "evaluation.EvaluationResult.line", "site_roof.IdempotencyRecord.operation",
        # Our own ids, handles and keys.
        "audit.AuditEvent.target_id", "jobs.Job.exclusive_key", "jobs.Job.worker", "budgets.Reservation.rollout",
        "budgets.Reservation.key", "budgets.LedgerEntry.rollout", "experiences.TrajectoryRecord.policy_version",
        "experiences.Experience.handle", "experiences.Experience.group", "experiences.Experience.taught_by",
        "experiences.Experience.parents", "experiences.Question.key", "experiences.PlaybookSection.handle",
        "experiences.PlaybookChange.handle", "experiences.ExecutionTrace.left_out", "experiences.ExecutionTrace.used",
        "experiences.ContextDelta.section", "experiences.ContextDelta.taught_by",
        "experiences.Evolution.trace_ids", "training.PolicyCheckpoint.path",
        "serving.Feedback.giver",
        "serving.ProductionTrace.hold", "serving.ProductionTrace.told", "serving.DeploymentEvent.kind",
        # Figures, and handles of lessons.
        "serving.Deployment.rule", "serving.Deployment.monitor", "serving.DeploymentEvent.figures",
        "serving.LearningLoop.preset", "serving.LearningLoop.rule", "serving.LearningLoop.drift",
        "serving.LoopTurn.gain", "serving.LoopTurn.online",
        "experiences.PlaybookChange.reason",
        "training.TrainingRun.starting_rule", "training.TrainingRun.shipped_rule", "training.TrainingRun.known",
        "training.TrainingRun.origin",
        "experiences.GroupRecord.step_advantages", "experiences.Evolution.metrics", "experiences.Evolution.outcome",
        "training.TrainingRun.metrics", "training.TrainingRun.selection", "training.Iteration.metrics",
        "training.Iteration.selection", "training.Epoch.metrics", "training.Epoch.gate",
        "training.PolicyCheckpoint.metrics",
        # Tested by itself: the lessons in it (tests/training/services/test_runs_context.py).
        "training.PolicyCheckpoint.data",
    }
)  # fmt: skip


def columns() -> Iterator[tuple[Any, models.Field[Any, Any]]]:
    """Each model with each of its fields that can hold a text."""
    for model in apps.get_models():
        if model._meta.proxy:
            continue
        for field in model._meta.concrete_fields:
            plain = field.base_field if isinstance(field, ArrayField) else field
            if isinstance(plain, models.CharField | models.TextField | models.JSONField | models.BinaryField):
                yield model, field


def label(model: Any, field: models.Field[Any, Any]) -> str:
    return f"{model._meta.label}.{field.name}"


def theirs() -> list[tuple[Any, models.Field[Any, Any]]]:
    """The columns in which words of people may be."""
    return [(model, field) for model, field in columns() if not field.choices and label(model, field) not in OURS]


@contextmanager
def unguarded() -> Iterator[None]:
    """Without the triggers that keep histories as they are."""
    with as_owner(), connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        try:
            yield
        finally:
            cursor.execute("SET session_replication_role = origin")


def write_into(model: Any, field: models.Field[Any, Any], word: str) -> int:
    """Puts the word into that column of every row; returns how many rows there are."""
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(f'SELECT tableoid, ctid FROM "{table}"')
        places = cursor.fetchall()
        for number, place in enumerate(places):
            cursor.execute(
                f'UPDATE "{table}" SET "{field.column}" = %s WHERE tableoid = %s AND ctid = %s::tid',
                [_value(field, word, number), *place],
            )
    return len(places)


def _value(field: models.Field[Any, Any], word: str, number: int) -> Any:
    # A number, since names have to stay different from each other; in front, since columns are short.
    text = f"{number} {word}"
    if isinstance(field, models.JSONField):
        return Jsonb([{"said": text, f"of {word}": [1]}] if _is_list(field) else {"said": text, f"of {word}": [1]})
    if isinstance(field, ArrayField):
        return [text]
    assert field.max_length is None or len(text) <= field.max_length, f"{field} is too short for {text!r}"
    return text


def _is_list(field: models.Field[Any, Any]) -> bool:
    return field.has_default() and field.get_default() == []


def holding(word: str) -> dict[str, int]:
    """By table, how many rows hold the word in any column, read as the database shows it."""
    escaped = json.dumps(word, ensure_ascii=False)[1:-1]
    tables = apps.get_models()
    counted = "SELECT '{}', count(*) AS n FROM \"{}\" row WHERE row::text ILIKE %s"
    each = " UNION ALL ".join(counted.format(model._meta.label, model._meta.db_table) for model in tables)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM ({each}) AS counts WHERE n > 0", [f"%{escaped}%"] * len(tables))
        return dict(cursor.fetchall())
