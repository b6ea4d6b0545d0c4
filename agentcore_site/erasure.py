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
from agentcore_site.tenancy.erasure import (
    ErasureFinding,
    deleted,
    erasure_handlers,
    erasure_under_way,
    holding,
    personal_rows,
    rewritten,
    staying,
)
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
OF_MEMBERS: Final = "user__memberships__organization_id"


@erasure_handlers.register("audit log")
def audit_log(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """A function of the database's owner takes the words out, by order of the erasure under way."""
    mine = AuditEvent.objects.filter(organization_id=organization_id)
    found = list(holding(mine, words, texts=("target",), values=("before", "after")).values_list("pk", flat=True))

    def erase() -> None:
        for event_id in found:
            event_erase(event_id, erasure_under_way(), words)

    return ErasureFinding(len(found), erase)


personal_rows("answers kept under idempotency keys", IdempotencyRecord, deleted, texts=("key",), values=("body",))
personal_rows("jobs", Job, rewritten, texts=("title", "error"))
personal_rows(
    "events of jobs", JobEvent, rewritten, path="job__organization_id", texts=("message",), own={"data": EVENT}
)
personal_rows("API keys", ApiKey, rewritten, texts=("name",))
personal_rows("saved views", SavedView, deleted, texts=("name",), values=("asked",))
personal_rows("mails", Mail, deleted, texts=("key", "subject", "body", "error"), values=("recipients",))
personal_rows("invitations", Invitation, deleted, texts=("email",))
personal_rows(
    "audit log: who acted",
    AuditEvent,
    staying,
    texts=("actor", "ip", "request_id"),
    note="The audit log goes on saying who did what, and from where: that is what it is kept for.",
)
personal_rows("log of the admin", LogEntry, rewritten, path=OF_MEMBERS, texts=("object_repr", "change_message"))
personal_rows(
    "accounts",
    get_user_model(),
    staying,
    path="memberships__organization_id",
    texts=("username", "email", "first_name", "last_name"),
    note="An account is not data of the organisation alone: delete it in the admin.",
)
personal_rows(
    "the organisation's name",
    Organization,
    staying,
    path="id",
    texts=("name", "slug"),
    note="The organisation is called so: rename it in the admin.",
)
personal_rows("sessions of browsers", BrowserSession, rewritten, path=OF_MEMBERS, texts=("ip", "browser"))
personal_rows("tokens of programs", TokenFamily, rewritten, path=OF_MEMBERS, texts=("ip", "program"))
personal_rows("passkeys", Passkey, rewritten, path=OF_MEMBERS, texts=("name",))
personal_rows(
    "accounts at the provider",
    ProviderAccount,
    staying,
    path=OF_MEMBERS,
    texts=("subject",),
    note="They go with the account: delete it in the admin.",
)
