"""An agent's current checkpoint: promoted by people, used by later jobs, released, and rolled back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.models import Job, Status
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from budgets.services import price_set
from evaluation.serving.models import Release
from evaluation.serving.releases.presenters import proof_of
from evaluation.serving.releases.promotion import agent_roll_back, checkpoint_promote
from evaluation.serving.releases.selectors import bundle_of
from evaluation.serving.releases.services import release_make
from experiences.learning.lessons.library import Lesson, Library
from experiences.lessons.services.lessons import experience_edit
from experiences.models import Agent, Experience
from tests.api.test_rest import problem
from tests.factories import AgentFactory
from tests.support.callers import Caller
from tests.support.pages import html
from tests.support.rows import queued_run
from training.checkpoint_bytes import checkpoint_load
from training.models import PolicyCheckpoint, TrainingRun
from training.policies.archive import pack, unpack
from training.policies.context import ContextPolicy
from training.policies.query_rule import Choice
from training.services import checkpoints
from training.services.checkpoint_uploads import checkpoint_upload
from training.services.checkpoints import checkpoint_save, retention
from training.services.promotion import promoted, promoted_checkpoint_set
from training.services.run_setup import setup_of
from training.services.runs import run_start

pytestmark = pytest.mark.django_db


@pytest.fixture
def router(operator: Actor, agent: Agent) -> Agent:
    """An agent that chooses actions."""
    made: Agent = AgentFactory(organization=agent.organization, created_by=operator.user, name="Router", slug="router")
    return made


def ended(run: TrainingRun) -> None:
    Job.objects.filter(pk=run.job_id).update(status=Status.COMPLETED)


def trained(operator: Actor, router: Agent, weight: float) -> PolicyCheckpoint:
    """A checkpoint of a finished job, whose policy is known by one weight."""
    run = queued_run(operator, router)
    state = setup_of(run).fresh_state()
    policy: Any = state.policy
    policy.parameters["own"] = np.full_like(policy.parameters["own"], weight)
    state.iteration = 3
    saved = checkpoint_save(run, iteration=3, data=state.to_bytes(), metrics={})
    ended(run)
    return saved


def begins(run: TrainingRun) -> float:
    policy: Any = setup_of(TrainingRun.objects.get(pk=run.pk)).fresh_state().policy
    return float(policy.parameters["own"][0])


def test_later_jobs_start_from_the_promoted_checkpoint_and_are_measured_against_that_checkpoint(
    operator: Actor, router: Agent
) -> None:
    first, second = (trained(operator, router, weight) for weight in (0.25, 0.5))
    release = checkpoint_promote(operator, first, note="It is good")
    assert (release.number, release.checkpoint, release.note) == (1, first, "It is good")
    policy = bundle_of(release).policy
    assert policy is not None and policy.sha256 == first.sha256
    run = queued_run(operator, router)
    assert run.starts_from == first and begins(run) == 0.25
    assert run.baseline == f"{first.label}, from which it went on"
    ended(run)
    # Asked to begin again, it does.
    again = queued_run(operator, router, config={"warm_start": False})
    assert again.starts_from is None and begins(again) == 0.0 and again.baseline == "the untrained baseline"
    ended(again)
    checkpoint_promote(operator, second)
    assert checkpoint_promote(operator, second).number == 2  # nothing has changed: no further release
    assert begins(queued_run(operator, router)) == 0.5
    # What a job began with stays what it is measured against.
    assert begins(run) == 0.25


def test_a_roll_back_leads_to_what_was_promoted_before(operator: Actor, router: Agent) -> None:
    first, second = (trained(operator, router, weight) for weight in (0.25, 0.5))
    with pytest.raises(Conflict, match="nothing to roll back to"):
        agent_roll_back(operator, router)
    checkpoint_promote(operator, first)
    with pytest.raises(Conflict, match="nothing to roll back to"):
        agent_roll_back(operator, router)
    checkpoint_promote(operator, second)
    back = agent_roll_back(operator, router, note="The second is slow")
    assert promoted(router) == first and (back.number, back.checkpoint) == (3, first)
    assert back.digest == Release.objects.get(agent=router, number=1).digest
    assert begins(queued_run(operator, router)) == 0.25
    event = AuditEvent.objects.get(action="checkpoint.rolled_back")
    assert (event.before, event.after) == ({"checkpoint": second.label}, {"checkpoint": first.label})


def test_a_starting_point_that_can_not_be_used_is_reported_and_left(operator: Actor, router: Agent) -> None:
    first = trained(operator, router, 0.25)
    checkpoint_promote(operator, first)
    PolicyCheckpoint.objects.filter(pk=first.pk).update(sha256="0" * 64)
    run = queued_run(operator, router)
    assert run.starts_from is None and "can't be read, so this begins untrained" in run.warnings[-1]
    broken = trained_elsewhere(operator, router)
    with pytest.raises(Conflict, match="does not match its SHA-256"):
        checkpoint_promote(operator, broken)
    assert promoted(router) == first


def trained_elsewhere(operator: Actor, router: Agent) -> PolicyCheckpoint:
    ended(TrainingRun.objects.filter(agent=router).latest("job__created_at"))
    made = trained(operator, router, 0.1)
    PolicyCheckpoint.objects.filter(pk=made.pk).update(data=b"something else")
    made.refresh_from_db()
    return made


def test_retention_keeps_what_was_promoted_and_what_jobs_began_with(
    operator: Actor, router: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "KEEP_DAYS", -1)
    first, second, plain = (trained(operator, router, weight) for weight in (0.1, 0.2, 0.3))
    promoted_checkpoint_set(operator, first)  # without a release, which keeps what it serves in any case
    ended(queued_run(operator, router))
    PolicyCheckpoint.objects.filter(pk=first.pk).update(promoted_at=None)  # taken back since
    PolicyCheckpoint.objects.filter(pk=second.pk).update(promoted_at="2026-01-01T00:00:00Z")
    newest = trained(operator, router, 0.4)
    retention()
    left = set(PolicyCheckpoint.objects.values_list("pk", flat=True))
    assert {first.pk, second.pk, newest.pk} <= left and plain.pk not in left


def test_retention_keeps_what_was_released_and_so_what_is_deployed(
    operator: Actor, router: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "KEEP_DAYS", -1)
    released, _plain = (trained(operator, router, weight) for weight in (0.1, 0.2))
    release_make(operator, router, checkpoint=released)
    newest = trained(operator, router, 0.3)
    retention()
    assert set(PolicyCheckpoint.objects.values_list("pk", flat=True)) == {released.pk, newest.pk}


def test_each_role_promotes_or_is_refused(operator: Actor, router: Agent, dan: Any, stella: Any, charlie: Any) -> None:
    saved = trained(operator, router, 0.1)
    for person, refusal in ((dan, Forbidden), (stella, Forbidden), (charlie, Missing)):
        with pytest.raises(refusal):
            checkpoint_promote(Actor(person), saved)
        with pytest.raises(refusal):
            agent_roll_back(Actor(person), router)


def test_an_uploaded_checkpoint_can_be_promoted_without_a_claim(operator: Actor, router: Agent) -> None:
    data = checkpoint_load(trained(operator, router, 0.75))
    twin = AgentFactory(organization=router.organization, created_by=operator.user)
    made = checkpoint_upload(operator, twin, data, sha256=PolicyCheckpoint.digest(data))
    release = checkpoint_promote(operator, made)
    assert release.evidence == {} and "its checkpoint was uploaded" in proof_of(release).text
    assert begins(queued_run(operator, twin)) == 0.75


# -- an agent of a language model: its lessons -------------------------------------------------------------------------

ROWS = [{"query": f"What is {n} and {n}?", "expected_outcome": {"answer": str(2 * n)}} for n in range(40)]
LATE = "When an order is late, say when it comes."


def shipped(operator: Actor, agent: Agent, *lessons: Lesson) -> PolicyCheckpoint:
    """A checkpoint of a finished job that ships these lessons."""
    run = run_start(operator, agent=agent, rows=ROWS, config={"n_iterations": 1, "context": {"epochs": 1}})
    state = setup_of(run, work="1").fresh_state()
    policy = ContextPolicy.fresh(Library(lessons), {})
    policy.ship(Choice(tuple(one.handle for one in lessons)))
    state.policy, state.iteration = policy, 1
    saved = checkpoint_save(run, iteration=1, data=state.to_bytes(), metrics={})
    ended(run)
    return saved


@pytest.fixture
def priced(agent: Agent, adam: Any) -> Agent:
    price_set(Actor(adam), model="small", organization=agent.organization, input_micros=1_000, output_micros=1_000)
    return agent


def active(agent: Agent) -> dict[str, str]:
    return dict(Experience.objects.filter(agent=agent, status="active").values_list("handle", "summary"))


def test_its_lessons_become_what_the_checkpoint_ships_and_go_back(operator: Actor, priced: Agent) -> None:
    old = shipped(operator, priced, Lesson("x0000000001", LATE))
    new = shipped(operator, priced, Lesson("x0000000001", "Say when it comes.", version=2), Lesson("x9", "Be brief."))
    checkpoint_promote(operator, old)
    assert active(priced) == {"x0000000001": LATE}
    checkpoint_promote(operator, new)
    assert active(priced) == {"x0000000001": "Say when it comes.", "x9": "Be brief."}
    back = agent_roll_back(operator, priced)
    assert active(priced) == {"x0000000001": LATE}
    assert Experience.objects.get(handle="x9").status == "proposed"  # it may be tried again
    assert [one.text for one in bundle_of(back).context.lessons] == [LATE]
    began = run_start(operator, agent=priced, rows=ROWS, config={"n_iterations": 1, "context": {"epochs": 1}})
    assert next(one["lesson"]["text"] for one in began.library if one["lesson"]["status"] == "active") == LATE
    # While a job is at work its lessons are the job's.
    with pytest.raises(Conflict, match="is at work"):
        checkpoint_promote(operator, new)


def test_an_uploaded_context_is_served_by_releases_only(operator: Actor, priced: Agent) -> None:
    saved = shipped(operator, priced, Lesson("x9", "Be brief.", status="active"))
    data = checkpoint_load(saved)
    twin = AgentFactory(organization=priced.organization, runtime="llm", endpoint=priced.endpoint)
    made = checkpoint_upload(operator, twin, data, sha256=saved.sha256)
    release = checkpoint_promote(operator, made)
    assert [one.text for one in bundle_of(release).context.lessons] == ["Be brief."]
    assert not Experience.objects.filter(agent=twin).exists()
    # What a database can't hold is no lesson of ours.
    state = unpack(data)
    state["policy/supported"] = [one | {"text": "Be\x00brief."} for one in state["policy/supported"]]
    forged = pack(state)
    with pytest.raises(Invalid, match="is no checkpoint of this program"):
        checkpoint_upload(operator, twin, forged, sha256=PolicyCheckpoint.digest(forged))


def test_a_persons_later_changes_stay(operator: Actor, priced: Agent) -> None:
    old = shipped(operator, priced, Lesson("x0000000001", LATE))
    row = Experience.objects.get(handle="x0000000001")
    experience_edit(operator, row, summary="Say it at once.")
    checkpoint_promote(operator, old)
    assert active(priced) == {"x0000000001": "Say it at once."}


# -- doors -------------------------------------------------------------------------------------------------------------


def test_pages_preview_a_promotion_and_promote(console: Client, operator: Actor, router: Agent) -> None:
    first, second = (trained(operator, router, weight) for weight in (0.25, 0.5))
    listed = f"/checkpoints/?agent={router.pk}"
    assert f'href="/checkpoints/{first.pk}/promote/"' in html(console.get(listed))
    preview = html(console.get(f"/checkpoints/{first.pk}/promote/"))
    assert "no checkpoint is promoted now" in preview and "First release" in preview
    done = console.post(f"/checkpoints/{first.pk}/promote/", {"note": "Good"}, follow=True)
    assert f"Router uses {first.label} now" in html(done)
    long = console.post(f"/checkpoints/{second.pk}/promote/", {"note": "x" * 301})
    assert "A note has at most 300" in html(long) and promoted(router) == first
    console.post(f"/checkpoints/{second.pk}/promote/")
    page = html(console.get(listed))
    assert f"Router uses {second.label}" in page and f"Roll back to {first.label}" in page
    preview = html(console.get(f"/agents/{router.pk}/roll-back/"))
    assert "Changes since release 2" in preview and first.sha256 in preview
    console.post(f"/agents/{router.pk}/roll-back/")
    assert promoted(router) == first
    assert console.get(f"/agents/{router.pk}/roll-back/").status_code == 409


def test_rest_promotes_and_rolls_back(api: Caller, operator: Actor, router: Agent) -> None:
    first, second = (trained(operator, router, weight) for weight in (0.25, 0.5))
    made = api.post(f"checkpoints/{first.pk}/promote", {"note": "Good"}, Idempotency_Key="a")
    assert made.status_code == 201 and (made.json()["number"], made.json()["note"]) == (1, "Good")
    assert api.get(f"checkpoints/{first.pk}").json()["promoted_at"] is not None
    problem(api.post("agents/router/roll-back"), 409)
    problem(api.post(f"checkpoints/{first.pk}/promote", {"node": "x"}), 400)
    api.post(f"checkpoints/{second.pk}/promote")
    assert api.post("agents/router/roll-back").json()["checkpoint_id"] == str(first.pk)
