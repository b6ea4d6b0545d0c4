"""Stored errors hold no personal data, although they quote services, tools and agents of strangers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from agentcore_site.jobs import lifecycle, tasks
from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.kinds import Progressed, kinds
from agentcore_site.jobs.lease import Lease, MustPause
from agentcore_site.jobs.models import Job, JobEvent, Reason, Status
from agentcore_site.lib import redaction
from agentcore_site.lib.errors import Conflict

pytestmark = pytest.mark.django_db(transaction=True)

SAID = "401: the key of jane.doe@example-mail.org (+1 415 555 2671) has expired"
CLEAN = "401: the key of [email] ([phone]) has expired"


class Failing:
    """A kind of job whose work raises."""

    raising: Callable[[], Exception]

    def advance(self, job: Job, lease: Lease) -> Progressed:
        raise self.raising()

    def stopped(self, job: Job) -> None: ...

    def resume_check(self, job: Job) -> None: ...


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    kind = Failing()
    monkeypatch.setitem(kinds._items, "failing", kind)
    return kind


def done(acme: Any) -> Job:
    with transaction.atomic():
        job = lifecycle.submit(None, kind="failing", organization=acme, title="fail")
    tasks.advance(str(job.id), 0)
    job.refresh_from_db()
    return job


@pytest.mark.parametrize(
    ("raising", "status"),
    [
        (lambda: MustPause(Reason.LLM_REFUSED, SAID), Status.PAUSED),
        (lambda: Conflict(SAID), Status.FAILED),
        (lambda: ValueError(SAID), Status.FAILED),
        (lambda: ValueError(f"{'x ' * 1985}{SAID}"), Status.FAILED),
    ],
)
def test_an_error_is_stored_without_personal_data(
    acme: Any, failing: Failing, raising: Callable[[], Exception], status: Status
) -> None:
    failing.raising = raising
    job = done(acme)
    stored = json.dumps(list(JobEvent.objects.filter(job=job).values_list("data", "message")))
    assert job.status == status and "401: the k" in job.error and len(job.error) <= 4000
    for part in ("jane", "example-mail", "415", "2671"):
        assert part not in job.error and part not in stored


def test_events_hold_no_personal_data_of_any_writer(acme: Any, failing: Failing) -> None:
    failing.raising = lambda: ValueError("no")
    job = done(acme)
    with transaction.atomic():
        event = event_add(job, "warning", message=SAID, data={"why": [SAID], "n": 3})
        long = event_add(job, "warning", message="x " * 145 + SAID)
    event.refresh_from_db()
    assert (event.message, event.data) == (CLEAN, {"why": [CLEAN], "n": 3})
    assert len(long.message) == 300 and "jane" not in long.message


def test_nothing_is_stored_without_a_redactor(acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction._Port, "redact", None)
    with pytest.raises(LookupError, match="no redactor"):
        redaction.redacted("text")
