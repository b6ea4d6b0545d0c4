"""Erasure in the site's own tables: jobs and their events, the audit log, keys, answers to POSTs, accounts."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model

from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit.services import event_erase
from agentcore_site.jobs.models import Job, JobEvent
from agentcore_site.lib.word_erasure import ProgramKeys
from agentcore_site.models import IdempotencyRecord, SavedView
from agentcore_site.tenancy.erasure import ErasureFinding, erasure_handlers, holding, rewritten, staying
from agentcore_site.tenancy.models import (
    ApiKey,
    BrowserSession,
    Invitation,
    Mail,
    Organization,
    Passkey,
    ProviderAccount,
    TokenFamily,
)


@erasure_handlers.register("answers kept under idempotency keys")
def answers(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = IdempotencyRecord.objects.filter(organization_id=organization_id)
    rows = holding(mine, words, texts=("key",), values=("body",))
    return ErasureFinding(rows.count(), rows.delete)


@erasure_handlers.register("jobs")
def jobs(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    return rewritten(Job.objects.filter(organization_id=organization_id), words, texts=("title", "error"))


# Keys that the program writes in a job's events, and reads again: all but these hold figures and the program's own
# words.
SAID: Final = ("reason", "asked", "verdict")
EVENT: Final = ProgramKeys.but(
    (
        *SAID,
        *("status", "requested", "by_itself", "n", "rows", "month", "progress", "spent", "limit", "version"),
        *("iteration", "total_iterations", "trajectories", "cost_usd", "metrics", "selection"),
        *("low", "high", "lines", "p_value", "improvement", "success_rate", "success_low", "success_high"),
        *("baseline_success_rate", "evaluation_id"),
    ),
    *SAID,
)


@erasure_handlers.register("events of jobs")
def events(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = JobEvent.objects.filter(job__organization_id=organization_id)
    return rewritten(mine, words, texts=("message",), own={"data": EVENT})


@erasure_handlers.register("API keys")
def keys(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    return rewritten(ApiKey.objects.filter(organization_id=organization_id), words, texts=("name",))


@erasure_handlers.register("saved views")
def saved_views(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = SavedView.objects.filter(organization_id=organization_id)
    rows = holding(mine, words, texts=("name",), values=("asked",))
    return ErasureFinding(rows.count(), rows.delete)


@erasure_handlers.register("mails")
def mails(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = Mail.objects.filter(organization_id=organization_id)
    rows = holding(mine, words, texts=("key", "subject", "body", "error"), values=("recipients",))
    return ErasureFinding(rows.count(), rows.delete)


@erasure_handlers.register("invitations")
def invitations(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    rows = holding(Invitation.objects.filter(organization_id=organization_id), words, texts=("email",))
    return ErasureFinding(rows.count(), rows.delete)


@erasure_handlers.register("audit log")
def audit(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """The audit log: its entries stay, without the words."""
    mine = AuditEvent.objects.filter(organization_id=organization_id)
    return rewritten(mine, words, texts=("target",), values=("before", "after"), write=event_erase)


@erasure_handlers.register("audit log: who acted")
def acted(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = AuditEvent.objects.filter(organization_id=organization_id)
    note = "The audit log goes on saying who did what, and from where: that is what it is kept for."
    return staying(mine, words, texts=("actor", "ip", "request_id"), note=note)


@erasure_handlers.register("log of the admin")
def admin_log(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """The Django admin's log of the actions of this organisation's people."""
    mine = LogEntry.objects.filter(user__memberships__organization_id=organization_id).distinct()
    return rewritten(mine, words, texts=("object_repr", "change_message"))


@erasure_handlers.register("accounts")
def accounts(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = get_user_model().objects.filter(memberships__organization_id=organization_id).distinct()
    note = "An account is not data of the organisation alone: delete it in the admin."
    return staying(mine, words, texts=("username", "email", "first_name", "last_name"), note=note)


@erasure_handlers.register("the organisation's name")
def organization(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = Organization.objects.filter(id=organization_id)
    return staying(mine, words, texts=("name", "slug"), note="The organisation is called so: rename it in the admin.")


@erasure_handlers.register("sessions of browsers")
def browsers(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = BrowserSession.objects.filter(user__memberships__organization_id=organization_id).distinct()
    return rewritten(mine, words, texts=("ip", "browser"))


@erasure_handlers.register("tokens of programs")
def programs(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = TokenFamily.objects.filter(user__memberships__organization_id=organization_id).distinct()
    return rewritten(mine, words, texts=("ip", "program"))


@erasure_handlers.register("passkeys")
def passkeys(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """The names of passkeys: sign-in with them stays possible."""
    mine = Passkey.objects.filter(user__memberships__organization_id=organization_id).distinct()
    return rewritten(mine, words, texts=("name",))


@erasure_handlers.register("accounts at the provider")
def at_the_provider(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = ProviderAccount.objects.filter(user__memberships__organization_id=organization_id).distinct()
    return staying(mine, words, texts=("subject",), note="They go with the account: delete it in the admin.")
