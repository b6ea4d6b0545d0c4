"""Two organisations with a row of every kind, whose names hold a word that the other must never see."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

WORDS: Final = {"a": "Zanzibar", "b": "Ouagadougou"}
ROLES: Final = {
    "admin": "admin",
    "operator": "operator",
    "developer": "developer",
    "viewer": "stakeholder",
    "other admin": "admin",
}


@dataclass(frozen=True)
class Caller:
    """One person: a key and a session of theirs ("" for the stranger), words they must not see, ids to ask for."""

    name: str
    key: str = ""
    cookie: str = ""
    foreign: tuple[str, ...] = ()
    staff: bool = False
    ids: dict[str, list[str]] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


def make() -> list[Caller]:
    """Makes both and returns who calls: four roles of one, the other's admin, and a stranger."""
    first, mine = organization("a"), WORDS["b"]
    second, theirs = organization("b"), WORDS["a"]
    ids = {name: [*first.get(name, []), *second.get(name, [])] for name in first | second}
    callers = [person("a", name, role, (mine,), ids) for name, role in ROLES.items() if name != "other admin"]
    callers.append(person("b", "other admin", ROLES["other admin"], (theirs,), ids))
    return [*callers, Caller("stranger", foreign=(mine, theirs), ids=ids)]


def person(side: str, name: str, role: str, foreign: tuple[str, ...], ids: dict[str, list[str]]) -> Caller:
    """A caller of two accounts: what is called with the key may end all sessions of its account."""
    from django.conf import settings
    from django.test import Client

    from agentcore_site.tenancy.actors import Actor
    from agentcore_site.tenancy.roles import SCOPES
    from agentcore_site.tenancy.services import api_key_create

    staff = role == "admin"
    _, key = api_key_create(Actor(member(side, name, role, staff=staff)), name="fuzz", scopes=SCOPES)
    client = Client()
    client.force_login(member(side, f"{name}-browser", role, staff=staff))
    return Caller(name, key, client.cookies[settings.SESSION_COOKIE_NAME].value, foreign, staff, ids)


def member(side: str, name: str, role: str, *, staff: bool) -> Any:
    """The account of that name, with that role, made or put right."""
    from django.contrib.auth import get_user_model

    from agentcore_site.tenancy.models import Membership, Organization
    from tests import factories

    username = f"{WORDS[side]}-{name.replace(' ', '-')}"
    # Made once: the factory sets a password each time, which ends sessions.
    user = get_user_model().objects.filter(username=username).first() or factories.UserFactory(username=username)
    type(user).objects.filter(pk=user.pk).update(is_active=True, is_staff=staff)
    home = Organization.objects.get(slug=f"side-{side}")
    Membership.objects.update_or_create(organization=home, user=user, defaults={"role": role, "can_export": True})
    return user


def organization(side: str) -> dict[str, list[str]]:
    """One organisation with its rows. Returns ids by the part of an address before them."""
    from django.db import transaction
    from django.utils import timezone

    from agentcore_site.jobs.models import ShareLink
    from agentcore_site.jobs.services import share_create
    from agentcore_site.tenancy.actors import Actor
    from agentcore_site.tenancy.models import Invitation
    from agentcore_site.tenancy.roles import Role
    from budgets.models import Budget
    from evaluation.services import evaluation_start
    from experiences.agents.services.datasets import dataset_create
    from experiences.models import ExecutionTrace, TrajectoryRecord
    from experiences.playbooks.services.playbooks import playbook_create
    from tests import factories
    from tests.support.playbooks import delta_waiting, evolution_failed
    from tests.support.rows import checkpoint_of_run, lived_run

    word = WORDS[side]
    home = factories.OrganizationFactory(name=f"{word} Ltd", slug=f"side-{side}")
    owner = factories.UserFactory(username=f"{word}-owner")
    member = factories.MembershipFactory(organization=home, user=owner, role=Role.ADMIN)
    actor = Actor(owner)
    agent = factories.AgentFactory(organization=home, created_by=owner, name=f"{word} router", slug=f"router-{side}")
    with transaction.atomic():  # a worker sees the job when it has ended
        run = lived_run(actor, agent)
        evaluation = evaluation_start(actor, run=run, samples=1)
    rows = [{"query": f"{word} question {n}?", "expected_outcome": {"answer": "1"}} for n in range(5)]
    dataset = dataset_create(actor, name=f"{word}-data", rows=rows)
    sections = [{"category": "learnings", "content": f"{word} is an island."}]
    playbook = playbook_create(actor, agent=agent, initial_sections=sections)
    delta = delta_waiting(playbook, content=f"{word} has no trams.")
    evolution = evolution_failed(playbook)
    execution = ExecutionTrace.objects.create(
        organization=home, agent=agent, inputs={"place": word}, duration_ms=1.0, success=True
    )
    endpoint = factories.ModelEndpointFactory(organization=home, name=f"{word} models")
    server = factories.ToolServerFactory(organization=home, name=f"{word.lower()}-tools")
    pack = factories.PromptPackFactory(organization=home, name=f"{word.lower()}-pack", system=f"{word} prompt")
    lesson = factories.ExperienceFactory(agent=agent, summary=f"When in {word}, ask twice.")
    invitation = Invitation.objects.create(
        organization=home,
        email=f"{word}@example.org",
        digest=f"digest-{side}",
        sent_at=timezone.now() - timedelta(days=1),
        expires_at=timezone.now() + timedelta(days=6),
    )
    share_create(actor, run.job)
    trajectories = TrajectoryRecord.objects.filter(job_id=run.job_id)[:2]
    found: dict[str, list[Any]] = {
        "agents": [agent.slug, agent.id],
        "playbooks": [agent.slug],
        "training-jobs": [run.job_id],
        "jobs": [run.job_id],
        "datasets": [dataset.id],
        "trajectories": [one.id for one in trajectories],
        "checkpoints": [checkpoint_of_run(run).id],
        "evaluations": [evaluation.job_id],
        "model-endpoints": [endpoint.id],
        "tool-servers": [server.id],
        "prompt-packs": [pack.id],
        "experiences": [lesson.id],
        "reviews": [delta.id],
        "members": [member.id],
        "invitations": [invitation.id],
        "share": [ShareLink.objects.get(job=run.job).id],
        "budgets": list(Budget.objects.filter(organization=home).values_list("id", flat=True)[:3]),
        "evolutions": [evolution.job_id],
        "executions": [execution.id],
    }
    found |= further(actor, home, agent, budget_of_job=run.job_id, word=word)
    return {name: [str(id) for id in ids] for name, ids in found.items()}


