"""The page of the system: for staff alone, with each process of each host in words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agentcore_site.jobs.models import HostProcess
from tests.support.pages import html

pytestmark = pytest.mark.django_db


def process(name: str, *, pid: int = 7, ticked: float | None = 1, seen: float = 1) -> None:
    now = timezone.now()
    HostProcess.objects.create(
        place="one:abc:all",
        name=name,
        host="one",
        pid=pid,
        started_at=now - timedelta(hours=1),
        ticked_at=None if ticked is None else now - timedelta(seconds=ticked),
        seen_at=now - timedelta(seconds=seen),
    )


def test_staff_see_how_each_process_is_and_others_see_nothing(
    adam: Any, olivia: Any, signed_in: Callable[[Any], Client]
) -> None:
    process("web")
    process("postgres", ticked=None)
    process("beat", ticked=25)
    process("worker", pid=0)
    process("events", seen=60)
    assert signed_in(olivia).get("/system/").status_code == 403
    adam.is_staff = True
    adam.save()
    console = signed_in(adam)
    shown = html(console.get("/system/"))
    assert "Dependencies" in shown and "5 processes" in shown
    for state, name in (("hangs", "beat"), ("down", "worker"), ("silent", "events")):
        response = console.get(f"/system/?state={state}").context["listing"].rows
        assert [one.name for one in response] == [name], state
    assert "No process matches" in html(console.get("/system/?q=nowhere"))
    HostProcess.objects.all().delete()
    assert "No process has reported" in html(console.get("/system/"))
