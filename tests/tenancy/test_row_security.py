"""Row security: the rows that the database shows to a statement, also to one without a filter."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import ProgrammingError, connection, models, transaction
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import RequestFactory
from django.utils import timezone

from agentcore_site import row_security
from agentcore_site.jobs.models import Job
from agentcore_site.jobs.workers import workers_seen
from agentcore_site.lib import row_scope
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.row_scopes import RowScope
from experiences.models import Agent
from experiences.playbooks.selectors import queue_position
from tests import factories
from tests.support.rows import queued_run

View = Callable[[HttpRequest], HttpResponse]


def asked(who: Any, view: View, path: str = "/jobs/") -> HttpResponse:
    """A view that forgets to filter, asked by a user through the middleware."""
    request = RequestFactory().get(path)
    request.user = who
    return RowScope(view)(request)


def names(_: HttpRequest) -> HttpResponse:
    return HttpResponse(",".join(Agent.objects.order_by("slug").values_list("slug", flat=True)))


@pytest.fixture
def theirs(elsewhere: Organization, agent: Agent) -> Agent:
    return factories.AgentFactory(organization=elsewhere, slug="theirs")


def test_every_table_of_a_tenant_has_the_policy(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_class WHERE relrowsecurity")
        walled = {name for (name,) in cursor.fetchall()}
    assert walled == {one._meta.db_table for one in row_security.tenant_models()}
    assert not walled & row_security.PLAIN.keys()


def test_a_new_table_has_to_say_whose_its_rows_are() -> None:
    class Forgotten(models.Model):
        class Meta:
            app_label = "serving"

    try:
        with pytest.raises(LookupError, match="whose rows are these"):
            row_security.policy(Forgotten)
    finally:
        del apps.all_models["serving"]["forgotten"]
        apps.clear_cache()


def test_a_view_that_forgets_its_filter_shows_the_members_own(agent: Agent, theirs: Agent, olivia: Any) -> None:
    assert asked(olivia, names).content.decode() == agent.slug


def test_an_anonymous_or_undeclared_scope_sees_no_row(agent: Agent) -> None:
    from django.contrib.auth.models import AnonymousUser

    assert asked(AnonymousUser(), names).content == b""
    with row_scope.limited(row_scope.NOTHING):
        assert not Organization.objects.exists()
        with transaction.atomic():
            assert not Agent.objects.exists()
    assert Agent.objects.exists()


def test_a_superuser_sees_all_in_the_admin_and_the_own_elsewhere(agent: Agent, theirs: Agent, adam: Any) -> None:
    assert asked(adam, names, "/admin/").content.decode() == f"{agent.slug},theirs"
    assert asked(adam, names).content.decode() == agent.slug


def test_an_answer_that_is_streamed_is_of_the_same_scope(agent: Agent, theirs: Agent, olivia: Any) -> None:
    streamed: Any = asked(olivia, lambda _: StreamingHttpResponse(slug for slug in slugs()))
    assert b"".join(streamed) == agent.slug.encode()


def slugs() -> Any:
    yield from Agent.objects.values_list("slug", flat=True).iterator(chunk_size=1)


def test_nothing_is_written_for_another_organisation(agent: Agent, theirs: Agent, acme: Organization) -> None:
    with row_scope.only(acme.id):
        assert Agent.objects.filter(pk=theirs.pk).update(name="taken") == 0
        with pytest.raises(ProgrammingError, match="row-level security"), transaction.atomic():
            factories.AgentFactory(organization_id=theirs.organization_id, organization=None, slug="planted")
        with pytest.raises(ProgrammingError, match="row-level security"), transaction.atomic():
            Agent.objects.filter(pk=agent.pk).update(organization_id=theirs.organization_id)


def test_the_scope_is_set_again_after_a_change_and_after_an_undone_savepoint(
    agent: Agent, theirs: Agent, acme: Organization, elsewhere: Organization
) -> None:
    def seen() -> list[str]:
        return list(Agent.objects.values_list("slug", flat=True))

    with transaction.atomic(), row_scope.only(acme.id):
        assert seen() == [agent.slug]
        with row_scope.only(elsewhere.id):
            assert seen() == ["theirs"]
        with pytest.raises(RuntimeError), transaction.atomic(), row_scope.only(elsewhere.id):
            assert seen() == ["theirs"]
            raise RuntimeError
        assert seen() == [agent.slug]
        with row_scope.only(elsewhere.id), pytest.raises(ProgrammingError), transaction.atomic():
            Agent.objects.raw("SELECT nonsense")[0]
        assert seen() == [agent.slug]


def test_rows_that_are_fetched_later_are_of_the_scope_of_then(agent: Agent, theirs: Agent, acme: Organization) -> None:
    slugs = Agent.objects.order_by("slug").values_list("slug", flat=True)
    with transaction.atomic():
        fetched = slugs.iterator(chunk_size=1)
        first = next(fetched)
        with row_scope.only(acme.id):
            assert list(slugs) == [agent.slug]
        assert [first, *fetched] == [agent.slug, "theirs"]


def test_workers_and_the_queue_are_those_of_the_whole_site_for_a_member_too(
    agent: Agent, theirs: Agent, operator: Any, charlie: Any, acme: Organization
) -> None:
    jobs = Job.objects.filter(id=queued_run(Actor(charlie), theirs).job_id)
    jobs.update(kind="evolution", worker="a-host:1", lease_until=timezone.now() + timedelta(minutes=1))
    ours = queued_run(operator, agent).job
    with row_scope.only(acme.id):
        assert workers_seen().busy == 1 and queue_position(ours) == 2


@pytest.mark.django_db(transaction=True)
def test_outside_of_a_transaction_each_statement_sets_the_scope(
    agent: Agent, theirs: Agent, acme: Organization
) -> None:
    with row_scope.only(acme.id):
        assert list(Agent.objects.values_list("slug", flat=True)) == [agent.slug]
        assert list(Agent.objects.values_list("slug", flat=True).iterator(chunk_size=1)) == [agent.slug]
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM experiences_agent")
            assert cursor.fetchall() == [(1,)] and cursor.rowcount == 1
    with connection.cursor() as cursor:
        cursor.execute("SHOW agentcore.scope")
        assert cursor.fetchone() == ("",)  # nothing stays in the session, which a pooler gives to another


def test_a_partition_is_read_through_its_table_alone(db: None) -> None:
    with connection.cursor() as cursor:
        for command in ("SELECT FROM", "DELETE FROM"):
            with pytest.raises(ProgrammingError, match="permission denied"), transaction.atomic():
                cursor.execute(f"{command} experiences_trajectory_other")


@pytest.mark.django_db(transaction=True)
def test_a_jobs_turn_sees_its_own_organisation(agent: Agent, theirs: Agent, operator: Any, monkeypatch: Any) -> None:
    from agentcore_site.jobs import tasks

    seen: list[str] = []
    monkeypatch.setattr(tasks, "_turn", lambda *_: seen.extend(Agent.objects.values_list("slug", flat=True)))
    run = queued_run(operator, agent)
    thread = threading.Thread(target=tasks.advance, args=[str(run.job_id)])  # begins outside of every scope
    thread.start()
    thread.join()
    assert seen == [agent.slug]
    assert Job.objects.get(id=run.job_id).attempt == 1
