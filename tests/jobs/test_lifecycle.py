"""The lifecycle: one conditional update a move, and a late writer changes nothing."""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, InternalError, OperationalError, connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs import lifecycle, tasks, wakeup
from agentcore_site.jobs.events import event_add, events_after
from agentcore_site.jobs.kinds import Progressed, kinds
from agentcore_site.jobs.lease import Lease, LeaseLost, MustPause, Turn, fair_turn
from agentcore_site.jobs.models import TRANSITIONS, Job, JobEvent, Reason, Status
from agentcore_site.jobs.services import job_cancel, job_resume, may_cancel
from agentcore_site.lib.errors import Conflict, Forbidden, Missing, TooMany
from agentcore_site.lib.registry import UnknownName
from agentcore_site.tenancy.actors import Actor
from tests.support.backends import end_session
from tests.support.callers import Caller
from tests.support.workers import eventually

pytestmark = pytest.mark.django_db(transaction=True)


class Counting:
    """A kind of job that finishes after some slices."""

    slices = 2
    work: Callable[[Job, Lease], None] | None = None

    def __init__(self) -> None:
        self.seen = 0

    def advance(self, job: Job, lease: Lease) -> Progressed:
        self.seen += 1
        if self.work is not None:
            self.work(job, lease)
        return Progressed(finished=self.seen >= self.slices, reason="all_iterations")

    def stopped(self, job: Job) -> None: ...

    def resume_check(self, job: Job) -> None: ...


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Counting:
    counting = Counting()
    monkeypatch.setitem(kinds._items, "counting", counting)
    return counting


def submit(acme: Any, actor: Any = None, **extra: Any) -> Job:
    with transaction.atomic():
        return lifecycle.submit(actor, kind="counting", organization=acme, title="count", **extra)


def test_job_runs_in_slices_and_completes(acme: Any, kind: Counting) -> None:
    job = submit(acme)
    assert tasks.advance(str(job.id), 0) == "given back"
    job.refresh_from_db()
    assert (job.status, job.lease_until) == (Status.RUNNING, None)
    assert tasks.advance(str(job.id), 1) == "completed"
    job.refresh_from_db()
    assert (job.status, job.status_reason, job.attempt) == (Status.COMPLETED, "all_iterations", 2)
    assert job.finished_at is not None


def test_a_doubled_or_late_message_finds_nothing_to_claim(acme: Any, kind: Counting) -> None:
    job = submit(acme)
    assert tasks.advance(str(job.id), 0) == "given back"
    assert tasks.advance(str(job.id), 0) == "taken"
    assert kind.seen == 1


