"""Retention of the site's own rows: sessions, tokens, answers to POSTs, events of jobs, readings; and kept tables.

Mails, processes of hosts and answers are also deleted where they are written; these rules only say so."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from agentcore_site.jobs.models import ENDED, JobEvent
from agentcore_site.lib.retention import kept, old_rows
from agentcore_site.models import IdempotencyRecord, TableSize
from agentcore_site.rest.idempotency import KEPT
from agentcore_site.tenancy.mails import KEPT as MAILS_KEPT
from agentcore_site.tenancy.models import BrowserSession, Mail, TokenFamily

READING_DAYS = 400
AUDIT = ("audit_auditevent", "audit_seal", "audit_erasedwords")


def sessions() -> QuerySet[Session]:
    return Session.objects.filter(expire_date__lt=timezone.now())


def ended_sessions() -> QuerySet[BrowserSession]:
    living = Session.objects.filter(session_key=OuterRef("session_key"), expire_date__gt=timezone.now())
    return BrowserSession.objects.filter(~Exists(living))


def tokens() -> QuerySet[TokenFamily]:
    return TokenFamily.objects.filter(expires_at__lt=timezone.now())


def answers() -> QuerySet[IdempotencyRecord]:
    return IdempotencyRecord.objects.filter(created_at__lt=timezone.now() - KEPT)


def events() -> QuerySet[JobEvent]:
    days = settings.JOB_EVENT_DAYS
    old = Q(job__status__in=ENDED, job__finished_at__lt=timezone.now() - timedelta(days=days))
    return JobEvent.objects.filter(old) if days else JobEvent.objects.none()


def readings() -> QuerySet[TableSize]:
    return TableSize.objects.filter(day__lt=timezone.now().date() - timedelta(days=READING_DAYS))


def mails() -> QuerySet[Mail]:
    return Mail.objects.filter(sent_at__lt=timezone.now() - MAILS_KEPT)


old_rows("sessions", "Deleted once they have ended.", sessions, raw=True)
old_rows("places of sessions", "Deleted once their session has ended.", ended_sessions, raw=True)
old_rows("tokens", "Families of tokens are deleted once they have ended.", tokens)
old_rows("answers to POSTs", "Deleted after a day: so long a key is known again.", answers, raw=True)
old_rows("events of jobs", "Deleted after the job's end.", events, setting="JOB_EVENT_DAYS", raw=True)
old_rows("readings of sizes", f"Deleted after {READING_DAYS} days.", readings, raw=True)
kept("authenticators", "Kept until their person or an admin takes them off.", "tenancy_secondfactor")
kept("passkeys", "Kept until their person or an admin takes them off.", "tenancy_passkey")
kept("accounts at the provider", "Kept as long as their person.", "tenancy_provideraccount")
kept("jobs", "Kept: what ran, and how it ended.", "jobs_job")
kept("links to share a job", "Kept as long as their job, also once they are revoked.", "jobs_sharelink")
kept("processes of hosts", "Deleted by `up`, a week after their host was last seen.", "jobs_hostprocess")
kept("saved views", "Kept as long as their person.", "site_roof_savedview")
old_rows("mails", f"Deleted {MAILS_KEPT.days} days after they went out; a failed one stays.", mails, raw=True)
kept(
    "people and organisations",
    "Kept until an erasure or an admin deletes them; keys and invitations also once they have ended.",
    "auth_user",
    "tenancy_organization",
    "tenancy_membership",
    "tenancy_apikey",
    "tenancy_invitation",
)
kept(
    "rights in the admin",
    "Kept as long as their person, role or table.",
    "auth_group",
    "auth_permission",
    "auth_group_permissions",
    "auth_user_groups",
    "auth_user_user_permissions",
    "django_content_type",
)
kept("changes in the admin", "Kept as long as their person.", "django_admin_log")
kept("reports of erasures", "Kept as proof; they name no person.", "tenancy_erasure")
kept("facts of the site", "Kept: one row for each name.", "site_roof_sitefact")
kept("data keys", "Kept as long as their organisation: archives may need them.", "encryption_datakey")
kept("audit log", "Kept: nothing takes a line out of it, but an erasure its words.", *AUDIT)
kept("receivers of the audit log", "Kept until a person removes them.", "audit_export_auditstream")
