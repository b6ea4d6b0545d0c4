"""A job's tab "Lessons": the verdict first, then what each epoch cost, proposed and was allowed, then the lessons."""

from __future__ import annotations

import re
import zlib
from dataclasses import asdict
from typing import Any

import pytest
from django.test import Client

from agentcore_site.jobs.models import Job, Status
from agentcore_site.tenancy.actors import Actor
from evaluation.context_value import context_value, context_words, thousand_calls
from evaluation.models import EvaluationRun
from experiences.models import Agent, Experience, Question
from tests.console.conftest import SignIn
from tests.factories import ExperienceFactory
from tests.support.pages import html
from tests.support.queries import queries_of
from training.config.presets import presets_for
from training.learners.gate import LOOKS_NO_WORSE, LOOKS_WORSE
from training.models import Epoch, Iteration, TrainingRun
from training.presenters.epochs import explained, verdict
from training.selectors.run_lessons import run_epochs

pytestmark = pytest.mark.django_db

GATE = {
    "iteration": 2, "epoch": 1, "candidate": ["x1", "x2"], "current": [], "n_queries": 10, "samples": 4,
    "candidate_rate": 0.77, "current_rate": 0.5, "difference": 0.27, "low": 0.15, "high": 0.39, "gain": 0.27,
    "p_value": 0.0003, "accepted": True, "why": "it is better than what the run began with", "rolled_back": [],
    "tokens": 210,
}  # fmt: skip
CHANGES = [
    {"iteration": 1, "op": "ADD", "taken": True, "why": "the winners did", "handle": "x1", "text": "When many, count."},
    {"iteration": 1, "op": "ADD", "taken": False, "why": "it has 41 words; 32 are allowed", "handle": "", "text": "W"},
    {"iteration": 1, "op": "DELETE", "taken": False, "why": "there is no lesson '<b>x9</b>'", "handle": "", "text": ""},
    {"iteration": 2, "op": "NONE", "taken": False, "why": "nothing to change", "handle": "", "text": ""},
]
METRICS = {
    "rollouts": 20, "successes": 12, "scored": 20, "reward_sum": 13.0, "steps": 40, "tokens": 9_000,
    "cost_micros": 120_000, "latency_ms": 40_000.0,
    "reflected": {"groups": 5, "with_spread": 3, "compared": 2, "unread": 1, "drafts": 4, "operations": 4},
    "tools": {
        "model": {"calls": 30, "tokens": 8_500, "latency_ms": 39_000.0, "cost_micros": 110_000},
        "calc": {"calls": 10, "tokens": 500, "latency_ms": 1_000.0, "cost_micros": 10_000},
    },
}  # fmt: skip


@pytest.fixture
def learning(run: TrainingRun) -> TrainingRun:
    """A run of a language model's agent, before its first epoch."""
    Agent.objects.filter(pk=run.agent_id).update(runtime="llm", grouped_execution=True)
    TrainingRun.objects.filter(pk=run.pk).update(policy_kind="llm")
    return TrainingRun.objects.select_related("job", "agent").get(pk=run.pk)


@pytest.fixture
def learned(learning: TrainingRun) -> TrainingRun:
    """The same after an epoch whose gate let two lessons through."""
    Epoch.objects.create(run=learning, number=1, iterations=2, metrics=METRICS, changes=CHANGES, gate=GATE)
    seen = {"success_rate": 0.77, "low": 0.6, "high": 0.9, "baseline_success_rate": 0.5}
    seen |= {"improvement": 0.27, "improvement_low": 0.15, "improvement_high": 0.39}
    Iteration.objects.filter(run=learning, number=2).update(selection=seen)
    for handle in ("x1", "x2"):
        ExperienceFactory(
            agent=learning.agent, job=learning.job, handle=handle, status="active", summary=f"When {handle}, count.",
            tokens=105, effect=0.2, effect_error=0.05,
        )  # fmt: skip
    for number, (stage, usable, reason) in enumerate(
        [("summary", True, ""), ("summary", False, "it is empty"), ("lessons", True, "")]
    ):
        Question.objects.create(
            organization=learning.organization, job=learning.job, agent=learning.agent, key=f"k{number}", stage=stage,
            asked="a", usable=usable, reason=reason, epoch=1, calls=1 + number, tokens=100, cost_micros=2_000,
            own_ms=3.0, latency_ms=900.0, repaired=not usable,
        )  # fmt: skip
    return learning


def text_of(client: Client, run: TrainingRun) -> str:
    shown = html(client.get(f"/jobs/{run.pk}/?tab=learned"))
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", shown))


def test_only_agents_with_a_context_have_the_tab(console: Client, run: TrainingRun) -> None:
    shown = html(console.get(f"/jobs/{run.pk}/?tab=learned"))
    assert ">Lessons</a>\n    <a" not in shown and 'hx-get="/jobs/' in shown
    assert f'hx-get="/jobs/{run.pk}/?tab=learned' not in shown and f'href="/jobs/{run.pk}/?tab=learned' not in shown