def further(actor: Any, home: Any, agent: Any, *, budget_of_job: Any, word: str) -> dict[str, list[Any]]:
    """Rows of what is in production, of events, money and the audit log."""
    from datetime import date

    from agentcore_site.audit.models import AuditEvent
    from agentcore_site.tenancy.models import ApiKey, Erasure
    from agentcore_site.tenancy.services import api_key_create
    from budgets.models import Budget, BudgetAlert, ModelPrice
    from evaluation.serving.models import LoopTurn, Release
    from evaluation.serving.releases.bundle import Bundle
    from tests import factories
    from tests.support.suites import suite_run_stored

    bundle = Bundle(runtime="llm", system=f"You guide tourists in {word}.").as_json()
    release = Release.objects.create(organization=home, agent=agent, number=1, source="agent", bundle=bundle)
    trace = factories.served(release, word)
    suite_run = suite_run_stored(actor, release, name=f"{word.lower()}-suite", query=f"Who rules {word}?")
    budget = Budget.objects.get(owner_id=budget_of_job)
    alert = BudgetAlert.objects.create(
        budget=budget, threshold=75, limit_micros=1, spent_micros=1, error=f"{word} is away."
    )
    price = ModelPrice.objects.create(
        organization=home, model=f"{word}-7b", input_micros=1, output_micros=1, valid_from=date(2026, 1, 1)
    )
    erasure = Erasure.objects.create(organization=home, digests=[], found={}, left={}, notes=[word])
    api_key_create(actor, name=f"{word} key", scopes=["training:view"])
    return {
        "organizations": [home.id],
        "releases": [release.id],
        "deployments": [trace.deployment_id],
        "traces": [trace.id],
        "feedback": [trace.feedback.get().id],
        "loop-turns": list(LoopTurn.objects.filter(organization=home).values_list("id", flat=True)[:2]),
        "suites": [suite_run.version.suite_id],
        "suite-runs": [suite_run.job_id],
        "alerts": [alert.id],
        "prices": [price.id],
        "erasures": [erasure.id],
        "api-keys": [ApiKey.objects.get(name=f"{word} key").id],
        "audit-events": list(
            AuditEvent.objects.filter(organization_id=home.id).order_by("-at").values_list("id", flat=True)[:3]
        ),
        "exports": [factories.TrajectoryExportFactory(organization=home, by=actor.user, filters={"search": word}).pk],
        "archives": [factories.TrajectoryArchiveFactory(organization=home, agent=agent).id],
        "event-publishers": [factories.EventCredentialFactory(agent=agent, name=f"{word} program").id],
        "dead-letters": [factories.DeadLetterFactory(organization=home, detail=f"No agent {word}.").id],
    }


def mend(callers: list[Caller]) -> None:
    """Gives back what the requests took (memberships, roles, keys), and ends the jobs that they started."""
    from agentcore_site.jobs import lifecycle
    from agentcore_site.jobs.models import ACTIVE, Job
    from agentcore_site.lib.errors import Conflict
    from agentcore_site.tenancy.models import ApiKey

    for caller in callers:
        if caller.key:
            side = "b" if caller.name == "other admin" else "a"
            for name in (caller.name, f"{caller.name}-browser"):
                user = member(side, name, ROLES[caller.name], staff=caller.staff)
                ApiKey.objects.filter(user=user, name="fuzz").update(revoked_at=None)
    for job in Job.objects.filter(status__in=ACTIVE, organization__slug__startswith="side-"):
        with suppress(Conflict):  # it has ended meanwhile
            lifecycle.cancel(None, job)
