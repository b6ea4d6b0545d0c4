"""Answers in production and what people thought of them are events; received events go on as they came."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agentcore_site.encryption import data_keys
from agentcore_site.encryption.services import key_rotate
from agentcore_site.ids import uuid7
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import subject_erase
from agentcore_site.tenancy.models import Organization
from evaluation.events.intake.messages import StoredMessage, block_take
from evaluation.events.models import ErasedMessage, EventPublisher, OutboxEvent, ReceivedReward
from evaluation.events.payloads.reward_parts import account_of
from evaluation.events.payloads.timestamps import read
from evaluation.events.services import publishing_set
from evaluation.events.subjects import REWARD, TRAJECTORY
from evaluation.serving.feedback.scoring import traces_score
from evaluation.serving.feedback.services import feedback_give
from evaluation.serving.models import ProductionTrace
from evaluation.serving.releases.services import release_make
from evaluation.serving.traces.writing import traces_write
from experiences.models import Agent, TrajectoryRecord
from experiences.rollouts.types import RolloutKey, Step, Trajectory
from experiences.trajectories.storage import trajectories_write
from tests import factories
from tests.support.callers import Caller
from tests.support.events import example, faults, outgoing_payloads
from tests.support.rows import owner_of, queued_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(published: Organization, olivia: Any) -> Agent:
    made: Agent = factories.AgentFactory(
        organization=published, created_by=olivia, slug="agent-zero-main", runtime="llm", environment="dataset"
    )
    return made


def answered(agent: Agent, **values: Any) -> ProductionTrace:
    """A trace as the gateway stores it."""
    row = {
        "id": str(uuid7()),
        "organization_id": str(agent.organization_id),
        "agent_id": str(agent.pk),
        "arm": "current",
        "model": "small",
        "status": "ok",
        "finish_reason": "stop",
        "session": "shop-1",
        "metadata": {"domain": "research", "complexity_score": 0.75, "task_id": "t-7"},
        "request": {"messages": [{"role": "user", "content": "Where is my order?"}]},
        "response": {"role": "assistant", "content": "It comes tomorrow.", "reasoning": "Orders take two days."},
        "temperature": 0.7,
        "input_tokens": 90,
        "output_tokens": 10,
        "cost_micros": 25_000,
        "duration_ms": 500.0,
        "created_at": timezone.now().isoformat(),
    }
    traces_write([row | values])
    return ProductionTrace.objects.get(pk=(row | values)["id"])


def taken(agent: Agent, subject: str, payload: dict[str, Any]) -> None:
    """Takes a payload as if a service of the organisation had published it."""
    credential = factories.EventCredentialFactory(agent=None, organization=agent.organization)
    name = f"received.{agent.organization_id}.{credential.pk}.{subject}"
    outcomes = block_take([StoredMessage(name, json.dumps(payload).encode(), "S", 1, timezone.now())])
    assert outcomes == [None]


def test_an_answer_is_stored_as_a_trajectory_with_all_its_known_facts(operator: Actor, agent: Agent) -> None:
    release = release_make(operator, agent)
    trace = answered(agent, release_id=str(release.pk))
    payloads = outgoing_payloads()
    assert faults(payloads) == []
    [event] = payloads[TRAJECTORY]
    assert (event["trajectory_id"], event["session_id"], event["agent_id"]) == (
        str(trace.pk), "shop-1", "agent-zero-main",
    )  # fmt: skip
    assert event["task_context"] == {
        "task_id": "t-7", "instructions": "Where is my order?", "complexity_score": 0.75, "domain": "research",
    }  # fmt: skip
    assert event["metadata"] == {
        "model": "small", "temperature": 0.7, "total_tokens": 100, "total_cost_usd": 0.025,
        "model_version": "agent-zero-main-1",
    }  # fmt: skip
    [turn] = event["turns"]
    assert turn["thought_process"] == ["Orders take two days."]
    assert turn["action"]["raw_response"] == "It comes tomorrow."
    assert turn["result"] == {
        "success": True, "output": "It comes tomorrow.", "error": None, "execution_time_ms": 500.0,
    }  # fmt: skip


def test_calls_of_tools_are_turns_of_an_answer(agent: Agent) -> None:
    calls = [
        {"id": "1", "type": "function", "function": {"name": "look", "arguments": {"at": "4711"}}},
        {"id": "2", "type": "function", "function": {"name": "ask", "arguments": "{no json"}},
    ]
    answered(
        agent,
        finish_reason="tool_calls",
        session="",
        metadata={"complexity_score": 7},
        request={
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Hm?"}]},
                {"role": "tool", "content": "3"},
            ],
            "tools": [{"type": "function", "function": {"name": "look"}}],
        },
        response={"role": "assistant", "content": "I look.", "tool_calls": calls},
    )
    payloads = outgoing_payloads()
    assert faults(payloads) == []
    [event] = payloads[TRAJECTORY]
    assert event["session_id"] == event["trajectory_id"]
    assert event["task_context"]["instructions"] == "Hm?" and event["task_context"]["complexity_score"] is None
    first, second = event["turns"]
    assert first["observation"] == {
        "type": "tool_result", "content": "3", "context": {"available_tools": ["look"]},
    }  # fmt: skip
    assert (first["action"]["tool_name"], first["action"]["tool_args"]) == ("look", {"at": "4711"})
    assert first["thought_process"] == ["I look."]
    assert second["action"]["tool_args"] == {"raw": "{no json"}


def test_the_reward_of_an_answer_has_the_designs_components_and_feedback_publishes_a_new_one(
    operator: Actor, agent: Agent
) -> None:
    trace = answered(agent)
    traces_score([trace.pk])
    [first] = outgoing_payloads()[REWARD]
    parts = first["reward_components"]
    assert {name: part["weight"] for name, part in parts.items()} == {
        "task_completion": 0.4, "efficiency": 0.2, "user_feedback": 0.25,
    }  # fmt: skip
    assert parts["user_feedback"]["score"] == 0.5 and parts["user_feedback"]["source"] == "automated"
    assert first["metadata"] == {
        "evaluator": "agentcore", "evaluation_method": "automated", "confidence": 0.6,
    }  # fmt: skip
    OutboxEvent.objects.all().delete()
    feedback_give(operator, trace, metric="thumbs", value="up")
    payloads = outgoing_payloads()
    assert faults(payloads) == []
    [second] = payloads[REWARD]
    assert second["reward_id"] != first["reward_id"] and second["trajectory_id"] == str(trace.pk)
    praised = second["reward_components"]["user_feedback"]
    assert (praised["score"], praised["source"]) == (1.0, "human")
    assert praised["reasoning"] == "thumbs up"
    assert second["metadata"] == {"evaluator": "agentcore", "evaluation_method": "hybrid", "confidence": 0.85}
    assert second["total_reward"] == ProductionTrace.objects.get(pk=trace.pk).reward


def test_nothing_is_published_of_what_may_not_be_recorded(agent: Agent) -> None:
    answered(agent, request={}, response={})
    answered(agent, arm="shadow")
    answered(agent, status="refused", response={})
    assert not OutboxEvent.objects.exists()
    trace = answered(agent)
    traces_score([trace.pk])
    agent.collects = False
    agent.save()
    assert outgoing_payloads() == {}
    assert OutboxEvent.objects.count() == 2


def test_who_published_before_agreed_to_no_answers_in_production(operator: Actor, adam: Any, agent: Agent) -> None:
    EventPublisher.objects.update(production=False)
    traces_score([answered(agent).pk])
    assert not OutboxEvent.objects.exists()
    publishing_set(Actor(adam), agent.organization, on=True, production=True)
    answered(agent)
    assert OutboxEvent.objects.count() == 1
    EventPublisher.objects.update(production=False)  # and what waits is withheld
    assert outgoing_payloads() == {}


def test_the_switch_is_on_the_page_and_in_rest(adam: Any, published: Organization) -> None:
    console = Client()
    console.force_login(adam)
    assert "Withhold production answers" in console.get("/events/").content.decode()
    console.post("/events/publishing/", {"on": "1", "production": "0"})
    assert not EventPublisher.objects.get().production
    assert console.post("/events/publishing/", {"on": "1", "production": "x"}).status_code == 400
    rest = Caller(adam)
    assert rest.get("event-publishing").json() == {"publishes": True, "production": False, "waiting": 0}
    answer = rest.patch("event-publishing", {"publishes": True, "production": True})
    assert answer.status_code == 200 and answer.json()["production"]


def test_an_erased_answer_leaves_the_streams(adam: Any, agent: Agent) -> None:
    request = {"messages": [{"role": "user", "content": "I am Jane Quizzlebottom."}]}
    traces_score([answered(agent, request=request).pk, answered(agent).pk])
    assert OutboxEvent.objects.count() == 4
    subject_erase(Actor(adam), ["Quizzlebottom"])
    assert sorted(ErasedMessage.objects.values_list("stream", flat=True)) == ["RL_REWARDS", "RL_TRAJECTORIES"]


def test_a_received_trajectory_and_its_reward_go_on_once_and_unchanged(agent: Agent) -> None:
    given, paid = example(TRAJECTORY), example(REWARD)
    given["metadata"]["model_version"] = "agent-zero-rl-v2.2"
    given["task_context"]["ticket"] = 4711
    given["turns"][0]["turn_id"] = 3
    taken(agent, TRAJECTORY, given)
    taken(agent, REWARD, paid)
    payloads = outgoing_payloads()
    [trajectory], [reward] = payloads[TRAJECTORY], payloads[REWARD]
    assert reward == paid
    for name in ("start_timestamp", "end_timestamp"):
        assert read(trajectory.pop(name)) == read(given.pop(name))
    for turn in (*trajectory["turns"], *given["turns"]):
        turn["timestamp"] = read(turn["timestamp"])
    assert trajectory == given
    assert OutboxEvent.objects.filter(kind="reward").count() == 2  # that of the row is withheld


def test_a_reward_that_came_first_and_a_second_one_go_on_each_under_its_id(agent: Agent) -> None:
    taken(agent, REWARD, example(REWARD))
    assert outgoing_payloads() == {}
    taken(agent, TRAJECTORY, example(TRAJECTORY))
    taken(agent, REWARD, example(REWARD) | {"reward_id": "another", "total_reward": 0.1, "by": "us"})
    rewards = outgoing_payloads()[REWARD]
    assert [one["reward_id"] for one in rewards] == [example(REWARD)["reward_id"], "another"]
    assert rewards[1]["by"] == "us" and not ReceivedReward.objects.get(reward_id="another").applied


def test_a_reward_of_others_for_our_own_rollout_goes_on_as_theirs_alone(
    operator: Actor, agent: Agent, published: Organization
) -> None:
    run = queued_run(operator, factories.AgentFactory(organization=published))
    trajectories_write(owner_of(run), [Trajectory(RolloutKey(0, 0, 0), "1 + 1?", [])])
    row = TrajectoryRecord.objects.get()
    taken(agent, REWARD, example(REWARD) | {"trajectory_id": str(row.pk)})
    assert [one["reward_id"] for one in outgoing_payloads()[REWARD]] == [example(REWARD)["reward_id"]]
    assert TrajectoryRecord.objects.get().reward == 0.8625


def test_a_word_in_a_received_reward_leaves_the_streams_with_an_erasure(adam: Any, agent: Agent) -> None:
    paid = example(REWARD)
    paid["reward_components"]["user_feedback"]["reasoning"] = "Jane Quizzlebottom liked it."
    taken(agent, TRAJECTORY, example(TRAJECTORY))
    taken(agent, REWARD, paid)
    [sent] = [one for one in OutboxEvent.objects.filter(kind="reward") if one.data]
    subject_erase(Actor(adam), ["Quizzlebottom"])
    marks = set(ErasedMessage.objects.values_list("mark", flat=True))
    assert str(sent.message_id) in marks and len(marks) == 2
    assert "Quizzlebottom" not in json.dumps(outgoing_payloads()[REWARD])


def test_a_rollout_of_ours_carries_what_is_known_and_null_of_all_else(operator: Actor, published: Organization) -> None:
    run = queued_run(operator, factories.AgentFactory(organization=published))
    thinks = Step(
        {"observation": "1 + 1?"},
        {"type": "tool", "tool": "add", "parameters": {"a": 1}, "text": "I add."},
        {"success": True, "output": "2"},
        call={"temperature": 0.3},
    )
    facts = {"domain": "research", "complexity_score": 0.5, "subordinate_profile": "researcher"}
    trajectories_write(
        owner_of(run),
        [
            Trajectory(RolloutKey(0, 0, 0), "1 + 1?", [thinks], evidence=facts, policy_version="p-3"),
            Trajectory(RolloutKey(0, 0, 1), "1 + 1?", []),
        ],
    )
    payloads = outgoing_payloads()
    assert faults({TRAJECTORY: payloads[TRAJECTORY]}) == []
    known, unknown = sorted(payloads[TRAJECTORY], key=lambda one: one["metadata"]["temperature"] is None)
    assert known["metadata"] | {"model": ""} == {
        "model": "", "temperature": 0.3, "total_tokens": 0, "total_cost_usd": 0.0, "model_version": "p-3",
    }  # fmt: skip
    assert (known["task_context"]["domain"], known["task_context"]["complexity_score"]) == ("research", 0.5)
    assert known["subordinate_profile"] == "researcher"
    assert known["turns"][0]["thought_process"] == ["I add."]
    assert (unknown["task_context"]["domain"], unknown["task_context"]["complexity_score"]) == (None, None)
    assert (unknown["metadata"]["model_version"], unknown["subordinate_profile"]) == (None, None)


def test_the_parts_of_a_shaped_reward_have_their_true_weights(operator: Actor, published: Organization) -> None:
    run = queued_run(operator, factories.AgentFactory(organization=published))
    shaping = run.configuration.shaping
    parts = {"tool": 2 * 0.1, "verify": 0.05, "step": 3 * -0.01, "outcome": 1.0, "wrong_answer": 0.0}
    run.config = run.config | {
        "shaping": shaping.model_dump() | {"tool": 0.1, "verify": 0.05, "step": -0.01, "wrong_answer": -0.2}
    }
    run.save()
    played = Trajectory(RolloutKey(0, 0, 0), "1 + 1?", [], components=parts, reward=sum(parts.values()))
    trajectories_write(owner_of(run), [played])
    [reward] = outgoing_payloads()[REWARD]
    assert faults({REWARD: [reward]}) == []
    values = {name: (part["score"], part["weight"]) for name, part in reward["reward_components"].items()}
    assert values == {
        "tool": (2.0, 0.1), "verify": (1.0, 0.05), "step": (3.0, -0.01), "outcome": (1.0, 1.0),
        "wrong_answer": (0.0, -0.2),
    }  # fmt: skip
    total = sum(score * weight for score, weight in values.values())
    assert total == pytest.approx(reward["total_reward"], abs=1e-9)


def test_accounts_of_rewards() -> None:
    alone = account_of({"outcome": 0.5}, {}, {})
    assert [(one.name, one.weight) for one in alone.parts] == [("outcome", 1.0)] and alone.confidence is None
    sums = account_of({"a": 0.5, "b": 0.25, "c": "x"}, {}, {})
    assert [(one.name, one.score, one.weight) for one in sums.parts] == [("a", 0.5, None), ("b", 0.25, None)]
    verdict = {"verdict": {"judge": {"reason": "Polite."}}, "reward": {"name": "judge", "scores": [0.6, 0.9]}}
    judged = account_of({"judge": 0.75}, verdict, {})
    assert (judged.parts[0].reasoning, judged.parts[0].source, judged.confidence) == ("Polite.", "judge", 0.7)
    assert account_of({"judge": 0.75}, {"reward": {"scores": [0.6]}}, {}).confidence is None
    raw = {"completion": 0.5, "efficiency": 0.75, "code_quality": 0.8, "feedback": 0.2}
    how = {
        "name": "composite", "raw": raw, "weights": dict.fromkeys(raw, 0.25), "normalised": dict.fromkeys(raw, 1.5),
        "measured": dict.fromkeys(raw, True), "turns": 5.0, "tokens": 320.0, "usual": {"turns": 7.0},
    }  # fmt: skip
    evidence = {
        "reward": how, "scorer": "exact", "feedback": {"implicit": "correction"},
        "code_quality": {"lint": 0.9, "tests_passed": 7, "tests_total": 8, "linter_score": 8.5, "critical_issues": 0},
    }  # fmt: skip
    composite = account_of({"completion": 0.375}, evidence, {})
    assert {one.name: (one.source, one.reasoning) for one in composite.parts} == {
        "task_completion": ("automated", "the environment's score is 0.5 (exact)"),
        "efficiency": ("automated", "5 turns (average 7), 320 tokens"),
        "code_quality": (
            "linter",
            "lint 0.9, linter score 8.5/10, 7 of 8 tests passed, 0 critical issues",
        ),
        "user_feedback": ("rule", "the user asked for a correction"),
    }
    assert composite.confidence == 1.0 and composite.parts[0].payload()["normalized"] == 1.5


def test_encrypted_answers_are_published_as_they_were_and_empty_ones_not_at_all(adam: Any, agent: Agent) -> None:
    data_keys.forget()
    key_rotate(Actor(adam), agent.organization)
    traces = [answered(agent), answered(agent, request={}, response={})]  # sealed, {} is no {} for a trigger
    traces_score([trace.pk for trace in traces])
    payloads = outgoing_payloads()
    assert [one["trajectory_id"] for one in payloads[TRAJECTORY]] == [str(traces[0].pk)]
    assert payloads[TRAJECTORY][0]["task_context"]["instructions"] == "Where is my order?"
    assert [one["trajectory_id"] for one in payloads[REWARD]] == [str(traces[0].pk)]
    data_keys.forget()
