"""Typed client is made from the served description, as a user makes one, and the program of the documentation drives
a job by it.

Each run generates the client again and keeps it nowhere, so it can't lag behind the description.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentcore_site.jobs.models import Priority
from agentcore_site.tenancy.models import ApiKey
from experiences.models import Agent, Dataset, TrajectoryExport
from tests.factories import PASSWORD
from tests.support.examples import example, ran
from tests.support.workers import LiveSite
from training.models import TrainingRun

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.thorough(reason="a whole run, or a second program")
def test_a_typed_client_made_from_the_description_drives_a_job(
    live_site: LiveSite, olivia: Any, tmp_path: Path
) -> None:
    page = "A typed client"
    generator, *asked = example(page, "sh").replace("$SITE", live_site.url).replace('"', "").split()[1:]
    program = Path(sys.executable).with_name(generator.split("@")[0])
    ran([str(program), *asked], tmp_path)
    given = {"SITE": live_site.url, "NAME": olivia.username, "PASSWORD": PASSWORD}
    for _ in range(2):  # a second time makes no second row
        printed = ran([sys.executable, "-c", example(page, "python")], tmp_path, **given)
        run = TrainingRun.objects.select_related("job").get()
        assert (run.job.status, run.iteration) == ("completed", 5)
        assert "completed 100 % 80 trajectories" in printed and "95 % interval" in printed
        assert run.job.priority == Priority.HIGH and run.dataset.size == 12
        events = [line.split(" ", 1) for line in printed.splitlines() if re.match(r"\d+ ", line)]
        assert [int(seq) for seq, _ in events] == [*range(1, len(events) + 1)] and len(events) > 3
        exported = (tmp_path / "trajectories.jsonl").read_text(encoding="utf-8").splitlines()
        assert len(exported) == run.trajectories == 80 and all(json.loads(one)["steps"] for one in exported)
    assert (Agent.objects.count(), Dataset.objects.count(), TrajectoryExport.objects.count()) == (1, 1, 1)
    for key in ApiKey.objects.all():
        assert key.expires_at and abs(key.expires_at - key.created_at - timedelta(days=1)) < timedelta(seconds=5)