def test_before_the_first_epoch_the_tab_announces_its_contents(console: Client, learning: TrainingRun) -> None:
    assert "No lessons The job ended before its first iteration" in text_of(console, learning)
    Job.objects.filter(pk=learning.pk).update(status=Status.RUNNING)
    assert "No lessons yet After the first iteration" in text_of(console, learning)


def test_the_verdict_comes_first_with_its_interval(console: Client, learned: TrainingRun) -> None:
    shown = text_of(console, learned)
    said = (
        "Epoch 1 of 3: the gate accepted 2 lessons: +27.0 points on the selection queries (95 % interval +15.0 to "
        "+39.0), p &lt; .001; they add 210 tokens per call."
    )
    assert said in shown and shown.index(said) < shown.index("Lessons of this job")
    assert "verdict good" in html(console.get(f"/jobs/{learned.pk}/?tab=learned"))


def test_a_selection_by_query_shows_the_queries_of_each_lesson(console: Client, learned: TrainingRun) -> None:
    where = {"x1": {"share": 0.25, "effect": 0.21, "error": 0.04, "others": -0.02}}
    Epoch.objects.filter(run=learned).update(
        gate=GATE | {"where": where, "lessons_each": 1.25, "looks": 2, "most_looks": 4}
    )
    shown = text_of(console, learned)
    assert "Lessons per query 1.25 of the 2 lessons on average" in shown and "Reach of each lesson: 1" in shown
    said = "When x1, count. all kinds 25 % of the training queries +21.0 points +13.2 to +28.8 −2.0 points"
    assert said in shown
    gate = console.get(f"/api/v1/training-jobs/{learned.pk}/epochs").json()[0]["gate"]
    assert (gate["analyses"], gate["most_analyses"]) == (gate["looks"], gate["most_looks"]) == (2, 4)  # former names
    assert gate["where"] == where and gate["lessons_each"] == 1.25
    assert "Reach of each lesson" not in text_of(console, with_gate(learned, GATE))


def test_lessons_for_all_queries_are_shown_with_the_word_by_which_they_hold(
    console: Client, learned: TrainingRun
) -> None:
    """The word is found in the lesson or in the query that taught the lesson: where it holds, hashes are kept."""
    one = {"share": 0.25, "effect": 0.21, "error": 0.04, "others": -0.02}
    count, elsewhere = zlib.crc32(b"count"), zlib.crc32(b"weekday")
    for terms, words in (([elsewhere, count], "with count"), ([elsewhere], "with a word in common")):
        Epoch.objects.filter(run=learned).update(
            gate=GATE | {"where": {"x1": {**one, "terms": terms}}, "lessons_each": 2.0}
        )
        shown = text_of(console, learned)
        assert f"When x1, count. {words} 25 % of the training queries +21.0 points" in shown
        assert "Lessons per query" not in shown
    Epoch.objects.filter(run=learned).update(gate=GATE | {"where": {"gone": one}, "lessons_each": 2.0})
    assert "gone all kinds 25 % of the training queries" in text_of(console, learned)


def test_the_tab_says_what_a_refused_lesson_would_need(console: Client, learned: TrainingRun) -> None:
    refused = GATE | {"accepted": False, "final": True, "gain": 0.07, "looks": 4, "most_looks": 4, "needs": 64}
    said = "Sample needed If the true gain is +7.0 points, a gate on 64 selection queries finds it in 4 of 5 runs;"
    assert f"{said} this one had 10." in text_of(console, with_gate(learned, refused))
    assert "on more than 200 selection queries" in text_of(console, with_gate(learned, refused | {"needs": None}))
    assert "Other lessons: these did no better" in text_of(console, with_gate(learned, refused | {"gain": -0.01}))
    assert "Sample needed" not in text_of(console, with_gate(learned, GATE | {"needs": None}))


def test_each_lesson_shows_its_cost_per_call_and_its_cost_of_discovery(console: Client, learned: TrainingRun) -> None:
    Experience.objects.filter(handle__in=("x1", "x2")).update(group="3/12")
    for at, (key, cost) in enumerate(
        [("summary/3/12.0.5", 2_000), ("lessons/3/12.0", 4_000), ("lessons/3/1.0", 9_000)]
    ):
        Question.objects.filter(key=f"k{at}").update(key=key, cost_micros=cost)
    ExperienceFactory(agent=learned.agent, handle="x3", status="active", summary="When x3, count.")
    TrainingRun.objects.filter(pk=learned.pk).update(library=[{"lesson": {"handle": "x3"}, "weight": 0.5}])
    shown = text_of(console, learned)
    assert shown.count("105 $0.003") == 2 and "14 before this job" in shown


