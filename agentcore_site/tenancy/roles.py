"""The four roles and their rights. One table, read by every interface."""

from __future__ import annotations

from typing import Final

from django.db import models


class Role(models.TextChoices):
    OPERATOR = "operator", "Operator"
    DEVELOPER = "developer", "Developer"
    ADMIN = "admin", "Admin"
    STAKEHOLDER = "stakeholder", "Stakeholder"


VIEW: Final = frozenset({"view", "budget.view"})
# Raw rows: trajectories, executions, production traces, addresses of endpoints, lines of the ledger. They are for roles
# that work with them; who only looks sees verdicts, curves and totals.
DEVELOP: Final = VIEW | {
    "data.view",
    "agent.edit",
    "dataset.edit",
    "evaluate",
    "checkpoint.download",
    "playbook.edit",
    "trace.record",
    "feedback.give",
    "annotation.edit",
    "gateway.call",
    "suite.edit",
}
OPERATE: Final = DEVELOP | {
    "run.start",
    "run.cancel",
    "run.pause",
    "run.resume",
    "export",
    "checkpoint.edit",
    "share.edit",
    "playbook.evolve",
    "release.make",
    "deployment.edit",
    "retention.run",
}

MANAGE: Final = frozenset(
    {
        "audit.view",
        "audit.stream",
        "members.edit",
        "keys.edit",
        "budget.edit",
        "price.edit",
        "endpoint.edit",
        "subject.erase",
        "deployment.override",
        "events.edit",
        "webhook.edit",
        "retention.edit",
        "encryption.edit",
        "admin.open",
    }
)

ROLE_MAY: Final[dict[str, frozenset[str]]] = {
    Role.STAKEHOLDER: VIEW,
    Role.DEVELOPER: DEVELOP,
    Role.OPERATOR: OPERATE,
    Role.ADMIN: OPERATE | MANAGE,
}

EVERY_RIGHT: Final = frozenset().union(*ROLE_MAY.values())

# Who has one of these can take every other right, or what the site keeps: no role but the admins' gets it.
ADMINS_ALONE: Final = frozenset(
    {
        "members.edit",
        "keys.edit",
        "encryption.edit",
        "audit.stream",
        "subject.erase",
        "endpoint.edit",
        "retention.edit",
        "admin.open",
    }
)
# What people who read may be given besides: nothing of it changes what runs, is served or is paid.
READERS: Final = VIEW | {"audit.view", "feedback.give", "annotation.edit"}


def withheld(role: str, right: str) -> str:
    """Why a role can't be given a right, as a sentence; "" where it can."""
    if right not in EVERY_RIGHT:
        return "there is no such right."
    if role != Role.ADMIN and right in ADMINS_ALONE:
        return "who may do this can take every other right, so it is the admins' alone."
    if role == Role.STAKEHOLDER and right not in READERS:
        return "stakeholders read, so they get nothing that changes, spends or takes out. Give the person another role."
    return ""


def kept_by(role: str, right: str) -> str:
    """Why a right can't be taken from a role, as a sentence; "" where it can."""
    if right == "view":
        return "without it the role could open nothing. Remove the members instead."
    if role == Role.ADMIN and right in {"members.edit", "audit.view"}:
        return "without it an organisation could not be led any more."
    return ""


SERVICE: Final = "service:internal"

# What a key with a scope may do, for people.
SCOPE_TITLES: Final[dict[str, str]] = {
    "training:view": "read what you may see",
    "training:start": "launch, pause and resume jobs, edit agents and datasets, annotate trajectories",
    "training:cancel": "cancel jobs",
    "training:evaluate": "evaluate, and run suites",
    "training:export": "export trajectories, download checkpoints",
    "feedback:write": "give feedback on answers",
    "training:manage": "manage releases, deployments, budgets, members and keys, as far as you may",
    "gateway:call": "call agents and models through the gateway",
    "traces:write": "send traces and events of agents elsewhere",
    SERVICE: "serve playbooks to agents: read them, record executions, let them evolve",
}

# What a key may be narrowed to. A scope never widens what its owner's role allows.
SCOPES: Final[dict[str, frozenset[str]]] = {
    "training:view": VIEW | {"data.view"},
    "training:start": frozenset(
        {"run.start", "run.pause", "run.resume", "agent.edit", "dataset.edit", "annotation.edit"}
    ),
    "training:cancel": frozenset({"run.cancel"}),
    "training:evaluate": frozenset({"evaluate", "suite.edit"}),
    "training:export": frozenset({"export", "checkpoint.download"}),
    "feedback:write": frozenset({"feedback.give"}),
    "training:manage": MANAGE | {"checkpoint.edit", "share.edit", "release.make", "deployment.edit", "retention.run"},
    # For programs that call agents and models.
    "gateway:call": frozenset({"gateway.call"}),
    # For exporters of traces.
    "traces:write": frozenset({"trace.record"}),
    # For services beside agents: they read playbooks, record executions and let playbooks evolve.
    SERVICE: frozenset({"view", "data.view", "playbook.edit", "trace.record", "playbook.evolve"}),
}
