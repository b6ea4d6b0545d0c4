"""The lines of the documentation that drive a job by curl alone, run by a shell against the real server."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentcore_site import env
from experiences.models import Agent, Dataset, TrajectoryExport
from tests.factories import PASSWORD
from tests.support.workers import LiveSite
from training.models import TrainingRun

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = env.ROOT / "docs" / "api.md"


def lines() -> str:
    """The block of the section, as a reader copies it."""
    section = PAGE.read_text(encoding="utf-8").split("## A job from key to export by curl alone")[1]
    [block] = re.findall(r"```sh\n(.*?)```", section.split("\n## ")[0], re.DOTALL)
    return str(block)


def test_the_lines_of_the_documentation_drive_a_job_from_key_to_export(
    live_site: LiveSite, olivia: Any, tmp_path: Path
) -> None:
    given = {"SITE": live_site.url, "NAME": olivia.username, "PASSWORD": PASSWORD, "PATH": os.environ["PATH"]}
    for shell in ("bash", "sh"):  # a second time makes nothing anew: each line that makes something has its key
        ran = subprocess.run(
            [shell, "-eu", "-c", lines()],
            env=given,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
        run = TrainingRun.objects.select_related("job").get()
        assert (run.job.status, run.iteration) == ("completed", 5)
        assert "baseline" in ran.stdout and '"type":"completed"' in ran.stdout.replace(" ", "")
        exported = (tmp_path / "trajectories.jsonl").read_text(encoding="utf-8").splitlines()
        assert len(exported) == run.trajectories and json.loads(exported[0])["job_id"] == str(run.pk)
    assert (Agent.objects.count(), Dataset.objects.count(), TrajectoryExport.objects.count()) == (1, 1, 1)