def with_gate(run: TrainingRun, gate: dict[str, Any]) -> TrainingRun:
    Epoch.objects.filter(run=run).update(gate=gate)
    return run


def test_the_charts_show_the_context_instead_of_steps(console: Client, learned: TrainingRun) -> None:
    shown = html(console.get(f"/jobs/{learned.pk}/"))
    assert 'data-chart="context"' in shown and 'data-chart="steps"' not in shown
    Iteration.objects.filter(run=learned, number=2).update(metrics={"lessons": 2.0, "told_tokens": 105.0})
    point = console.get(f"/jobs/{learned.pk}/series/").json()["iterations"][-1]
    assert (point["lessons"], point["told_tokens"]) == (2.0, 105.0)


def test_an_epoch_shows_its_cost_by_tool_and_by_question(console: Client, learned: TrainingRun) -> None:
    shown = text_of(console, learned)
    assert "Success 60.0 % of 20 rollouts" in shown and "Rollouts cost $0.12 2.0 s each, on average" in shown
    assert "the model itself 30 8,500 1.3 s $0.11" in shown and "calc 10 500 100 ms $0.01" in shown
    assert "Reflection: 3 model calls, 2 of 3 groups with both good and bad attempts compared" in shown
    assert "Summary 2 1 1 200 900 ms 3 ms" in shown and "summary: it is empty (1)" in shown
    assert "1 group unused" in shown


def test_each_refusal_shows_the_reason_and_its_evidence(console: Client, learned: TrainingRun) -> None:
    shown = text_of(console, learned)
    assert "Proposals: 1 applied, 2 refused" in shown
    assert "it has 41 words; 32 are allowed (1) A long lesson says several things" in shown
    assert "The model named a lesson that does not exist." in shown
    assert "<b>x9</b>" not in html(console.get(f"/jobs/{learned.pk}/?tab=learned"))
    assert explained("something nobody foresaw") == ""


def test_the_gate_and_the_lessons_are_drawn_with_their_intervals(console: Client, learned: TrainingRun) -> None:
    shown = html(console.get(f"/jobs/{learned.pk}/?tab=learned"))
    assert shown.count('class="whisker"') == 4  # the gate twice, and two lessons
    assert 'aria-label="+27.0 points, +15.0 to +39.0"' in shown
    lesson = Experience.objects.get(handle="x1")
    assert f"/experiences/{lesson.pk}/" in shown and f"/experiences/?agent={learned.agent.slug}" in shown
    assert "style=" not in shown and "onclick" not in shown


def test_a_refused_gate_says_what_stays_in_use_and_what_was_rolled_back(console: Client, learned: TrainingRun) -> None:
    gate = GATE | {
        "accepted": False, "why": "it is not shown to be better than what the run began with", "current": ["x2"],
        "rolled_back": ["x1"], "gain": 0.03, "p_value": 0.22,
    }  # fmt: skip
    Epoch.objects.update(gate=gate)
    shown = text_of(console, learned)
    assert "the gate refused a candidate of 2 lessons, since it is not shown to be better" in shown
    assert "1 lesson stays in use" in shown
    assert "Rolled back x1" in shown


def test_an_epoch_that_is_kept_for_the_search_is_not_said_to_be_accepted(console: Client, learned: TrainingRun) -> None:
    steps = [{"iteration": 2, "kept": True}, {"iteration": 4, "kept": False}, {"iteration": 6, "kept": True}]
    gate = GATE | {"accepted": False, "final": False, "kept": True, "why": LOOKS_NO_WORSE, "steps": steps}
    Epoch.objects.update(gate=gate)
    shown = text_of(console, learned)
    assert "the search keeps 2 lessons" in shown and "+27.0 points on the search&#x27;s training queries" in shown
    assert "the context stays the same until then" in shown
    assert "Kept for the search, not shipped: 2 lessons" in shown and "Compared with the lessons kept" in shown
    assert "accepted" not in shown and "refused 2" not in shown
    assert "Steps of the search kept after iteration 2, 6; given up after iteration 4" in shown
    Epoch.objects.update(gate=gate | {"kept": False, "why": LOOKS_WORSE, "rolled_back": ["x1"]})
    shown = text_of(console, learned)
    assert "the search went back to 0 lessons from 2 lessons" in shown and "The search rolled back from 2" in shown
    # The verdict is the gate's, once it has decided, also where the search kept another set later.
    Epoch.objects.create(run=learned, number=2, iterations=2, metrics=METRICS, changes=CHANGES, gate=GATE)
    assert "Epoch 2 of 3: the gate accepted 2 lessons" in text_of(console, learned)


