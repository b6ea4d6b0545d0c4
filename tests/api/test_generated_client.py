"""A typed client is made from the served description, as a user makes one, and drives a job by itself.

It is made anew by each run and kept nowhere, so it can't lag behind the description.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentcore_site.tenancy.roles import SCOPES
from tests.factories import PASSWORD
from tests.support.workers import LiveSite, eventually

pytestmark = pytest.mark.django_db(transaction=True)

PACKAGE = "agentcore_client"
ROWS = [{"query": f"What is {n} + {n + 1}?", "expected_outcome": {"answer": str(2 * n + 1)}} for n in range(40)]


@pytest.fixture
def client(live_site: LiveSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The package that the generator makes of the live site's description."""
    asked = ["generate", "--url", f"{live_site.url}/api/v1/schema/", "--output-path", str(tmp_path / PACKAGE)]
    made = subprocess.run(
        [Path(sys.executable).with_name("openapi-python-client"), *asked, "--meta", "none"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-2000:]
    monkeypatch.syspath_prepend(str(tmp_path))
    yield lambda name: importlib.import_module(f"{PACKAGE}.{name}")
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_a_typed_client_made_from_the_description_drives_a_job(live_site: LiveSite, client: Any, olivia: Any) -> None:
    models, entry = client("models"), client("client")

    def call(place: str, **given: Any) -> Any:
        """What the function of the client parsed; a refusal fails with its words."""
        found = client(f"api.{place}").sync_detailed(client=site, **given)
        assert not isinstance(found.parsed, models.Problem), found.parsed
        return found.parsed if found.parsed is not None else found

    site = entry.Client(base_url=live_site.url)
    sign_in = models.TokenInRequest(username=olivia.username, password=PASSWORD)
    site = entry.AuthenticatedClient(base_url=live_site.url, token=call("me.token_create", body=sign_in).access)
    asked = models.ApiKeyInRequest(name="typed client", scopes=[*SCOPES], days=1)
    key = call("me.api_keys_create", body=asked)
    site = entry.AuthenticatedClient(base_url=live_site.url, token=key.key)

    agent = call("agents.agents_create", body=models.AgentInRequest(name="Sums"), idempotency_key="agent")
    again = call("agents.agents_create", body=models.AgentInRequest(name="Sums"), idempotency_key="agent")
    assert agent.id == again.id and agent.slug == "sums"
    rows = [models.RowOutRequest.from_dict({"metadata": {}, **row}) for row in ROWS]
    dataset = call("datasets.datasets_create", body=models.DatasetInRequest(name="sums", rows=rows))
    assert dataset.size == len(ROWS)

    config = models.JobInRequestConfig.from_dict({"n_iterations": 4, "eval_samples": 1, "max_budget_usd": 1})
    wanted = models.JobInRequest(
        agent=agent.slug, dataset_id=dataset.id, config=config, priority=models.PriorityEnum.HIGH
    )
    job = call("training_jobs.training_jobs_create", body=wanted, idempotency_key="job")
    assert (job.priority, job.dataset_id) == ("high", dataset.id)

    def ended() -> Any:
        found = call("training_jobs.training_jobs_retrieve", job=job.job_id)
        return found if found.status in ("completed", "failed") else None

    done = eventually(ended, seconds=120, why="the job completes")
    assert done.status == "completed" and done.verdict and done.trajectories > 0
    events = call("jobs.jobs_events_retrieve", id=job.job_id)
    assert [one.seq for one in events.results] == [*range(1, len(events.results) + 1)]

    filters = models.ExportInRequestFilters.from_dict({"job": str(job.job_id)})
    export = call(
        "exports.exports_create", body=models.ExportInRequest(format_=models.ExportInFormatEnum.JSONL, filters=filters)
    )

    def written() -> Any:
        found = call("exports.exports_retrieve", job=export.id)
        return found if found.status in ("completed", "failed") else None

    export = eventually(written, seconds=60, why="the export is written")
    assert export.status == "completed" and export.rows == done.trajectories
    file = client("api.exports.exports_download_retrieve").sync_detailed(client=site, job=export.id)
    lines = [json.loads(line) for line in file.content.splitlines()]
    assert len(lines) == done.trajectories and all(line["steps"] for line in lines)
    assert abs(key.expires_at - key.created_at - timedelta(days=1)) < timedelta(seconds=5)
