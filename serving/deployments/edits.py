"""Small edits of what an agent is told go out by themselves: by the agent's own rule, and through its gate."""

from __future__ import annotations

import logging
from typing import Any, Final
from uuid import UUID

from django.db import transaction

from agentcore_site.audit.services import record
from agentcore_site.jobs.models import ENDED
from agentcore_site.lib.errors import DomainError, Invalid
from agentcore_site.lib.row_checks import hold_row
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.models import Agent, AgentRuntime, Playbook
from serving.deployments.gate import verdict_of
from serving.deployments.measuring import suites_missing
from serving.deployments.selectors import live_deployment
from serving.deployments.services import deployment_start
from serving.models import AgentServing, DeploymentStrategy, Release
from serving.releases.bundle import Bundle, differences
from serving.releases.making import bundle_of_agent, bundle_of_playbook
from serving.releases.selectors import bundle_of
from serving.releases.services import Unchanged, release_make
from serving.suites.services import suite_run_start

log = logging.getLogger(__name__)

MOST: Final = 20  # texts
TEXTS: Final = frozenset({"lesson", "item"})  # parts of a bundle that a small edit may change
NEEDED: Final = ("deployment.edit", "release.make", "evaluate")
NOTE: Final = "A small edit, by the agent's own rule."


@transaction.atomic
def edits_change(actor: Any, agent: Agent, *, most: int | None) -> AgentServing:
    """Edits that change at most so many texts, and nothing else, go out by themselves from now on, as this person.
    None: no edit does.

    Raises:
        Missing, Forbidden: the actor may not do what an edit takes.
        Invalid: not between 1 and ``MOST``.
    """
    for action in NEEDED:
        require(actor, action, agent.organization_id)
    if most is not None and not 1 <= most <= MOST:
        message = f"A small edit changes 1 to {MOST} texts."
        raise Invalid(message, fields={"most": message})
    hold_row(agent)
    serving, _ = AgentServing.objects.get_or_create(agent=agent, defaults={"organization_id": agent.organization_id})
    before = {"most": serving.most_edits}
    serving.most_edits, serving.edits_by = most, None if most is None else Actor.of(actor).user
    serving.save(update_fields=["most_edits", "edits_by", "updated_at"])
    record(actor, "serving.edits", serving, organization=agent.organization_id, before=before, after={"most": most})
    return serving


def edits_tick() -> int:
    """Takes one step for each agent whose small edits go out by themselves. Returns how many there are."""
    rows = AgentServing.objects.filter(most_edits__isnull=False, edits_by__isnull=False, agent__archived_at=None)
    ids = list(rows.exclude(release=None).values_list("pk", flat=True))
    for pk in ids:
        try:
            _step(pk)
        except DomainError as error:  # as long as it takes: the next tick asks again
            log.info("the edit of agent %s waits: %s", pk, error.message)
        except Exception:  # one that can't be stepped must not hold up the others
            log.exception("the edit of agent %s could not be stepped", pk)
    return len(ids)


@transaction.atomic
def _step(pk: UUID) -> None:
    """Makes a release of an edit, runs the suites that the gate asks for, and deploys it once the gate lets it through.
    Raises DomainError."""
    rows = AgentServing.objects.select_for_update(of=("self",), skip_locked=True)
    serving = rows.select_related("agent", "release", "edits_by").filter(pk=pk).first()
    if serving is None or serving.release is None or live_deployment(serving.agent) or not edit_of(serving):
        return
    agent, current = serving.agent, serving.release
    actor = Actor(serving.edits_by, organization_id=agent.organization_id, door="edits")
    try:
        release = release_make(actor, agent, playbook_version=_version(agent), note=NOTE)
    except Unchanged as same:
        release = same.release
    if release.deployments.exists():  # it was taken back, or a person decided
        return
    missing = suites_missing(release, current)
    for one in missing:
        if one.last is None:  # one that failed is for a person to run again
            suite_run_start(actor, one.version, release=one.of)
    if not missing and verdict_of(release, current).passed:
        deployment_start(actor, release, strategy=DeploymentStrategy.IMMEDIATE, note=NOTE)


def edit_of(serving: AgentServing) -> int:
    """How many texts the agent as it stands would tell otherwise than its release, where the rule calls that small;
    else 0.

    Raises:
        Conflict: its prompt pack was altered.
    """
    if serving.release is None or serving.most_edits is None:
        return 0
    changed = differences(bundle_of(serving.release), _bundle(serving.agent))
    small = {one.part for one in changed} <= TEXTS and len(changed) <= serving.most_edits
    return len(changed) if small else 0


def said_of_edits(serving: AgentServing) -> str:
    """The rule, and what an edit waits for, in words."""
    if serving.most_edits is None:
        return "No edit goes out by itself."
    by = serving.edits_by or "a person who is gone"
    told = f"Edits of at most {serving.most_edits} texts go out by themselves once the gate lets them, as {by}."
    latest = Release.objects.filter(agent=serving.agent_id).order_by("-number").first()
    if latest is None or serving.release is None or latest.number <= serving.release.number:
        return told
    if latest.deployments.exists():
        return told
    missing = suites_missing(latest, serving.release)
    if ended := [one for one in missing if one.last is not None and one.last.job.status in ENDED]:
        return f"{told} Release {latest.number} waits: run suite {ended[0].version.suite.name} again, which ended."
    if missing:
        return f"{told} Release {latest.number} waits for suite {missing[0].version.suite.name}."
    return f"{told} Release {latest.number}: {verdict_of(latest, serving.release).sentence}"


def _version(agent: Agent) -> int | None:
    """An agent that chooses actions is edited by its playbook alone; any other one as it stands."""
    if agent.runtime != AgentRuntime.ACTION:
        return None
    return Playbook.objects.filter(agent=agent).values_list("version", flat=True).first()


def _bundle(agent: Agent) -> Bundle:
    if (version := _version(agent)) is None:
        return bundle_of_agent(agent)
    return bundle_of_playbook(agent, Playbook.objects.get(agent=agent), version)