def test_before_its_gate_an_epoch_says_what_is_tried(learned: TrainingRun) -> None:
    Epoch.objects.update(gate=None)
    said = verdict(learned, run_epochs(learned)).text
    assert said == "Epoch 1 of 3: 1 lesson taken up, 2 proposals refused; the gate has not decided yet."
    assert verdict(learned, []).text == "No lessons yet."


@pytest.mark.parametrize("who", ["olivia", "dan", "adam", "stella"])
def test_every_role_may_read_the_tab(who: str, learned: TrainingRun, signed_in: SignIn, request: Any) -> None:
    assert "When x1, count." in text_of(signed_in(request.getfixturevalue(who)), learned)


def test_a_page_of_many_epochs_asks_as_often_as_one_of_few(console: Client, learned: TrainingRun) -> None:
    address = f"/jobs/{learned.pk}/?tab=learned"
    few = queries_of(console, address)
    for number in range(2, 12):
        Epoch.objects.create(run=learned, number=number, iterations=2, metrics=METRICS, changes=CHANGES, gate=GATE)
    assert queries_of(console, address) == few


# -- REST --------------------------------------------------------------------------------------------------------------


def test_epochs_and_manifest_are_to_be_had_by_rest(
    console: Client, learned: TrainingRun, charlie: Any, signed_in: SignIn
) -> None:
    at = f"/api/v1/training-jobs/{learned.pk}"
    epoch = console.get(f"{at}/epochs").json()[0]
    assert (epoch["epoch"], epoch["success_rate"], epoch["taken"], epoch["refused"]) == (1, 0.6, 1, 2)
    assert epoch["gate"]["accepted"] and epoch["tools"][0]["tool"] == "model"
    assert epoch["questions"][0]["reasons"] == {"it is empty": 1}
    manifest = console.get(f"{at}/manifest").json()
    assert manifest["guard_rails"]["operations_refused"] and len(manifest["experiences"]) == 2
    assert manifest["guard_rails"]["held_out"]["held"] is None  # an environment that makes its own items
    for part in ("epochs", "manifest"):
        assert signed_in(charlie).get(f"{at}/{part}").status_code == 404


# -- the evaluation report --------------------------------------------------------------------------------------------


def test_the_report_shows_the_cost_of_the_context_and_its_break_even(
    console: Client, evaluation: EvaluationRun
) -> None:
    worth = context_value(success_without=0.5, success_with=0.8, cost_without=0.01, cost_with=0.012, learning_cost=2.0)
    found = {"lessons": 9, "tokens": 210, "improvement": 0.3, "low": 0.15, "high": 0.39, "p_value": 0.0003}
    found |= asdict(worth) | {"per_thousand": thousand_calls(worth)}
    assert "With and without" not in html(console.get(f"/evaluations/{evaluation.pk}/"))
    evaluation.report["context"] = found | {"verdict": context_words(found)}
    evaluation.save()
    shown = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html(console.get(f"/evaluations/{evaluation.pk}/"))))
    assert "Learned context: 210 tokens per call" in shown and "Break-even after 500 calls" in shown
    assert "1,000 calls cost $10.00 → $12.00 Saved +$4.00" in shown
    report = console.get(f"/evaluations/{evaluation.pk}/json/").json()["report"]
    assert report["context"]["calls"] == 500


# -- the launch form ---------------------------------------------------------------------------------------------------


def test_the_form_offers_presets_that_fit_the_agent(
    console: Client, agent: Agent, learning: TrainingRun, settings: Any
) -> None:
    def offered(chosen: Any) -> set[str]:
        shown = html(console.get(f"/launch/?agent={chosen.pk}"))
        return set(re.findall(r'name="preset" value="([a-z_]+)"', shown))

    assert offered(learning.agent) == {one.name for one in presets_for("llm")}
    settings.FEATURE_TFGRPO_GROUP = False
    assert "tfgrpo" not in offered(learning.agent)
    settings.FEATURE_TFGRPO_GROUP = True
    Agent.objects.filter(pk=agent.pk).update(grouped_execution=False)
    assert "tfgrpo" not in offered(learning.agent) and "recommended" in offered(learning.agent)
    Agent.objects.filter(pk=agent.pk).update(runtime="action")
    assert offered(agent) == {one.name for one in presets_for("action")} and "tfgrpo" not in offered(agent)


def test_another_agent_moves_the_presets_and_a_preset_that_does_not_fit_is_refused(
    console: Client, agent: Agent, operator: Actor
) -> None:
    form = {"agent": str(agent.pk), "preset": "tfgrpo", "source": "environment"}
    shown = html(console.post("/launch/data/", form))
    assert '<details id="presets" class="card" hx-swap-oob="true"' in shown
    assert 'value="tfgrpo"' not in shown and 'value="recommended" checked' in shown
    refused = console.post("/launch/", form)
    assert refused.status_code == 400 and "algorithm tfgrpo puts its lessons" in html(refused)
