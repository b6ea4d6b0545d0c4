"""Requests of people to pause, cancel and resume: none is lost, in whichever way a worker's turn ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from django.db import InternalError, transaction
from hypothesis import HealthCheck, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from agentcore_site.jobs import lifecycle, tasks
from agentcore_site.jobs.kinds import Progressed, kinds
from agentcore_site.jobs.lease import CancelledElsewhere, Lease, MustFail, MustPause
from agentcore_site.jobs.models import ENDED, RESUMING, Job, JobEvent, Reason, Status
from agentcore_site.lib.errors import Conflict
from agentcore_site.lib.key_errors import KeyUnavailable
from agentcore_site.lib.object_storage import ObjectsUnavailable
from tests.support.rounds import rounds

pytestmark = pytest.mark.django_db(transaction=True)

PAST = "2000-01-01T00:00:00Z"
PAUSES = (
    Reason.WAITING_FOR_LLM, Reason.SPENDING_RATE, Reason.DISK_FULL, Reason.BUDGET_EXCEEDED, Reason.LLM_REFUSED,
    Reason.SPENDS_TOO_FAST,
)  # fmt: skip


class Died(BaseException):
    """The worker's process is gone: nothing of the turn's end is written."""


ENDS: dict[str, Callable[[], BaseException]] = {
    **{f"pauses: {reason}": (lambda reason=reason: MustPause(reason, "It has to wait.")) for reason in PAUSES},
    "its key is away": lambda: KeyUnavailable("The key can't be had."),
    "fails": lambda: MustFail(Reason.DIVERGED, "It diverged."),
    "breaks": lambda: ZeroDivisionError("nothing to divide by"),
    "database fails": lambda: InternalError("terminating connection due to idle-in-transaction timeout"),
    "storage is away": ObjectsUnavailable,
    "dies": Died,
}


class Scripted:
    """A kind of job whose turn is a function."""

    turn: Callable[[Job, Lease], Progressed]

    def advance(self, job: Job, lease: Lease) -> Progressed:
        return self.turn(job, lease)

    def stopped(self, job: Job) -> None: ...

    def resume_check(self, job: Job) -> None: ...


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    scripted = Scripted()
    monkeypatch.setitem(kinds._items, "scripted", scripted)
    return scripted


def submit(organization: Any) -> Job:
    with transaction.atomic():
        return lifecycle.submit(None, kind="scripted", organization=organization, title="scripted")


def turn(job: Job) -> str:
    """One turn of a worker that reads requests only where the script says so; "" if there is nothing to take."""
    held = lifecycle.claim(job.id)
    if held is None:
        return ""
    lease = Lease(held)
    try:
        return tasks._turn(held, lease)
    except Died:
        Job.objects.filter(id=job.id).update(lease_until=PAST)
        return "died"
    except InternalError:
        lifecycle.put_back(held, lease)
        return "put back"


def state(job: Job) -> tuple[str, str, str]:
    job.refresh_from_db()
    return job.status, job.status_reason, job.requested


@pytest.mark.parametrize("ends", [end for end in ENDS if end not in ("dies", "database fails")])
def test_a_cancel_holds_in_each_way_that_a_turn_ends(acme: Any, operator: Any, kind: Scripted, ends: str) -> None:
    def work(job: Job, lease: Lease) -> Progressed:
        lifecycle.cancel(operator, job)
        raise ENDS[ends]()

    kind.turn = work
    job = submit(acme)
    assert turn(job) == "cancelled"
    assert state(job) == (Status.CANCELLED, Reason.USER, "")
    assert job.finished_at is not None and job.not_before is None
    assert bool(job.error) == (ends in ("fails", "breaks"))


@pytest.mark.parametrize("reason", PAUSES)
def test_a_pause_that_a_person_requested_does_not_end_by_itself(
    acme: Any, operator: Any, kind: Scripted, reason: str
) -> None:
    def work(job: Job, lease: Lease) -> Progressed:
        lifecycle.pause(operator, job)
        raise MustPause(reason, "It has to wait.")

    kind.turn = work
    job = submit(acme)
    assert turn(job) == "paused"
    stays = reason in (Reason.LLM_REFUSED, Reason.SPENDS_TOO_FAST)  # these wait for a person anyway
    assert state(job) == (Status.PAUSED, reason if stays else Reason.USER, "")
    Job.objects.filter(id=job.id).update(not_before=PAST)
    assert lifecycle.resume_waiting() == 0


@pytest.mark.parametrize("ends", ["dies", "database fails"])
def test_the_next_holder_looks_at_the_request_before_any_work(
    acme: Any, operator: Any, kind: Scripted, ends: str
) -> None:
    def work(job: Job, lease: Lease) -> Progressed:
        lifecycle.cancel(operator, job)
        raise ENDS[ends]()

    kind.turn = work
    job = submit(acme)
    turn(job)
    assert state(job) == (Status.RUNNING, "", "cancel")
    kind.turn = lambda job, lease: pytest.fail("work was done")
    assert turn(job) == "cancelled"


def test_a_completed_job_says_that_the_request_came_too_late(acme: Any, operator: Any, kind: Scripted) -> None:
    def work(job: Job, lease: Lease) -> Progressed:
        lifecycle.cancel(operator, job)
        return Progressed(finished=True, reason=Reason.ALL_ITERATIONS)

    kind.turn = work
    job = submit(acme)
    assert turn(job) == "completed"
    assert state(job) == (Status.COMPLETED, Reason.ALL_ITERATIONS, "")
    assert JobEvent.objects.get(job=job, type="cancel_too_late").message == (
        "The request to cancel came after the last step."
    )


def test_a_poison_job_that_was_to_be_cancelled_is_cancelled(
    acme: Any, operator: Any, kind: Scripted, settings: Any
) -> None:
    settings.JOB_MAX_CRASHES = 1
    job = submit(acme)
    assert lifecycle.claim(job.id) is not None
    lifecycle.cancel(operator, job)
    Job.objects.filter(id=job.id).update(lease_until=PAST, crashes=1)
    tasks.sweep()
    assert state(job) == (Status.CANCELLED, Reason.USER, "")


def test_a_withdrawn_request_lets_the_job_go_on(acme: Any, operator: Any, kind: Scripted) -> None:
    def work(job: Job, lease: Lease) -> Progressed:
        lifecycle.cancel(operator, job)
        lease._listen()
        lifecycle.resume(operator, job)
        lease.check()
        raise AssertionError("the worker had read the request")

    kind.turn = work
    job = submit(acme)
    assert turn(job) == "given back"
    assert state(job) == (Status.RUNNING, "", "") and job.lease_until is None
    assert JobEvent.objects.filter(job=job, type="resumed", message__contains="withdrew the cancel").exists()
    with pytest.raises(Conflict, match="this one is running"):
        lifecycle.resume(operator, job)


def test_a_pause_keeps_a_job_that_waits_from_going_on(acme: Any, operator: Any, kind: Scripted) -> None:
    def work(job: Job, lease: Lease) -> Progressed:
        raise MustPause(Reason.WAITING_FOR_LLM, "503")

    kind.turn = work
    job = submit(acme)
    turn(job)
    lifecycle.pause(operator, job)
    assert state(job) == (Status.PAUSED, Reason.USER, "") and job.not_before is None
    with pytest.raises(Conflict, match="can't be paused"):
        lifecycle.pause(operator, job)


def test_work_that_was_cancelled_elsewhere_ends_without_a_request(acme: Any, kind: Scripted) -> None:
    def work(job: Job, lease: Lease) -> Progressed:
        raise CancelledElsewhere

    kind.turn = work
    job = submit(acme)
    assert turn(job) == "cancelled"
    assert state(job) == (Status.CANCELLED, Reason.USER, "")


class Stories(RuleBasedStateMachine):
    """One job, its people, its workers, and time. ``wanted``: the last accepted request that was not withdrawn."""

    organization: Any
    operator: Any
    kind: Scripted

    @initialize()
    def begin(self) -> None:
        self.job = submit(self.organization)
        self.wanted = ""
        self.paid_late = 0

    def person(self, action: str) -> None:
        before = state(self.job)
        try:
            getattr(lifecycle, action)(self.operator, self.job)
        except Conflict:
            assert state(self.job) == before
            return
        self.wanted = "" if action == "resume" else action

    @rule(action=st.sampled_from(["pause", "cancel", "resume"]))
    def somewhen(self, action: str) -> None:
        self.person(action)

    @rule(
        script=st.lists(st.sampled_from(["pays", "reads", "pause", "cancel", "resume"]), max_size=6),
        ends=st.sampled_from(["goes on", "is complete", *ENDS]),
    )
    def works(self, script: list[str], ends: str) -> None:
        pending = self.wanted

        def work(job: Job, lease: Lease) -> Progressed:
            assert not pending, "work began although a request waited"
            for act in script:
                if act == "reads":
                    lease._listen()
                elif act == "pays":
                    lease.check()
                    self.paid_late += lease._requested != ""
                else:
                    self.person(act)
            if ends in ENDS:
                raise ENDS[ends]()
            return Progressed(finished=ends == "is complete", reason="")

        self.kind.turn = work
        outcome = turn(self.job)
        if outcome == "completed":
            self.wanted = ""  # the request came after the last step, which an event says

    @rule()
    def sweeps(self) -> None:
        Job.objects.filter(id=self.job.id).exclude(not_before=None).update(not_before=PAST)
        tasks.sweep()

    @rule()
    def budget_is_raised(self) -> None:
        paused = Job.objects.filter(status=Status.PAUSED, status_reason=Reason.BUDGET_EXCEEDED)
        lifecycle.requeue(paused, self.job, "Its budget has room again.")

    @invariant()
    def no_request_is_lost(self) -> None:
        status, reason, requested = state(self.job)
        kept = status == Status.RUNNING and requested == self.wanted
        if self.wanted == "cancel":
            assert kept or status == Status.CANCELLED, (status, reason, requested)
        elif self.wanted == "pause":
            assert kept or status == Status.FAILED or (status == Status.PAUSED), (status, reason, requested)
            assert status != Status.PAUSED or reason not in RESUMING, reason
        else:
            assert not requested
        assert status == Status.RUNNING or not requested
        assert self.paid_late == 0
        assert (status in ENDED) == (self.job.finished_at is not None)


@pytest.mark.rounds
def test_no_story_loses_a_request(acme: Any, operator: Any, kind: Scripted, settings_of_crashes: None) -> None:
    """``STORIES=n`` is their number; ``SEED=n`` plays the same again."""
    Stories.organization, Stories.operator, Stories.kind = acme, operator, kind
    stories = int(os.environ.get("STORIES", rounds(25, 500)))
    checked = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    chosen = settings(max_examples=stories, stateful_step_count=10, deadline=None, suppress_health_check=checked)
    machine = seeded(int(os.environ.get("SEED", 0)) or None)(Stories) if os.environ.get("SEED") else Stories
    run_state_machine_as_test(machine, settings=chosen)


@pytest.fixture
def settings_of_crashes(settings: Any, acme: Any) -> None:
    settings.JOB_MAX_CRASHES = 2
    acme.max_active_jobs = 100_000
    acme.save()