def test_of_twenty_claims_at_once_one_wins(acme: Any, kind: Counting) -> None:
    job = submit(acme)
    won: list[Job] = []
    gate = threading.Barrier(20)

    def claim() -> None:
        gate.wait()
        result = lifecycle.claim(job.id)
        if result is not None:
            won.append(result)
        connection.close()

    threads = [threading.Thread(target=claim) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


def test_a_worker_that_wakes_up_late_can_change_nothing(acme: Any, kind: Counting) -> None:
    job = submit(acme)
    late = lifecycle.claim(job.id)
    assert late is not None
    lease = Lease(late)
    Job.objects.filter(id=job.id).update(lease_until="2000-01-01T00:00:00Z")
    successor = lifecycle.claim(job.id)
    assert successor is not None and successor.attempt == late.attempt + 1
    with pytest.raises(LeaseLost), lease.fenced(progress=0.9):
        pass
    with pytest.raises(LeaseLost):
        lifecycle.finish(late, lease, status=Status.COMPLETED, reason="")
    job.refresh_from_db()
    assert (job.status, job.progress, job.crashes) == (Status.RUNNING, 0.0, 1)


def test_a_queued_job_pauses_resumes_and_cancels_at_once(acme: Any, operator: Any, kind: Counting) -> None:
    job = submit(acme, operator)
    lifecycle.pause(operator, job)
    assert job.status == Status.PAUSED
    assert tasks.advance(str(job.id), None) == "taken"
    lifecycle.resume(operator, job)
    assert job.status == Status.QUEUED
    lifecycle.cancel(operator, job)
    assert (job.status, job.status_reason) == (Status.CANCELLED, "user")
    with pytest.raises(Conflict, match="cancelled"):
        lifecycle.pause(operator, job)
    assert list(AuditEvent.objects.order_by("at").values_list("action", flat=True)) == [
        "job.pause_requested",
        "job.resumed",
        "job.cancel_requested",
    ]


def test_a_running_job_receives_a_pause_within_a_second(acme: Any, operator: Any, kind: Counting) -> None:
    def work(job: Job, lease: Lease) -> None:
        other = threading.Thread(target=lambda: (lifecycle.pause(operator, job), connection.close()))
        other.start()
        other.join()
        stop = threading.Event()
        for _ in range(100):
            lease.check()
            stop.wait(0.01)

    kind.work = work
    job = submit(acme, operator)
    assert tasks.advance(str(job.id), 0) == "paused"
    job.refresh_from_db()
    assert (job.status, job.status_reason, job.requested) == (Status.PAUSED, "user", "")


def test_a_pause_in_the_last_moment_of_a_slice_takes_effect(acme: Any, operator: Any, kind: Counting) -> None:
    def work(job: Job, lease: Lease) -> None:
        Job.objects.filter(id=job.id).update(requested="pause")  # after the work's last check

    kind.work = work
    job = submit(acme, operator)
    assert tasks.advance(str(job.id), 0) == "paused"
    job.refresh_from_db()
    assert (job.status, job.lease_until) == (Status.PAUSED, None)


def test_a_failure_is_data_with_an_address(acme: Any, kind: Counting) -> None:
    def work(job: Job, lease: Lease) -> None:
        raise ZeroDivisionError("nothing to divide by")

    kind.work = work
    job = submit(acme)
    assert tasks.advance(str(job.id), 0) == "failed"
    job.refresh_from_db()
    assert job.status == Status.FAILED
    assert "ZeroDivisionError: nothing to divide by (work, line" in job.error
    assert JobEvent.objects.filter(job=job, type="failed", level="error").exists()


def test_only_one_active_job_may_hold_a_key(acme: Any, operator: Any, kind: Counting) -> None:
    first = submit(acme, operator, exclusive_key="agent:1")
    with pytest.raises(Conflict):
        submit(acme, operator, exclusive_key="agent:1")
    lifecycle.cancel(operator, first)
    second = submit(acme, operator, exclusive_key="agent:1")
    assert second.status == Status.QUEUED


def test_a_job_is_claimed_at_once_when_the_previous_job_ends(acme: Any, operator: Any, kind: Counting) -> None:
    """Its place waits for the end, which notifies the organisation: neither may wait for the other."""
    first = submit(acme, operator, exclusive_key="agent:1")
    held = lifecycle.claim(first.id)
    assert held is not None
    taken: list[Job] = []

    def start() -> None:
        taken.append(submit(acme, operator, exclusive_key="agent:1"))
        connection.close()

    other = threading.Thread(target=start)
    with Lease(held) as lease, transaction.atomic():
        lifecycle.finish(held, lease, status=Status.COMPLETED, reason="all_iterations")
        other.start()
        eventually(someone_waits, why="the second is asked for meanwhile")
    other.join()
    first.refresh_from_db()
    assert (first.status, [job.status for job in taken]) == (Status.COMPLETED, [Status.QUEUED])


def someone_waits() -> bool:
    """Whether a statement waits for another transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        return bool(cursor.fetchone()[0])


def test_limits_on_active_jobs_hold_under_concurrency(acme: Any, operator: Any, kind: Counting) -> None:
    acme.max_active_jobs = 3
    acme.save()
    outcomes: list[str] = []
    gate = threading.Barrier(8)

    def start() -> None:
        gate.wait()
        try:
            submit(acme, operator)
            outcomes.append("in")
        except TooMany:
            outcomes.append("out")
        connection.close()

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["in"] * 3 + ["out"] * 5


def test_events_have_no_gap_and_a_reader_misses_none(acme: Any, kind: Counting) -> None:
    job = submit(acme)
    seen: list[int] = []
    done = threading.Event()

    def write(n: int) -> None:
        for _ in range(n):
            with transaction.atomic():
                event_add(Job.objects.get(id=job.id), "tick")
        connection.close()

    def read() -> None:
        last = 0
        while True:
            ended = done.is_set()
            for event in events_after(job, last):
                seen.append(event["seq"])
                last = event["seq"]
            if ended:
                break
        connection.close()

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(40,)) for _ in range(4)]
    reader.start()
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert seen == list(range(1, 162))


def test_a_poison_job_ends_after_too_many_crashes(acme: Any, kind: Counting, settings: Any) -> None:
    settings.JOB_MAX_CRASHES = 3
    job = submit(acme)
    dead_under_its_workers(job, 4)
    tasks.sweep()
    job.refresh_from_db()
    assert (job.status, job.status_reason) == (Status.FAILED, "crashed")


def test_a_heartbeat_that_meets_the_end_of_its_slice_leaves_the_job_to_the_next_worker(
    acme: Any, kind: Counting
) -> None:
    job = lifecycle.claim(submit(acme).id)
    assert job is not None
    lease = Lease(job)

    def renew() -> None:
        lease._renew()
        connection.close()

    heartbeat = threading.Thread(target=renew)
    with transaction.atomic():
        lifecycle.give_back(job, lease)
        heartbeat.start()
        deadline = time.monotonic() + 10
        while not waiting_for_a_row():
            assert time.monotonic() < deadline, "the heartbeat did not come to the row"
            time.sleep(0.01)
    heartbeat.join()
    assert Job.objects.get(id=job.id).lease_until is None
    again = lifecycle.claim(job.id)
    assert again is not None and again.crashes == 0


def waiting_for_a_row() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # a transaction sees one otherwise
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return int(cursor.fetchone()[0])


def dead_under_its_workers(job: Job, times: int) -> None:
    for _ in range(times):
        assert lifecycle.claim(job.id) is not None
        Job.objects.filter(id=job.id).update(lease_until="2000-01-01T00:00:00Z")


def test_a_job_whose_kind_was_taken_away_fails_and_says_why(acme: Any, adam: Any, kind: Counting) -> None:
    job = submit(acme, adam)
    del kinds._items["counting"]
    assert tasks.advance(str(job.id), 0) == "failed"
    job.refresh_from_db()
    assert job.status == Status.FAILED and "There is no job kind named 'counting'" in job.error
    assert job.events.get(type="failed").data["error"] == job.error
    with pytest.raises(Conflict, match="Install the package"):
        job_resume(adam, job)
    with pytest.raises(UnknownName):
        submit(acme)


def test_a_kind_that_raises_as_its_job_is_ended_holds_up_no_other(
    acme: Any, kind: Counting, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.JOB_MAX_CRASHES = 3
    poison, gone, waits = submit(acme), submit(acme), submit(acme)
    monkeypatch.setitem(kinds._items, "gone", kind)
    Job.objects.filter(id=gone.id).update(kind="gone")
    dead_under_its_workers(poison, 4)
    dead_under_its_workers(gone, 4)
    Job.objects.filter(id=waits.id).update(nudged_at=None)
    del kinds._items["gone"]
    monkeypatch.setattr(kind, "stopped", lambda job: 1 / 0)
    assert tasks.sweep() == 1
    assert Job.objects.get(id=gone.id).status_reason == "crashed"
    assert Job.objects.get(id=waits.id).nudged_at is not None


def test_a_scheduled_job_waits_for_its_time(acme: Any, kind: Counting) -> None:
    job = submit(acme, not_before="2999-01-01T00:00:00Z")
    assert lifecycle.claim(job.id) is None
    Job.objects.filter(id=job.id).update(not_before="2000-01-01T00:00:00Z")
    assert lifecycle.claim(job.id) is not None


def test_the_state_machine_has_no_way_out_of_an_end() -> None:
    assert TRANSITIONS[Status.COMPLETED] == TRANSITIONS[Status.CANCELLED] == frozenset()


def test_jobs_are_accepted_while_the_broker_is_away(acme: Any, kind: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("no broker")

    monkeypatch.setattr(wakeup.app, "send_task", away)
    job = submit(acme)
    assert job.status == Status.QUEUED
    assert [due.id for due in lifecycle.due(0, rung_before=timezone.now())] == [job.id]


def test_a_crowd_shortens_each_turn_in_time_and_in_iterations(acme: Any, kind: Counting, settings: Any) -> None:
    settings.JOB_SLICE_SECONDS, settings.JOB_ROUND_SECONDS = 2, 10
    assert fair_turn() == Turn(2.0, math.inf)
    for _ in range(20):
        submit(acme)
    assert fair_turn() == Turn(0.5, 5)
    job = lifecycle.claim(Job.objects.earliest("created_at").id)
    assert job is not None
    with Lease(job, turn=Turn(60.0, 2)) as lease:
        lease.count_unit()
        assert not lease.slice_over
        lease.count_unit()
        assert lease.slice_over


def test_the_owner_may_cancel_in_any_role_but_not_with_a_key_that_only_reads(
    acme: Any, dan: Any, stella: Any, charlie: Any, kind: Counting
) -> None:
    job = submit(acme, Actor(dan))
    assert not may_cancel(Actor(stella), job)
    assert not may_cancel(Actor(dan, scopes=frozenset({"training:view"})), job)
    with pytest.raises(Forbidden):
        job_cancel(Actor(stella), job)
    with pytest.raises(Missing):
        job_cancel(Actor(charlie), job)
    assert job_cancel(Actor(dan), job).status == Status.CANCELLED


def test_a_database_that_goes_away_fails_no_job(acme: Any, kind: Counting) -> None:
    def breaks(job: Job, lease: Lease) -> None:
        raise InternalError("terminating connection due to idle-in-transaction timeout")

    kind.work = breaks
    job = submit(acme)
    assert tasks.advance(str(job.id), 0) == "database away"
    job.refresh_from_db()
    assert job.status == Status.RUNNING and job.lease_until is None and job.crashes == 0  # the next sweep takes it up
    kind.work, kind.seen = None, 1
    Job.objects.filter(id=job.id).update(lease_until="2000-01-01T00:00:00Z")
    assert tasks.advance(str(job.id), 1) == "completed"


# -- who is first, and what is refused ---------------------------------------------------------------------------------


def test_a_job_of_another_kind_that_holds_the_key_is_named(
    acme: Any, operator: Any, kind: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(kinds._items, "measuring", kind)
    with transaction.atomic():
        lifecycle.submit(None, kind="measuring", organization=acme, title="Router", exclusive_key="agent:1")
    named = r"The job “Router” \(measuring, queued\) holds this"
    with pytest.raises(Conflict, match=named):
        submit(acme, exclusive_key="agent:1")
    values = {"kind": "counting", "organization": acme, "busy": "It is busy."}
    with pytest.raises(Conflict, match=named):
        lifecycle.submit_check(operator, exclusive_key="agent:1", **values)
    submit(acme, exclusive_key="agent:2")
    with pytest.raises(Conflict, match="It is busy"):
        lifecycle.submit_check(operator, exclusive_key="agent:2", **values)
    lifecycle.submit_check(operator, exclusive_key="agent:3", **values)
    assert Job.objects.count() == 2


def test_another_refusal_of_the_database_is_not_reported_as_a_busy_key(acme: Any, kind: Counting) -> None:
    with pytest.raises(IntegrityError, match="priority"):
        submit(acme, exclusive_key="agent:1", priority=None)
    assert not Job.objects.exists()


def test_a_person_has_a_limit_of_their_own(acme: Any, operator: Any, dan: Any, kind: Counting, settings: Any) -> None:
    settings.JOBS_PER_USER = 2
    for _ in range(2):
        submit(acme, operator)
    with pytest.raises(TooMany, match="You may have 2 active jobs at once"):
        submit(acme, operator)
    submit(acme, Actor(dan))
    submit(acme)


def test_a_failed_job_whose_place_was_taken_waits_for_the_other_one(acme: Any, operator: Any, kind: Counting) -> None:
    def work(job: Job, lease: Lease) -> None:
        raise ZeroDivisionError

    kind.work = work
    first = submit(acme, operator, exclusive_key="agent:1")
    assert tasks.advance(str(first.id), 0) == "failed"
    second = submit(acme, operator, exclusive_key="agent:1")
    with pytest.raises(Conflict, match="Another job for the same agent is active"):
        lifecycle.resume(operator, first)
    with pytest.raises(Conflict, match="Only a paused or failed job can be resumed; this one is queued"):
        lifecycle.resume(operator, second)
    assert not AuditEvent.objects.filter(action="job.resumed").exists()
    lifecycle.cancel(operator, second)
    lifecycle.resume(operator, first)
    first.refresh_from_db()
    assert (first.status, first.error, first.crashes) == (Status.QUEUED, "", 0)


def test_a_worker_can_not_put_its_job_where_no_job_goes(acme: Any, kind: Counting) -> None:
    job = lifecycle.claim(submit(acme).id)
    assert job is not None
    with pytest.raises(Conflict, match="A job that is running can't become queued"):
        lifecycle.finish(job, Lease(job), status=Status.QUEUED, reason="")
    job.refresh_from_db()
    assert job.status == Status.RUNNING and job.lease_until is not None


@contextmanager
def locked_elsewhere(job: Job) -> Iterator[None]:
    """Another session keeps the job's row locked, as that of a worker does that froze in the middle of a write."""
    locked, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            Job.objects.select_for_update().get(id=job.id)
            locked.set()
            may_end.wait(30)
        connection.close()

    other = threading.Thread(target=hold)
    other.start()
    try:
        assert locked.wait(10)
        yield
    finally:
        may_end.set()
        other.join()


def test_a_row_that_another_session_keeps_locked_holds_up_no_worker(acme: Any, kind: Counting) -> None:
    job = submit(acme)
    with locked_elsewhere(job):
        began = time.monotonic()
        assert tasks.advance(str(job.id), 0) == "taken"
        assert lifecycle.LOCK_SECONDS <= time.monotonic() - began < 3 * lifecycle.LOCK_SECONDS
    job.refresh_from_db()
    assert (job.status, job.attempt, kind.seen) == (Status.QUEUED, 0, 0)
    assert tasks.advance(str(job.id), 0) == "given back"


def test_a_request_for_a_locked_job_fails_within_seconds(olivia: Any, acme: Any, kind: Counting) -> None:
    job = submit(acme)
    with locked_elsewhere(job):
        began = time.monotonic()
        answer = Caller(olivia).post(f"jobs/{job.id}/cancel")
        assert lifecycle.ASKED_SECONDS <= time.monotonic() - began < 3 * lifecycle.ASKED_SECONDS
    assert (answer.status_code, answer.json()["title"], answer["Retry-After"]) == (503, "Database busy", "1")
    assert Caller(olivia).post(f"jobs/{job.id}/cancel").status_code == 200


@pytest.mark.parametrize("state", [{"nudged_at": None}, {"lease_until": timezone.now() - timedelta(minutes=1)}])
def test_a_row_that_another_session_keeps_locked_holds_up_no_sweep(
    state: dict[str, Any], acme: Any, kind: Counting
) -> None:
    """The others are woken, and it is once its row can be had."""
    frozen, waiting = submit(acme), submit(acme)
    Job.objects.filter(id=frozen.id).update(**{"status": Status.RUNNING, "nudged_at": timezone.now()} | state)
    Job.objects.filter(id=waiting.id).update(nudged_at=None)
    with locked_elsewhere(frozen):
        assert [job.id for job in lifecycle.due(1, rung_before=timezone.now())] == [waiting.id]
    assert {job.id for job in lifecycle.due(1, rung_before=timezone.now())} == {frozen.id, waiting.id}


def test_a_sweep_wakes_the_others_though_a_row_is_kept_locked(acme: Any, kind: Counting) -> None:
    frozen, waiting = submit(acme), submit(acme)
    Job.objects.update(nudged_at=None)
    with locked_elsewhere(frozen):
        began = time.monotonic()
        assert tasks.sweep() == 1
        assert time.monotonic() - began < lifecycle.LOCK_SECONDS
    assert list(Job.objects.exclude(nudged_at=None)) == [waiting]
    assert tasks.sweep() == 1 and not Job.objects.filter(nudged_at=None)


def test_a_session_that_ends_in_a_claim_is_no_locked_row(acme: Any, kind: Counting) -> None:
    job = submit(acme)
    end_session(connection.connection.info.backend_pid)
    with pytest.raises(OperationalError):
        lifecycle.claim(job.id)
    connection.close()
    assert tasks.advance(str(job.id), 0) == "given back"


def test_a_worker_that_the_database_failed_puts_back_no_job_of_another(acme: Any, kind: Counting) -> None:
    late = lifecycle.claim(submit(acme).id)
    assert late is not None
    lease = Lease(late)
    Job.objects.filter(id=late.id).update(lease_until="2000-01-01T00:00:00Z")
    successor = lifecycle.claim(late.id)
    assert successor is not None
    assert not lifecycle.put_back(late, lease)
    assert Job.objects.get(id=late.id).lease_until == successor.lease_until
    assert lifecycle.put_back(successor, Lease(successor))
    assert Job.objects.get(id=late.id).lease_until is None


def test_a_job_that_another_worker_took_up_is_not_ended_as_abandoned(acme: Any, kind: Counting) -> None:
    job = submit(acme)
    dead_under_its_workers(job, 3)
    seen = Job.objects.get(id=job.id)
    taken = lifecycle.claim(job.id)
    assert taken is not None
    lifecycle.fail_abandoned(seen)
    job.refresh_from_db()
    assert (job.status, job.attempt) == (Status.RUNNING, taken.attempt)
    assert not job.events.filter(type="failed").exists()


# -- what goes on by itself --------------------------------------------------------------------------------------------


def test_a_service_that_stays_away_is_asked_less_and_less_often_and_at_least_every_half_hour(
    acme: Any, operator: Any, kind: Counting
) -> None:
    def away(job: Job, lease: Lease) -> None:
        raise MustPause(Reason.WAITING_FOR_LLM, "no answer", 5.0)

    kind.work = away
    job = submit(acme, operator)
    waits = []
    for _ in range(9):
        assert tasks.advance(str(job.id)) == "paused"
        job.refresh_from_db()
        assert job.not_before is not None and lifecycle.resume_waiting() == 0
        stopped = job.events.latest("seq").at
        waits.append((job.not_before - stopped).total_seconds())
        Job.objects.filter(id=job.id).update(not_before=Now())
        assert lifecycle.resume_waiting() == 1
    assert waits == pytest.approx([15, 30, 60, 120, 240, 480, 960, 1800, 1800], abs=5)
    # A person who resumes it begins again.
    tasks.advance(str(job.id))
    lifecycle.resume(operator, job)
    tasks.advance(str(job.id))
    job.refresh_from_db()
    assert job.not_before is not None and job.not_before < timezone.now() + timedelta(seconds=20)


def test_a_job_without_room_goes_on_once_there_is_some(acme: Any, kind: Counting, settings: Any) -> None:
    job, least = submit(acme), settings.DISK_MINIMUM_FREE_MB
    settings.DISK_MINIMUM_FREE_MB = shutil.disk_usage(settings.DATA_DIR).total // 2**20 + 1
    assert tasks.advance(str(job.id), 0) == "paused"
    job.refresh_from_db()
    assert (job.status, job.status_reason) == (Status.PAUSED, Reason.DISK_FULL) and "nearly full" in job.error
    assert lifecycle.resume_waiting() == 0
    settings.DISK_MINIMUM_FREE_MB = least
    assert lifecycle.resume_waiting() == 1
    job.refresh_from_db()
    assert (job.status, job.error) == (Status.QUEUED, "")
    assert job.events.latest("seq").message == "There is room on the disk again."


def test_of_two_sweeps_at_once_one_puts_a_job_back_into_the_queue(acme: Any, kind: Counting) -> None:
    job = submit(acme)
    Job.objects.filter(id=job.id).update(status=Status.PAUSED, status_reason=Reason.KEY_AWAY, not_before=Now())
    found: list[int] = []

    def sweep() -> None:
        found.append(lifecycle.resume_waiting())
        connection.close()

    other = threading.Thread(target=sweep)
    with transaction.atomic():
        assert lifecycle.resume_waiting() == 1
        other.start()
        deadline = time.monotonic() + 10
        while not waiting_for_a_row():
            assert time.monotonic() < deadline, "the other sweep did not come to the row"
            time.sleep(0.01)
    other.join()
    assert found == [0]
    assert JobEvent.objects.filter(job=job, type="resumed").count() == 1
