"""Rows for tests."""

from __future__ import annotations

from datetime import date
from functools import cache

import factory
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import get_hasher, make_password
from django.utils import timezone

from agentcore_site.jobs.models import Job, Status
from agentcore_site.notices.models import SiteEvent, WebhookDelivery, WebhookEndpoint
from agentcore_site.tenancy.models import Membership, Organization
from agentcore_site.tenancy.roles import Role
from agentcore_site.vault import sealed
from evaluation.events.models import DeadLetter, EventCredential
from evaluation.serving.deployments.rules import DeploymentRule
from evaluation.serving.models import (
    AgentServing,
    CanaryObservation,
    Deployment,
    DeploymentEvent,
    Feedback,
    LearningLoop,
    LoopRow,
    LoopTurn,
    ProductionTrace,
    Release,
    ReleaseApproval,
)
from experiences.learning.lessons.stamps import pack_stamp
from experiences.lessons.stamps import stamp_of_agent, stamped
from experiences.models import (
    Agent,
    ArchiveState,
    Experience,
    ModelEndpoint,
    PromptPack,
    ToolServer,
    TrajectoryArchive,
    TrajectoryExport,
)

PASSWORD = "correct horse battery staple"


@cache
def hashed(password: str, algorithm: str) -> str:
    """The shipped algorithm takes a third of a second on purpose: once for all the people of a test process."""
    return make_password(password, hasher=algorithm)


class OrganizationFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = Organization
        django_get_or_create = ("slug",)

    name = factory.Sequence(lambda n: f"Organisation {n}")
    slug = factory.Sequence(lambda n: f"organisation-{n}")


class UserFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = get_user_model()
        django_get_or_create = ("username",)
        skip_postgeneration_save = True

    username = factory.Sequence(lambda n: f"person{n}")
    email = factory.LazyAttribute(lambda user: f"{user.username}@example.com")

    @factory.post_generation
    def password(self, create: bool, extracted: str | None, **_: object) -> None:
        self.password = hashed(extracted or PASSWORD, get_hasher().algorithm)  # type: ignore[attr-defined]
        self.save()  # type: ignore[attr-defined]


class MembershipFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = Membership

    organization = factory.SubFactory(OrganizationFactory)
    user = factory.SubFactory(UserFactory)
    role = Role.OPERATOR


class ModelEndpointFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = ModelEndpoint

    organization = factory.SubFactory(OrganizationFactory)
    name = factory.Sequence(lambda n: f"Endpoint {n}")
    base_url = "http://127.0.0.1:9/v1"
    model = "small"


class ToolServerFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = ToolServer

    organization = factory.SubFactory(OrganizationFactory)
    name = factory.Sequence(lambda n: f"server-{n}")
    url = "http://127.0.0.1:9/mcp"


class AgentFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = Agent

    organization = factory.SubFactory(OrganizationFactory)
    name = factory.Sequence(lambda n: f"Agent {n}")
    slug = factory.Sequence(lambda n: f"agent-{n}")
    environment = "reasoning_gym"
    leave_out_rate = 0.0  # contexts are whole, as tests compare them word by word; services' agents have the default


class PromptPackFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    """A pack that bears its stamp."""

    class Meta:
        model = PromptPack

    organization = factory.SubFactory(OrganizationFactory)
    name = factory.Sequence(lambda n: f"pack-{n}")
    system = "You work with care."
    stamp = factory.LazyAttribute(lambda pack: pack_stamp(pack.system))


class EventCredentialFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = EventCredential

    agent = factory.SubFactory(AgentFactory)
    organization = factory.SelfAttribute("agent.organization")
    name = "a program"
    user = factory.Sequence(lambda n: f"p-{n:012d}")


class DeadLetterFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = DeadLetter

    organization = factory.SubFactory(OrganizationFactory)
    subject = "agent.rl.trajectory.v1"
    stream = "RL_TRAJECTORIES"
    sequence = factory.Sequence(lambda n: n + 1)
    stored_at = factory.LazyFunction(timezone.now)
    reason = "unknown_agent"
    detail = "No agent of-tomorrow is registered."
    payload = "{}"


class SiteEventFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = SiteEvent

    organization = factory.SubFactory(OrganizationFactory)
    type = "job.failed"
    text = "A job failed."
    path = "/jobs/"
    data = factory.LazyFunction(lambda: {"how": "Resume it."})


class WebhookEndpointFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = WebhookEndpoint

    organization = factory.SubFactory(OrganizationFactory)
    name = factory.Sequence(lambda n: f"hook-{n}")
    url = "http://127.0.0.1:1/hook"
    off_reason = "Said."
    sealed_secret = factory.LazyFunction(lambda: sealed("whsec_c2VjcmV0"))


class WebhookDeliveryFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    """One that waits, of an event of its organisation."""

    class Meta:
        model = WebhookDelivery

    organization = factory.SubFactory(OrganizationFactory)
    endpoint = factory.SubFactory(WebhookEndpointFactory, organization=factory.SelfAttribute("..organization"))
    event = factory.SubFactory(SiteEventFactory, organization=factory.SelfAttribute("..organization"))


class TrajectoryArchiveFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    """The record of a file; there is none."""

    class Meta:
        model = TrajectoryArchive

    agent = factory.SubFactory("tests.factories.AgentFactory")
    organization = factory.SelfAttribute("agent.organization")
    month = date(2026, 1, 1)
    state = ArchiveState.ARCHIVED
    sha256 = "0" * 64
    size = 1_000
    rows = 10
    first_at = last_at = archived_at = factory.LazyFunction(timezone.now)


class ExperienceFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    """A lesson that is stamped under its agent's prompt."""

    class Meta:
        model = Experience

    agent = factory.SubFactory(AgentFactory)
    organization = factory.SelfAttribute("agent.organization")
    handle = factory.Sequence(lambda n: f"x{n:010d}")
    summary = factory.Sequence(lambda n: f"When a task has {n} parts, do them one at a time.")
    status = "active"
    tokens = 14

    @factory.lazy_attribute
    def stamp(self) -> str:
        values = {name: getattr(self, name, default) for name, default in (("version", 1), ("domain", ""))}
        return stamped(Experience(handle=self.handle, summary=self.summary, **values), stamp_of_agent(self.agent))


RULE = DeploymentRule().as_json()


def served(release: Release, word: str = "Zanzibar") -> ProductionTrace:
    """An agent's trace in production, with the deployment of ``release`` that it came through. What is asked is
    about ``word``."""
    owner = {"organization": release.organization, "agent": release.agent}
    ReleaseApproval.objects.create(release=release)
    AgentServing.objects.create(**owner, release=release)
    deployment = Deployment.objects.create(
        **owner, release=release, strategy="canary", state="done", share=1.0, rule=RULE
    )
    DeploymentEvent.objects.create(deployment=deployment, kind="started", share=0.1)
    trace = ProductionTrace.objects.create(
        **owner,
        release_id=release.pk,
        deployment_id=deployment.pk,
        arm="new",
        session="s-1",
        model="small",
        request={"messages": [{"role": "user", "content": f"Where is {word}?"}]},
        response={"role": "assistant", "content": "It comes tomorrow."},
        status="ok",
    )
    Feedback.objects.create(
        organization=release.organization, trace=trace, metric="comment", text=f"{word} is no city.", giver="person 1"
    )
    CanaryObservation.objects.create(
        deployment=deployment,
        session="s-1",
        trace_id=trace.pk,
        new=True,
        share=0.1,
        failed=False,
        cost_micros=10,
        duration_ms=20.0,
        at=trace.created_at,
    )
    LearningLoop.objects.create(**owner)
    turn = LoopTurn.objects.create(**owner, release=release, number=1, trigger="hand", state="reviewing")
    values = {"query": f"Where is {word}?", "expected": "East of Africa.", "flags": ["odd"], "source": "corrected"}
    LoopRow.objects.create(turn=turn, trace_id=trace.pk, **values, state="waiting")
    return trace


class TrajectoryExportFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    """The record of an export whose file is gone."""

    class Meta:
        model = TrajectoryExport

    class Params:
        by = None

    organization = factory.SubFactory("tests.factories.OrganizationFactory")
    format = "jsonl"
    until = deleted_at = factory.LazyFunction(timezone.now)

    @factory.lazy_attribute
    def job(self) -> Job:
        now = timezone.now()
        return Job.objects.create(
            organization=self.organization,
            kind="export",
            title="Export as jsonl",
            status=Status.COMPLETED,
            progress=1.0,
            created_by=self.by,
            finished_at=now,
        )
