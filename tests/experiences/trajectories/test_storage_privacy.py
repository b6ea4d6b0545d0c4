"""A stored trajectory holds no personal data, and training still ends with the same result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job
from agentcore_site.jobs.tasks import run_slice
from agentcore_site.tenancy.actors import Actor
from evaluation.models import EvaluationResult, EvaluationRun
from experiences.models import Agent, GroupRecord, TrajectoryRecord
from experiences.rollouts.captured import SampledTokens
from experiences.rollouts.types import RolloutKey, Step, Trajectory
from experiences.trajectories.storage import without_personal_data
from tests.support.running import SMALL, run_to_end
from training.checkpoint_bytes import checkpoint_load
from training.services import checkpoints
from training.services.run_setup import setup_of
from training.services.runs import run_start

pytestmark = pytest.mark.django_db(transaction=True)

MAIL = "jane.doe{n}@example-mail.org"
ROWS = [
    {"query": f"Mail {MAIL.format(n=n)} and say what {n} + 4 is.", "expected_outcome": {"answer": n + 4}}
    for n in range(30)
]
CONFIG = SMALL | {"n_iterations": 4, "checkpoint_interval": 100, "eval_interval": 100}


def started(operator: Actor, agent: Agent) -> Any:
    return run_start(operator, agent=agent, rows=ROWS, config=CONFIG)


def weights(run: Any) -> Any:
    best = checkpoints.latest(run)
    assert best is not None
    return setup_of(run).state_of(checkpoint_load(best)).policy.parameters["weights"]


def test_no_table_holds_the_address(operator: Actor, agent: Agent) -> None:
    run = started(operator, agent)
    run_to_end(run.job)
    run_to_end(EvaluationRun.objects.get(run=run).job)
    rows = TrajectoryRecord.objects.filter(agent_id=agent.id)
    assert rows.count() > 60
    assert not rows.filter(query__contains="@").exists()
    assert rows.filter(query__contains="[email]").count() == rows.count()
    assert not any("example-mail" in str(row.steps) + str(row.evidence) for row in rows)
    assert all("redacted" in row.evidence for row in rows)
    assert not GroupRecord.objects.filter(job_id=run.job_id, query__contains="@").exists()
    assert not EvaluationResult.objects.filter(query__contains="@").exists()


def test_a_crash_does_not_make_a_run_learn_from_redacted_texts(
    operator: Actor, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = started(operator, agent)
    run_to_end(whole.job)
    broken = started(operator, agent)
    from training.services import execution

    apply = execution.TrainingSlice.apply

    def dies(self: Any, report: Any) -> None:
        apply(self, report)
        if report.iteration == 2:
            raise SystemExit("killed")

    monkeypatch.setattr(execution.TrainingSlice, "apply", dies)
    claimed = lifecycle.claim(broken.job_id)
    assert claimed is not None
    with pytest.raises(SystemExit):
        run_slice(claimed)
    monkeypatch.setattr(execution.TrainingSlice, "apply", apply)
    Job.objects.filter(id=broken.job_id).update(lease_until="2000-01-01T00:00:00Z")
    run_to_end(broken.job)
    np.testing.assert_array_equal(weights(whole), weights(broken))
    kept = TrajectoryRecord.objects.filter(job_id=broken.job_id)
    assert kept.count() == TrajectoryRecord.objects.filter(job_id=whole.job_id).count()


def test_captured_tokens_go_with_the_personal_data_that_they_would_reveal() -> None:
    packed = SampledTokens((1,), (2,), (-1.0,)).packed(None)
    for observation, kept in (("Mail jane.doe@example-mail.org", ""), ("Mail nobody", packed)):
        steps = [
            Step({"observation": observation, "done": []}, {}, {}, sampled=packed),
            Step({"observation": "", "done": []}, {}, {}, sampled=packed),
        ]
        stored = without_personal_data(Trajectory(RolloutKey(1, 0, 0), "q", steps))
        assert [one.sampled for one in stored.steps] == [kept, kept]
