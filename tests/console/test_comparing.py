"""Jobs beside each other: what is said of them, and what is done with several at once."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from agentcore_site.jobs.models import Job, Status
from agentcore_site.tenancy.actors import Actor
from evaluation.comparison import compare_on_held_out
from evaluation.models import EvaluationResult, EvaluationRun, Split
from evaluation.services import evaluation_start
from experiences.models import Agent
from tests.console.conftest import SignIn
from tests.factories import AgentFactory
from tests.support.pages import html
from tests.support.queries import queries_of
from tests.support.rows import done, lived_run, queued_run
from training.models import TrainingRun

pytestmark = pytest.mark.django_db

COMPARE = "/jobs/compare/?"


def compared(*runs: TrainingRun) -> str:
    return COMPARE + "&".join(f"pick={run.pk}" for run in runs)


def another(operator: Actor, agent: Agent, title: str = "", **extra: Any) -> TrainingRun:
    """A finished run of an agent of its own."""
    own = AgentFactory(organization=agent.organization, environment_options=agent.environment_options)
    run = queued_run(operator, own, title=title, **extra)
    done(run, 2, trajectories=24)
    return TrainingRun.objects.select_related("job", "agent").get(pk=run.pk)


def prove(operator: Actor, run: TrainingRun, successes: dict[str, list[bool]]) -> EvaluationRun:
    """A finished report on held-out queries in which the trained policy did that."""
    evaluation = evaluation_start(operator, run=run, split=Split.HELD_OUT, samples=2)
    EvaluationRun.objects.filter(pk=evaluation.pk).update(
        lines=["held_out"], report={"primary": "held_out", "lines": {}}
    )
    Job.objects.filter(id=evaluation.pk).update(status=Status.COMPLETED)
    for scenario, (query, found) in enumerate(successes.items()):
        EvaluationResult.objects.create(
            evaluation=evaluation, arm="trained", line="held_out", scenario=scenario, query=query,
            outcomes=[float(one) for one in found], successes=found, rewards=[float(one) for one in found],
            steps=[1] * len(found), tool_calls=[0] * len(found), tool_errors=[0] * len(found),
        )  # fmt: skip
    return evaluation


def answers(good: int, n: int = 20) -> dict[str, list[bool]]:
    """The first ``good`` of n queries are answered, both times."""
    return {f"query {i}": [i < good] * 2 for i in range(n)}


def test_the_page_teaches_what_to_choose(console: Client, run: TrainingRun) -> None:
    assert "No job chosen" in html(console.get(COMPARE))
    shown = html(console.get(compared(run)))
    assert "Choose another job" in shown and run.job.title in shown
    seven = COMPARE + "&".join(f"pick={uuid4()}" for _ in range(7))
    assert console.get(seven).status_code == 400
    assert console.get(f"{COMPARE}pick={run.pk}&pick={uuid4()}").status_code == 404
    assert console.get(f"{COMPARE}pick={run.pk}&pick=nonsense").status_code == 404


def test_figures_and_settings_that_differ_are_beside_each_other(
    console: Client, operator: Actor, agent: Agent, run: TrainingRun
) -> None:
    other = another(operator, agent, "Slower", config={"learning_rate": 0.01})
    TrainingRun.objects.filter(pk=other.pk).update(
        verdict={"verdict": "Better.", "improvement": 0.31, "low": 0.2, "high": 0.4, "success_rate": 0.8,
                 "success_low": 0.7, "success_high": 0.9, "baseline_success_rate": 0.49},
        cost_micros=6_200_000,
    )  # fmt: skip
    shown = re.sub(r"\s+", " ", html(console.get(compared(run, other))))
    assert "Comparison of 2 jobs" in shown
    assert "+31.0 <span" in shown and "+20.0 to +40.0" in shown
    assert "$0.20" in shown  # 6.20 dollars for 31 points
    differing = re.findall(r'<th scope="row">([^<]+)</th>', shown.split("Settings that differ")[-1])
    assert "learning rate" in differing and "agent" in differing and "batch size" not in differing


def test_a_difference_is_taken_query_by_query_and_corrected_for_all_jobs(
    operator: Actor, agent: Agent, run: TrainingRun
) -> None:
    better, alike = another(operator, agent, "Better"), another(operator, agent, "Alike")
    prove(operator, run, answers(4))
    prove(operator, better, answers(16))
    prove(operator, alike, answers(4))
    result = compare_on_held_out([run, better, alike])
    assert result.reference.pk == run.pk
    first, second = result.rows
    assert (first.mean, first.n, first.tone) == (pytest.approx(0.6), 20, "good")
    assert first.words == "Better by 60.0 points" and first.low > 0.3
    assert first.p_adjusted == pytest.approx(2 * first.p_value)  # Holm, of two rows
    assert (second.mean, second.words, second.tone) == (0.0, "The same on every query", "plain")
    assert result.n_differing == 12 and len(result.queries) == 12
    assert {row.query for row in result.queries} == {f"query {i}" for i in range(4, 16)}
    assert all(row.rates == [0.0, 1.0, 0.0] for row in result.queries)


def test_a_difference_that_could_be_chance_is_not_called_one(operator: Actor, agent: Agent, run: TrainingRun) -> None:
    other = another(operator, agent)
    prove(operator, run, answers(10))
    prove(operator, other, answers(12))
    [row] = compare_on_held_out([run, other]).rows
    assert row.mean == pytest.approx(0.1) and not row.sure
    assert (row.words, row.tone) == ("No difference shown", "plain")


def test_jobs_without_common_queries_are_named_and_not_compared(
    console: Client, operator: Actor, agent: Agent, run: TrainingRun
) -> None:
    apart, unproven = another(operator, agent, "Elsewhere"), another(operator, agent, "Too early")
    prove(operator, run, answers(4))
    prove(operator, apart, {f"other {i}": [True] for i in range(5)})
    result = compare_on_held_out([run, apart, unproven])
    assert result.rows == [] and [one.pk for one in result.apart] == [apart.pk]
    assert [one.pk for one in result.unproven] == [unproven.pk]
    shown = re.sub(r"\s+", " ", html(console.get(compared(run, apart, unproven))))
    assert "Elsewhere was proven on other held-out queries" in shown
    assert "Too early has no report on held-out queries yet." in shown


def test_the_first_proven_job_is_what_others_are_compared_with(operator: Actor, agent: Agent, run: TrainingRun) -> None:
    one, two = another(operator, agent), another(operator, agent)
    prove(operator, one, answers(4))
    prove(operator, two, answers(5))
    result = compare_on_held_out([run, two, one])
    assert result.reference.pk == two.pk and [row.run.pk for row in result.rows] == [one.pk]


def test_six_jobs_are_read_with_as_many_queries_as_two(
    console: Client, operator: Actor, agent: Agent, run: TrainingRun
) -> None:
    others = [another(operator, agent) for _ in range(5)]
    for one in (run, *others):
        prove(operator, one, answers(4))
    console.get(compared(run, others[0]))  # what is read once a process is read
    few, many = queries_of(console, compared(run, others[0])), queries_of(console, compared(run, *others))
    assert many <= few


def test_several_jobs_are_paused_and_resumed_at_once(console: Client, operator: Actor, agent: Agent) -> None:
    own = [AgentFactory(organization=agent.organization, environment_options=agent.environment_options) for _ in "ab"]
    runs = [queued_run(operator, one, title=f"Job {i}") for i, one in enumerate(own)]
    picked = {"pick": [str(one.pk) for one in runs], "next": "/jobs/?status=queued"}
    answer = console.post("/jobs/chosen/", picked | {"act": "pause"}, follow=True)
    assert answer.redirect_chain[-1][0] == "/jobs/?status=queued" and "2 jobs were asked to pause." in html(answer)
    assert set(Job.objects.filter(kind="training").values_list("status", flat=True)) == {"paused"}
    Job.objects.filter(id=runs[0].pk).update(status=Status.CANCELLED)
    shown = html(console.post("/jobs/chosen/", picked | {"act": "resume"}, follow=True))
    assert "1 job was resumed." in shown and "Job 0: " in shown
    assert Job.objects.get(id=runs[1].pk).status == "queued"


def test_a_viewer_compares_and_changes_nothing(
    operator: Actor, agent: Agent, run: TrainingRun, stella: Any, signed_in: SignIn
) -> None:
    other = another(operator, agent, "Running")
    Job.objects.filter(id=other.pk).update(status=Status.QUEUED)
    stakeholder = signed_in(stella)
    listed = html(stakeholder.get("/jobs/"))
    assert 'value="compare"' in listed and 'value="pause"' not in listed
    answer = stakeholder.post("/jobs/chosen/", {"pick": [str(run.pk), str(other.pk)], "act": "compare"})
    assert answer["Location"] == compared(run, other)
    stakeholder.post("/jobs/chosen/", {"pick": [str(other.pk)], "act": "pause"})
    assert Job.objects.get(id=other.pk).status == "queued"


def test_nothing_leads_out_of_the_site(console: Client, run: TrainingRun) -> None:
    form = {"pick": [str(run.pk)], "act": "pause", "next": "https://example.org/"}
    assert console.post("/jobs/chosen/", form)["Location"] == "/jobs/"
    assert console.post("/jobs/chosen/", {"pick": [str(run.pk)], "act": "delete"}).status_code == 400
    assert console.post("/jobs/chosen/", {"act": "pause"}).status_code == 400


def test_many_jobs_are_lines_over_their_settings_and_results(
    console: Client, operator: Actor, agent: Agent, run: TrainingRun
) -> None:
    assert "nothing to compare" in html(console.get("/jobs/landscape/"))
    rates = (0.1, 0.05, 0.0005)
    runs = [another(operator, agent, f"Rate {rate}", config={"learning_rate": rate}) for rate in rates]
    for one, found in zip(runs, (0.2, 0.9, 0.5), strict=True):
        seen = {"success_rate": found, "low": 0.1, "high": 1.0, "baseline_success_rate": 0.1}
        TrainingRun.objects.filter(pk=one.pk).update(selection=seen)
    shown = html(console.get("/jobs/landscape/?q=rate"))
    assert shown.count("<polyline") == 3 and "learning rate" in shown
    assert shown.index("Rate 0.05<") < shown.index("Rate 0.0005<") < shown.index("Rate 0.1<")  # the best first
    assert 'class="parallel-line r4" ' in shown
    assert "No matching job has an iteration" in html(console.get("/jobs/landscape/?q=nothing+like+it"))


def test_a_lived_run_is_offered_to_compare_with(
    console: Client, operator: Actor, agent: Agent, run: TrainingRun
) -> None:
    own = AgentFactory(organization=agent.organization, environment_options=agent.environment_options)
    other = lived_run(operator, own)
    shown = html(console.get(compared(run)))
    assert f'<option value="{other.pk}"' in shown and f'<option value="{run.pk}"' not in shown
