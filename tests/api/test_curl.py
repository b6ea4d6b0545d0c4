"""The lines of the documentation that drive a job by curl alone, run by a shell against the real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiences.models import Agent, Dataset, TrajectoryExport
from tests.factories import PASSWORD
from tests.support.examples import example, ran
from tests.support.workers import LiveSite
from training.models import TrainingRun

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.thorough(reason="a whole run, or a second program")
def test_the_lines_of_the_documentation_drive_a_job_from_key_to_export(
    live_site: LiveSite, olivia: Any, tmp_path: Path
) -> None:
    lines = example("A job from key to export by curl alone", "sh")
    given = {"SITE": live_site.url, "NAME": olivia.username, "PASSWORD": PASSWORD}
    for shell in ("bash", "sh"):  # a second time makes no second row: each line that makes one has its key
        printed = ran([shell, "-eu", "-c", lines], tmp_path, **given)
        run = TrainingRun.objects.select_related("job").get()
        assert (run.job.status, run.iteration) == ("completed", 5)
        assert "baseline" in printed and '"type":"completed"' in printed.replace(" ", "")
        exported = (tmp_path / "trajectories.jsonl").read_text(encoding="utf-8").splitlines()
        assert len(exported) == run.trajectories and json.loads(exported[0])["job_id"] == str(run.pk)
    assert (Agent.objects.count(), Dataset.objects.count(), TrajectoryExport.objects.count()) == (1, 1, 1)
