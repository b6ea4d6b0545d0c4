"""Feedback on answers in production, and the reward that follows."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.ids import uuid7
from agentcore_site.lib.errors import Forbidden, Missing
from agentcore_site.lib.exclusive_lock import exclusive_lock
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.feedback.scoring import traces_score
from evaluation.serving.feedback.selectors import trace_of
from evaluation.serving.feedback.services import feedback_give, feedback_withdraw
from evaluation.serving.feedback.sweep import BATCH, sessions_close, sweep
from evaluation.serving.models import Feedback, ProductionTrace
from evaluation.serving.tasks import SWEEPING, feedback
from experiences.models import Agent
from tests.support.callers import Caller

pytestmark = pytest.mark.django_db

ASKED = "Where is my order 4711?"


def answered(agent: Agent, text: str = "It comes tomorrow.", asked: str = ASKED, **values: Any) -> ProductionTrace:
    known = {
        "organization": agent.organization, "agent": agent, "model": "small", "status": "ok", "finish_reason": "stop",
        "request": {"messages": [{"role": "user", "content": asked}]},
        "response": {"role": "assistant", "content": text},
        "input_tokens": 90, "output_tokens": 10, "duration_ms": 500.0,
    }  # fmt: skip
    made: ProductionTrace = ProductionTrace.objects.create(**known | values)
    return made


def learned(agent: Agent, n: int) -> None:
    """Answers that were scored before."""
    known = {"organization": agent.organization, "agent": agent, "status": "ok", "reward": 0.5}
    rows = [ProductionTrace(**known, components=LEARNED[place % 2]) for place in range(n)]
    ProductionTrace.objects.bulk_create(rows)


def reloaded(trace: ProductionTrace) -> ProductionTrace:
    return ProductionTrace.objects.get(pk=trace.pk)


def test_one_person_has_one_opinion_by_metric_and_may_change_it(operator: Actor, adam: Any, agent: Agent) -> None:
    trace = answered(agent)
    first, new = feedback_give(operator, trace, metric="thumbs", value="up", text="Call jane@example.org")
    assert new and (first.value, first.text, first.source) == (1.0, "Call [email]", "explicit")
    again, new = feedback_give(operator, trace, metric="thumbs", value="down")
    assert not new and again.pk == first.pk and again.value == 0
    feedback_give(operator, trace, metric="stars", value=2)
    feedback_give(Actor(adam), trace, metric="thumbs", value="up")
    assert Feedback.objects.filter(trace=trace).count() == 3
    with pytest.raises(Forbidden, match="another's feedback"):
        feedback_withdraw(Actor(adam), again)
    feedback_withdraw(operator, again)
    assert Feedback.objects.filter(trace=trace, metric="thumbs").get().giver == f"person {adam.pk}"
    events = AuditEvent.objects.filter(action__startswith="feedback.").values_list("action", flat=True)
    assert sorted(events) == ["feedback.given"] * 4 + ["feedback.withdrawn"]


def test_a_stranger_finds_no_trace_and_a_viewer_gives_no_feedback(charlie: Any, stella: Any, agent: Agent) -> None:
    trace = answered(agent)
    with pytest.raises(Missing):
        trace_of(Actor(charlie), trace.pk)
    with pytest.raises(Missing):
        feedback_give(Actor(charlie), trace, metric="thumbs", value="up")
    with pytest.raises(Forbidden, match="may not give feedback"):
        feedback_give(Actor(stella), trace, metric="thumbs", value="up")


def test_a_key_that_only_gives_feedback_gives_it_and_sees_nothing(olivia: Any, agent: Agent) -> None:
    trace = answered(agent)
    key = Caller(olivia, ["feedback:write"])
    body = {"trace": str(trace.pk), "metric": "thumbs", "value": "up"}
    made = key.post("feedback", body)
    assert (made.status_code, made.json()["by"][:4]) == (201, "key ")
    assert key.post("feedback", body | {"value": False}).status_code == 200
    person = Caller(olivia, ["training:view", "feedback:write"])
    assert person.post("feedback", body).status_code == 201  # another key is another giver
    for path in ("feedback", f"feedback/{made.json()['id']}", "traces", f"traces/{trace.pk}"):
        assert key.get(path).status_code == 403
        assert person.get(path).status_code == 200
    assert Caller(olivia, ["training:view"]).post("feedback", body).status_code == 403


def test_rest_says_what_is_wrong_and_a_repeated_request_gives_the_same(olivia: Any, charlie: Any, agent: Agent) -> None:
    trace, key = answered(agent), Caller(olivia)
    body = {"trace": str(trace.pk), "metric": "stars", "value": 9}
    refused = key.post("feedback", body)
    assert refused.status_code == 400 and refused.json()["errors"] == {"value": "Stars are a whole number from 1 to 5."}
    assert key.post("feedback", body | {"valeu": 1}).status_code == 400
    stranger = Caller(charlie).post("feedback", body | {"value": 5})
    assert stranger.status_code == 404 and "Missing" not in str(stranger.json())
    first, second = (key.post("feedback", body | {"value": 5}, idempotency_key="a") for _ in range(2))
    assert first.status_code == second.status_code == 201 and second["Idempotent-Replayed"] == "true"
    assert key.post("feedback", body | {"value": 4}, idempotency_key="a").status_code == 409
    assert key.delete(f"feedback/{first.json()['id']}").status_code == 204
    assert key.get("feedback", trace=str(trace.pk)).json()["results"] == []


# -- the reward --------------------------------------------------------------------------------------------------------


def test_feedback_is_on_the_trace_and_in_its_reward_within_a_second(olivia: Any, agent: Agent) -> None:
    """Among 1,000 scored answers, through REST; reports the median of five."""
    learned(agent, 1000)
    trace, key = answered(agent), Caller(olivia)
    sweep()
    before, took = reloaded(trace).reward, []
    for value in ("down", "up") * 2 + ("down",):
        began = time.perf_counter()
        assert key.post("feedback", {"trace": str(trace.pk), "metric": "thumbs", "value": value}).status_code in (
            200,
            201,
        )
        shown = key.get(f"traces/{trace.pk}").json()
        assert shown["context_handles"] == shown["told"] == trace.told  # the former name
        took.append(time.perf_counter() - began)
        assert shown["feedback"][0]["value"] == float(value == "up")
        assert (shown["reward"] > before) is (value == "up")
    print(f"feedback to visible: {sorted(took)[2] * 1e3:.0f} ms")
    assert sorted(took)[2] < 1


LEARNED = [
    {
        "raw": {"completion": 1.0, "efficiency": 0.5, "code_quality": None, "feedback": thought},
        "efforts": {"turns": 1.0, "seconds": 0.5, "tokens": tokens, "redundant_calls": 0.0},
    }
    for thought, tokens in ((0.0, 50.0), (1.0, 150.0))
]


def test_the_reward_is_the_composite_on_the_scale_of_what_came_before(operator: Actor, agent: Agent) -> None:
    """Feedback 0 and 1, 20 times each: mean .5, sigma .5. Thumbs up are z = 1, worth .25. Tokens 50 and 150: mean 100,
    sigma 50; 200 tokens are 2 sigma above and worth 0 of a share of .2, the others .5: .8 * .5 = .4, which is 2 floors
    of .05 below the mean of .5."""
    learned(agent, 40)
    trace = answered(agent, output_tokens=110)
    feedback_give(operator, trace, metric="thumbs", value="up")
    assert reloaded(trace).reward is None, "the sweep has not looked at it yet"
    assert sweep()["scored"] == 1
    result = reloaded(trace)
    assert result.components["raw"] == {"completion": 1, "efficiency": 0.4, "code_quality": None, "feedback": 1}
    assert result.components["normalised"] == pytest.approx(
        {"completion": 0, "efficiency": -2, "code_quality": 0, "feedback": 1}
    )
    assert result.reward == pytest.approx(0.25 - 2 * 0.2)
    assert result.components["raw_reward"] == pytest.approx(0.4 * 1 + 0.2 * 0.4 + 0.25 * 1)
    feedback_give(operator, trace, metric="success", value=0)
    assert reloaded(trace).components["raw"]["completion"] == 0


def test_another_agents_answers_are_no_scale_and_a_shadow_has_no_reward(
    operator: Actor, agent: Agent, elsewhere: Any
) -> None:
    learned(agent, 40)
    from tests.factories import AgentFactory

    other = answered(AgentFactory(organization=agent.organization, name="Other", slug="other"))
    shadow, refused = answered(agent, arm="shadow"), answered(agent, status="refused")
    sweep()
    assert reloaded(other).components["observed"]["completion"] == 0
    assert reloaded(shadow).reward is None and reloaded(refused).reward is None
    assert feedback_give(operator, refused, metric="thumbs", value="down")[1]


def test_an_agents_own_weights_count(agent: Agent) -> None:
    Agent.objects.filter(pk=agent.pk).update(reward="composite", reward_options={"completion": 0, "feedback": 1})
    trace = answered(agent)
    sweep()
    assert reloaded(trace).components["parts"] == pytest.approx(
        {"completion": 0, "efficiency": 0.1, "code_quality": 0, "feedback": 0.5}
    )


def test_code_in_an_answer_is_checked_once_and_kept(operator: Actor, agent: Agent) -> None:
    trace = answered(agent, "```python\nimport os\nprint(undefined)\n```")
    sweep()
    code = reloaded(trace).components["code_quality"]
    assert code.get("off") or (code["lint_findings"] == 2 and reloaded(trace).components["raw"]["code_quality"] < 1)
    feedback_give(operator, trace, metric="thumbs", value="up")
    assert reloaded(trace).components["code_quality"] == code


# -- what sessions say -------------------------------------------------------------------------------------------------


def test_a_question_asked_again_is_a_signal_on_the_answer_before(agent: Agent) -> None:
    first = answered(agent, session="s")
    answered(agent, session="another")
    sweep()
    thought = reloaded(first).reward
    assert thought is not None
    answered(agent, session="s", asked="where is my order 4711")
    assert sweep()["retried"] == 1
    row = Feedback.objects.get()
    assert (row.trace_id, row.metric, row.source, row.giver) == (first.pk, "retried", "implicit", "rule")
    assert reloaded(first).components["raw"]["feedback"] == 0.2 and reloaded(first).reward < thought
    assert sweep() == {"scored": 0, "retried": 0}


def test_a_session_that_ends_without_an_answer_is_abandoned_and_one_that_goes_on_is_not(agent: Agent) -> None:
    then = timezone.now() - timedelta(minutes=40)
    failed = {"status": "failed", "finish_reason": "", "created_at": then}
    left = answered(agent, session="left", **failed)
    answered(agent, session="went on", **failed)
    answered(agent, session="went on")
    answered(agent, session="just now", **failed | {"created_at": timezone.now()})
    answered(agent, **failed)  # of no session
    unnamed = uuid7()
    answered(agent, id=unnamed, session=str(unnamed), **failed)  # as the gateway has it
    answered(agent, session="well", created_at=then)
    cut = answered(agent, session="cut", finish_reason="length", created_at=then)
    sweep()
    assert sessions_close() == 2
    assert {row.trace_id for row in Feedback.objects.filter(metric="abandoned")} == {left.pk, cut.pk}
    assert reloaded(left).components["raw"] == {"completion": 0, "efficiency": 0.5, "code_quality": None, "feedback": 0}
    assert reloaded(cut).components["raw"]["completion"] == 0.5
    assert sessions_close() == 0


def test_all_that_waits_is_scored_in_one_sweep_and_by_one_worker(
    agent: Agent, django_assert_max_num_queries: Any
) -> None:
    for _ in range(BATCH + 20):
        answered(agent)
    with django_assert_max_num_queries(40):
        assert feedback()["scored"] == BATCH + 20
    answered(agent)
    with exclusive_lock(SWEEPING):
        assert feedback() == {}
    assert feedback()["scored"] == 1


def test_scoring_leaves_what_was_asked_and_answered(agent: Agent) -> None:
    trace = answered(agent)
    before = ProductionTrace.objects.filter(pk=trace.pk).values("request", "response", "session").get()
    assert traces_score([trace.pk]) == 1
    assert ProductionTrace.objects.filter(pk=trace.pk).values("request", "response", "session").get() == before
