"""Data of earlier releases, with a job in progress, go through today's release."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support.old_release import old_release, releases
from tests.support.workers import Fleet, eventually

pytestmark = pytest.mark.thorough(reason="a second program, or a start of the product")

READ = (
    "/api/v1/training-jobs/{job}",
    "/api/v1/training-jobs/{job}/series",
    "/api/v1/training-jobs/{job}/groups",
    "/api/v1/training-jobs/{job}/epochs",
    "/api/v1/training-jobs/{job}/manifest",
    "/api/v1/checkpoints?job={job}",
    "/api/v1/trajectories?job={job}",
    "/api/v1/agents",
    "/api/v1/evaluations",
)

# So that a test takes seconds: as if the earlier release had been asked for so many more iterations.
SHORTER = """
UPDATE training_trainingrun SET total_iterations = iteration + 12,
    config = jsonb_set(config, '{n_iterations}', to_jsonb(iteration + 12)) RETURNING job_id, iteration
"""

RATES = "SELECT DISTINCT leave_out_rate FROM experiences_agent"
CHECKPOINTS = "SELECT id FROM training_policycheckpoint"
HAS_RATES = "SELECT 1 FROM information_schema.columns WHERE column_name = 'leave_out_rate'"


@pytest.mark.parametrize("name", releases())
def test_a_job_in_progress_goes_on_after_an_upgrade(name: str, tmp_path: Path, services: None) -> None:
    fleet = Fleet()
    with old_release(name, tmp_path) as old:
        [(job, before)] = old.ask(SHORTER)
        checkpoints = set(old.ask(CHECKPOINTS))
        rates = old.ask(RATES) if old.ask(HAS_RATES) else [(0.0,)]  # without: its services expect whole contexts
        old.manage("migrate", "--verbosity", "0")
        assert old.ask(RATES) == rates
        try:
            web = f"http://127.0.0.1:{fleet.web(**old.environment)}"
            fleet.worker(concurrency=2, **old.environment)
            fleet.beat(**old.environment)
            key = old.manage("create_api_key", "--user", "adam", "--scopes", "training:view", "--name", "after")
            with httpx.Client(base_url=web, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:
                state = "SELECT status, error FROM jobs_job WHERE id = %s AND finished_at IS NOT NULL"
                [(status, error)] = eventually(lambda: old.ask(state, job), seconds=240, why="the job ends")
                assert (status, error) == ("completed", "")
                assert old.ask("SELECT message FROM jobs_jobevent WHERE level <> 'info' AND job_id = %s", job) == []
                for address in (path.format(job=job) for path in READ):
                    answer = client.get(address)
                    assert answer.status_code == 200, (address, answer.text)
                newest = client.get(f"/api/v1/checkpoints?job={job}").json()["results"][0]["id"]
                left = checkpoints & set(old.ask(CHECKPOINTS))  # the best ones are kept
                assert left
                for (checkpoint,) in left:  # made by the old release
                    answer = client.get(f"/api/v1/checkpoints/compare?a={checkpoint}&b={newest}")
                    assert answer.status_code == 200, answer.text
        finally:
            fleet.stop()
        [(after,)] = old.ask("SELECT iteration FROM training_trainingrun WHERE job_id = %s", job)
        assert after > before > 0
