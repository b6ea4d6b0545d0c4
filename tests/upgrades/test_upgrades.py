"""Data of earlier releases, with a job in progress, go through today's release."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support.llm_server import ModelServer
from tests.support.old_release import OldRelease, old_release, releases
from tests.support.playbooks import PRICE
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


# As if the upgrade came a minute after the dump.
SOON = """
UPDATE serving_deployment SET created_at = now() - interval '1 minute', step_began_at = now() - interval '1 minute'
WHERE strategy = 'canary' RETURNING id
"""
HELD = "SELECT count(*) FROM budgets_reservation WHERE state = 'held'"
CANARY = "SELECT state, reason FROM serving_deployment WHERE strategy = 'canary'"
COUNTED = """
SELECT count(*), count(*) FILTER (WHERE session ~ '^old') FROM serving_canaryobservation
WHERE session_counted_at IS NOT NULL
"""
CLERK = "SELECT slug FROM experiences_agent WHERE name = 'Clerk'"
SESSIONS = 1_000


def test_a_canary_and_an_open_hold_go_on_after_an_upgrade(tmp_path: Path, services: None) -> None:
    fleet = Fleet()
    with old_release("0.1.0", tmp_path) as old, ModelServer(prices={"small": PRICE}) as server:
        old.environment["OUTBOUND_ALLOW"] = "127.0.0.0/8"
        [(job, _)] = old.ask(SHORTER)
        assert len(old.ask(SOON)) == 1
        old.ask("UPDATE experiences_modelendpoint SET base_url = %s RETURNING id", server.base_url)
        assert old.ask(HELD) == [(1,)]
        [(before,)] = old.ask("SELECT count(*) FROM serving_productiontrace")
        old.manage("migrate", "--verbosity", "0")
        try:
            web = f"http://127.0.0.1:{fleet.web(**old.environment)}"
            fleet.worker(concurrency=2, **old.environment)
            fleet.beat(**old.environment)
            eventually(lambda: old.ask(HELD) == [(0,)], seconds=60, why="the hold of the killed gateway is settled")
            kept = "SELECT status, count(*) FROM serving_productiontrace GROUP BY 1 ORDER BY 1"
            whole = [("interrupted", 1), ("ok", before)]
            eventually(lambda: old.ask(kept) == whole, seconds=60, why="its call is stored, which follows the hold")
            decided = served_until_decided(old, web)
            # Its prompt is longer, so that it earns less; whether that or its few failures are shown first is chance.
            assert decided[0] in ("rolled_back", "done"), decided
            [(of_both, of_old)] = old.ask(COUNTED)
            assert of_both > of_old == before
            state = "SELECT status, error FROM jobs_job WHERE id = %s AND finished_at IS NOT NULL"
            assert eventually(lambda: old.ask(state, job), seconds=240, why="the job ends") == [("completed", "")]
            assert "The book adds up" in old.manage("ledger_check")
        finally:
            fleet.stop()


def served_until_decided(old: OldRelease, web: str) -> tuple[str, str]:
    """A session after the other, until the canary is no longer under way."""
    [(slug,)] = old.ask(CLERK)
    key = old.manage("create_api_key", "--user", "adam", "--scopes", "gateway:call", "--name", "shop after")
    body = {"model": f"agent:{slug}", "messages": [{"role": "user", "content": "?"}]}
    with httpx.Client(base_url=web, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
        for number in range(SESSIONS):
            answer = client.post("/v1/chat/completions", json=body, headers={"x-session-id": f"new{number}"})
            assert answer.status_code == 200, answer.text
            if old.ask(CANARY)[0][0] != "running":
                break
    eventually(lambda: old.ask(CANARY)[0][0] != "running", seconds=60, why="the canary is decided")
    [found] = old.ask(CANARY)
    return found
