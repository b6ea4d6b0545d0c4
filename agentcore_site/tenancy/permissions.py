"""Guards for writes. Reads are scoped by ``Model.objects.visible_to`` (models.py)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentcore_site.lib.errors import Forbidden, Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization, organization_id_of
from agentcore_site.tenancy.role_groups import role_rights
from agentcore_site.tenancy.roles import EVERY_RIGHT, ROLE_MAY, SCOPES, Role

NAMES = {
    "run.start": "start training",
    "run.cancel": "cancel jobs",
    "run.pause": "pause jobs",
    "run.resume": "resume jobs",
    "agent.edit": "edit agents",
    "dataset.edit": "edit datasets",
    "evaluate": "start evaluations",
    "export": "export data",
    "playbook.edit": "change playbooks",
    "playbook.evolve": "let playbooks evolve",
    "trace.record": "record executions",
    "feedback.give": "give feedback",
    "annotation.edit": "annotate trajectories",
    "checkpoint.edit": "change checkpoints",
    "checkpoint.download": "download checkpoints",
    "share.edit": "share jobs",
    "audit.view": "read the audit log",
    "audit.stream": "send the audit log elsewhere",
    "members.edit": "edit members",
    "keys.edit": "edit API keys",
    "endpoint.edit": "edit model endpoints",
    "gateway.call": "call agents and models through the gateway",
    "suite.edit": "edit suites",
    "release.make": "make releases",
    "deployment.edit": "deploy releases and roll them back",
    "deployment.override": "override the release gate",
    "budget.view": "see budgets",
    "budget.edit": "edit budgets",
    "price.edit": "edit prices",
    "events.edit": "configure event publishing",
    "webhook.edit": "edit webhooks",
    "retention.run": "archive and restore trajectories",
    "retention.edit": "set the retention of archives",
    "encryption.edit": "change encryption",
    "admin.open": "open the Django admin",
    "subject.erase": "erase a person's data",
    "data.view": "read trajectories, executions, traces, rows of datasets and suites, endpoints, lines of the ledger",
    "view": "see this",
}


@dataclass(frozen=True)
class ActionRow:
    """An action, in words, and for each role in the order of ``ROLE_MAY`` whether it may."""

    action: str
    words: str
    may: tuple[bool, ...]


def who_may_what(may: Mapping[str, frozenset[str]] = ROLE_MAY) -> list[ActionRow]:
    """The table of roles, from what all may to what few may. ``may``: what each role may do, as it is or (without it)
    as it is where nothing was changed."""
    words = NAMES | {"view": "see agents, jobs, evaluations and what they show"}
    rows = [ActionRow(one, words[one], tuple(one in allowed for allowed in may.values())) for one in EVERY_RIGHT]
    return sorted(rows, key=lambda row: (-sum(row.may), row.words))


def require(who: Any, action: str, organization: Organization | uuid.UUID) -> None:
    """Lets the actor pass or raises.

    Raises:
        Missing: the actor does not belong to the organisation (a stranger learns nothing).
        Forbidden: the actor belongs to it, but role or scopes don't allow ``action``.
    """
    actor = Actor.of(who)
    organization_id = organization_id_of(organization)
    if organization_id not in actor.memberships or (not actor.may_read and action == "view"):
        raise Missing("There is nothing here for you under this address.")
    if not actor.may(action, organization_id):
        raise Forbidden(refused(actor, action, organization_id))


def require_somewhere(who: Any, action: str) -> None:
    """Lets pass who may it in one of their organisations, and those who belong to none: they see nothing anyway.

    Raises:
        Forbidden: the actor may it nowhere.
    """
    actor = Actor.of(who)
    if actor.memberships and not actor.may_somewhere(action):
        raise Forbidden(refused(actor, action, actor.organization_ids[0]))


def refused(actor: Actor, action: str, organization_id: uuid.UUID) -> str:
    """Why a member may not do this, and who may."""
    what, membership = NAMES.get(action, action), actor.memberships[organization_id]
    if actor.scopes is not None and action in actor.rights[organization_id]:
        scopes = " or ".join(scope for scope, may in SCOPES.items() if action in may)
        return f"You may not {what} with this key. " + (
            f"Take one with the scope {scopes}." if scopes else "No key may: sign in."
        )
    role = membership.get_role_display().lower()
    limited = " with this key" if actor.scopes is not None else ""
    return f"You may not {what}{limited}: your role is {role}. {who_may(action)}"


def who_may(action: str) -> str:
    """The roles that may do it, as a sentence."""
    names = [f"{Role(role).label.lower()}s" for role, may in role_rights().items() if action in may]
    if not names:
        return "Ask an admin."
    return f"{' and '.join(filter(None, (', '.join(names[:-1]), names[-1]))).capitalize()} may do this."


def current_organization(who: Any) -> Organization:
    """The organisation that a new row of this actor belongs to: the key's, else the first membership.

    Raises:
        Forbidden: the person belongs to no organisation yet.
    """
    actor = Actor.of(who)
    for membership in actor.memberships.values():
        return membership.organization
    raise Forbidden("You belong to no organisation yet. Ask an admin to invite you to one.")
