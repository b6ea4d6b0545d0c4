"""Deletes old executions, and old proposed changes that never went into a playbook."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from agentcore_site.lib.retention import kept, old_rows, rows_delete
from experiences.learning.playbooks.deltas import SETTLED
from experiences.models import ContextDelta, ExecutionTrace


def executions() -> QuerySet[ExecutionTrace]:
    return ExecutionTrace.objects.filter(recorded_at__lt=timezone.now() - timedelta(days=settings.ACE_TRACE_DAYS))


def deltas() -> QuerySet[ContextDelta]:
    old = ContextDelta.objects.filter(created_at__lt=timezone.now() - timedelta(days=settings.ACE_DELTA_DAYS))
    return old.exclude(state__in=[str(state) for state in SETTLED])


def forget() -> dict[str, int]:
    """Deletes what is too old. Returns how many rows of each there were."""
    return {"traces": rows_delete(executions(), raw=True), "deltas": rows_delete(deltas(), raw=True)}


old_rows("executions", "Deleted.", executions, setting="ACE_TRACE_DAYS", raw=True)
old_rows(
    "changes proposed to playbooks", "Deleted unless they were applied.", deltas, setting="ACE_DELTA_DAYS", raw=True
)
kept(
    "playbooks and lessons",
    "Kept, with their history, until a person deletes the playbook; evolutions also as long as their job.",
    "experiences_playbook",
    "experiences_playbookversion",
    "experiences_playbooksection",
    "experiences_playbookchange",
    "experiences_evolution",
    "experiences_experience",
    "experiences_experiencechange",
)
kept("questions of reflections", "Kept as long as their job.", "experiences_question")
kept(
    "agents",
    "Kept, also once they are archived: agents are not deleted.",
    "experiences_agent",
    "experiences_agent_tool_servers",
    "experiences_promptpack",
)
kept(
    "model endpoints, model servers and tool servers",
    "Kept, also once they are archived.",
    "experiences_modelendpoint",
    "experiences_endpointserver",
    "experiences_toolserver",
)
