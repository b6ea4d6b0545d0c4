"""A learner that another package brings: chosen on the launch form, trained, evaluated, and shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client

from evaluation.models import EvaluationRun
from evaluation.services import evaluation_of_finished_run
from experiences.models import Agent
from tests.support.recipes import installed_from
from tests.support.running import SMALL, run_to_end
from training.checkpoint_bytes import checkpoint_load
from training.learners import learners, policy_of
from training.models import TrainingRun
from training.services import checkpoints

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of docs/how-to/add-a-policy.md as an installed package."""
    installed_from("add-a-policy", tmp_path, monkeypatch, learners, "popularity", "learner")


@pytest.mark.thorough(reason="a whole run, or a second program")
def test_foreign_learner_is_chosen_on_the_form_trained_proved_and_shown(
    installed: None, console: Client, agent: Agent
) -> None:
    form = console.get(f"/launch/?agent={agent.pk}").content.decode()
    assert '<option value="popularity">' in re.sub(r"\s+", " ", form)
    config = {name: str(SMALL[name]) for name in ("n_iterations", "eval_samples", "eval_interval", "seed")}
    values = {"agent": agent.pk, "source": "environment", "preset": "recommended", "learner": "popularity", **config}
    answer = console.post("/launch/", values)
    assert answer.status_code == 302, answer.content.decode()[:2000]
    run = TrainingRun.objects.select_related("job").get()
    assert run.config["learner"] == "popularity" and run.learner.name == "popularity" and not run.learns_context
    assert run_to_end(run.job).status == "completed"
    latest = checkpoints.latest(TrainingRun.objects.get(pk=run.pk))
    assert latest is not None
    policy = policy_of(checkpoint_load(latest))
    assert policy.state_dict()["kind"] == "popularity" and abs(policy.state_dict()["logits"]).max() > 0
    evaluation = evaluation_of_finished_run(run.pk) or EvaluationRun.objects.get(run=run)
    assert run_to_end(evaluation.job).status == "completed"
    for page in ("", "?tab=settings", "?tab=checkpoints", "?tab=evaluation"):
        shown = console.get(f"/jobs/{run.pk}/{page}")
        assert shown.status_code == 200, page


def test_a_run_whose_learner_is_not_installed_any_more_is_still_shown(
    installed: None, console: Client, agent: Agent
) -> None:
    form = {"agent": agent.pk, "source": "environment", "preset": "recommended", "learner": "popularity"}
    assert console.post("/launch/", form | {"n_iterations": "2"}).status_code == 302
    run = TrainingRun.objects.get()
    TrainingRun.objects.filter(pk=run.pk).update(config=run.config | {"learner": "gone"})
    for page in ("/jobs/", f"/jobs/{run.pk}/", f"/jobs/{run.pk}/?tab=settings"):
        assert console.get(page).status_code == 200, page


def test_a_learner_that_is_unknown_or_is_for_other_agents_is_refused_on_the_form(console: Client, agent: Agent) -> None:
    form = {"agent": agent.pk, "source": "environment", "preset": "recommended", "n_iterations": "2"}
    unknown = console.post("/launch/", form | {"learner": "nope"})
    assert unknown.status_code == 400 and "There is no learner named" in unknown.content.decode()
    unfit = console.post("/launch/", form | {"learner": "context"})
    assert unfit.status_code == 400 and "Learner context does not learn from agents of runtime action" in (
        unfit.content.decode()
    )
    assert not TrainingRun.objects.exists()
