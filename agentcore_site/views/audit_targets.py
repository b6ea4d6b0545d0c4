"""Target of a line of the audit log: the page of its object, if that is still there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final

from django.apps import apps
from django.core.exceptions import ValidationError
from django.urls import reverse

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.notifications import job_page
from agentcore_site.tenancy.actors import Actor


def _at(page: str, field: str = "pk", *, more: str = "") -> Callable[[Any], str]:
    """The page with this name, of the row's ``field``."""
    return lambda row: reverse(page, args=[getattr(row, field)]) + more


# By kind of row: the page of one row.
PAGES: Final[dict[str, Callable[[Any], str]]] = {
    "jobs.job": job_page,
    "training.trainingrun": _at("training:job"),
    "training.policycheckpoint": _at("training:job", "run_id", more="?tab=checkpoints"),
    "evaluation.evaluationrun": _at("evaluation:report"),
    "experiences.agent": _at("agent"),
    "experiences.annotation": _at("experiences:trajectory", "trajectory_id"),
    "experiences.contextdelta": _at("experiences:review"),
    "experiences.dataset": _at("training:dataset"),
    "experiences.evolution": _at("experiences:evolution"),
    "experiences.experience": _at("experiences:experience"),
    "experiences.modelendpoint": _at("experiences:endpoint_edit"),
    "experiences.playbook": _at("experiences:playbook", "agent_id"),
    "experiences.promptpack": _at("experiences:prompt_pack"),
    "experiences.toolserver": _at("experiences:tool_server"),
    "experiences.trajectoryexport": _at("experiences:export", "job_id"),
    "serving.agentserving": _at("serving:serving", "agent_id"),
    "serving.deployment": _at("serving:deployment"),
    "serving.learningloop": _at("serving:loop", "agent_id"),
    "serving.productiontrace": _at("serving:trace"),
    "serving.release": _at("serving:release"),
    "serving.suite": _at("serving:suite"),
    "serving.suiterun": _at("serving:suite_run"),
    "serving.survivalrun": _at("serving:survival_run"),
    "events.trainingrequest": _at("events:training", "job_id"),
    "budgets.budget": _at("budgets:budget"),
    "notices.webhookendpoint": _at("webhook"),
}
# By kind of row: the list in which the row is, or was.
LISTS: Final = {
    "audit_export.auditstream": "audit_stream",
    "auth.user": "people",
    "budgets.budgetsettings": "budgets:settings",
    "budgets.modelprice": "budgets:prices",
    "events.deadletter": "events:dead_letters",
    "events.eventcredential": "events:publishers",
    "tenancy.apikey": "serving:keys",
    "tenancy.invitation": "people",
    "tenancy.membership": "people",
}


def targets(actor: Actor, events: Iterable[AuditEvent]) -> dict[Any, str]:
    """The address of what each event is about, by the event's key. One question to the database for each kind."""
    wanted: dict[str, set[str]] = defaultdict(set)
    found: dict[Any, str] = {}
    events = list(events)
    for event in events:
        if event.target_type in PAGES:
            wanted[event.target_type].add(event.target_id)
        elif event.target_type in LISTS:
            found[event.pk] = reverse(LISTS[event.target_type])
    pages = {(kind, key): page for kind, keys in wanted.items() for key, page in _pages(actor, kind, keys)}
    for event in events:
        if page := pages.get((event.target_type, event.target_id)):
            found[event.pk] = page
    return found


def _pages(actor: Actor, kind: str, keys: set[str]) -> list[tuple[str, str]]:
    rows: Any = apps.get_model(kind)._default_manager
    try:
        return [(str(row.pk), PAGES[kind](row)) for row in rows.visible_to(actor).filter(pk__in=keys)]
    except (ValidationError, ValueError):  # a key of another form than rows of this kind have now
        return []
