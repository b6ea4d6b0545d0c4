"""A reward tried over REST before a job is paid for it: what it says, what it hides, who may."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from django.db.models import F

from agentcore_site.tenancy.actors import Actor
from experiences.models import TrajectoryRecord
from experiences.rollouts.rewards import Payment, rewards
from experiences.rollouts.rewards.trial import summary, tried
from experiences.rollouts.types import RolloutKey, Trajectory
from experiences.trajectories.exports.rows import as_exported
from experiences.trajectories.services.rewards import MAX_TRIED, reward_try, without_texts
from experiences.trajectories.storage import TrajectoryScope, trajectories_write
from tests.support.callers import Caller
from tests.support.rows import owner_of
from training.models import TrainingRun

pytestmark = pytest.mark.django_db


def validated(api: Caller, reward: str, **options: Any) -> dict[str, Any]:
    response = api.post("rewards/validate", {"reward": reward, "options": options})
    assert response.status_code == 200, response.content
    body: dict[str, Any] = response.json()
    return body


def ran(api: Caller, **body: Any) -> dict[str, Any]:
    response = api.post("rewards/run", body)
    assert response.status_code == 200, response.content
    answer: dict[str, Any] = response.json()
    return answer


# -- validate ----------------------------------------------------------------------------------------------------------


def test_the_rewards_are_listed_with_their_options(api: Caller) -> None:
    listed = {one["name"]: one for one in api.get("rewards").json()}
    assert {"composite", "ground_truth", "outcome", "relative_rank", "shaped"} <= set(listed)
    assert {"completion", "efficiency", "code_quality", "feedback"} <= set(listed["composite"]["options"])


@pytest.mark.parametrize(
    ("reward", "options"),
    [
        ("composite", {"feedback": 0.5, "window": 500}),
        ("relative_rank", {"by": "reward", "of": "shaped", "of_options": {"tool": 0}}),
        ("outcome", {}),
    ],
)
def test_check_says_that_a_reward_is_right(api: Caller, reward: str, options: dict[str, Any]) -> None:
    assert validated(api, reward, **options) == {"ok": True, "messages": []}


@pytest.mark.parametrize(
    ("reward", "options", "fields"),
    [
        ("praise", {}, {"reward"}),
        ("composite", {"feedback": "much"}, {"options.feedback"}),
        (
            "composite",
            {"feedback": -1, "completion": 99, "efficiency": 0.1},
            {"options.feedback", "options.completion"},
        ),
        ("composite", {"fedback": 1}, {"options.fedback"}),
        ("composite", {"completion": 0, "efficiency": 0, "code_quality": 0, "feedback": 0}, {"options.completion"}),
        ("relative_rank", {"by": "reward", "of": "praise"}, {"options.of"}),
        (
            "relative_rank",
            {"by": "reward", "of": "shaped", "of_options": {"x": 1}, "margin": "no"},
            {"options.margin", "options.of_options"},
        ),
        ("relative_rank", {"by": "reward", "of": "shaped", "of_options": {"rule": 1}}, {"options.of_options"}),
    ],
)
def test_trial_says_what_is_wrong_by_field(api: Caller, reward: str, options: dict[str, Any], fields: set[str]) -> None:
    answer = validated(api, reward, **options)
    assert answer["ok"] is False
    assert {one["field"] for one in answer["messages"]} == fields
    assert all(one["message"] for one in answer["messages"])


def test_a_body_that_is_no_question_is_refused(api: Caller) -> None:
    assert api.post("rewards/validate", {}).status_code == 400
    assert api.post("rewards/validate", {"reward": "outcome", "option": {}}).status_code == 400
    assert api.post("rewards/validate", {"reward": "outcome", "options": [1]}).status_code == 400


# -- run ---------------------------------------------------------------------------------------------------------------


def test_trial_scores_the_trajectories_of_a_job_again(api: Caller, run: TrainingRun) -> None:
    """24 trajectories, every second one a success; paid 1.1 and -0.1 when they were lived."""
    answer = ran(api, reward="outcome", job=str(run.job_id))
    assert answer["summary"] == {
        "n": 24, "mean": 0.5, "std": 0.5, "mean_before": pytest.approx(0.5), "unscored": 0, "correlation": 1.0,
    }  # fmt: skip
    assert len(answer["trajectories"]) == 24
    for one in answer["trajectories"]:
        assert one["reward"] == float(one["success"])
        assert one["previous_reward"] == (1.1 if one["success"] else -0.1)
        assert one["components"] == {"outcome": one["reward"]}
    assert not TrajectoryRecord.objects.filter(job_id=run.job_id, components__has_key="ground_truth").exists()


def test_options_change_the_amount_of_a_reward(api: Caller, run: TrainingRun) -> None:
    answer = ran(api, reward="shaped", options={"tool": 0.0, "step": -0.05}, job=str(run.job_id), limit=4)
    assert {one["reward"] for one in answer["trajectories"]} == {0.9, -0.1}


def test_groups_are_ranked_and_composite_scales_move(api: Caller, run: TrainingRun) -> None:
    ranks = ran(api, reward="relative_rank", job=str(run.job_id))
    assert sorted({one["reward"] for one in ranks["trajectories"]}) == pytest.approx([1 / 6, 5 / 6])
    assert {one["evidence"]["cohort"] for one in ranks["trajectories"]} == {4}
    composite = ran(api, reward="composite", job=str(run.job_id))
    assert {one["evidence"]["observed"]["completion"] for one in composite["trajectories"]} == {0, 12}
    assert composite["summary"]["correlation"] == pytest.approx(1.0)


def test_the_stored_reward_is_the_one_learned_from(api: Caller, run: TrainingRun) -> None:
    rows = list(TrajectoryRecord.objects.filter(job_id=run.job_id, reward__isnull=False)[:2])
    changed = {str(row.id): paid for row, paid in zip(rows, (9.0, None), strict=True)}
    for name, paid in changed.items():  # as a group's payment does
        TrajectoryRecord.objects.filter(id=name).update(reward=paid, reward_before_ranking=F("reward"))
    found = ran(api, reward="outcome", job=str(run.job_id))["trajectories"]
    assert {one["trajectory_id"]: one["previous_reward"] for one in found if one["trajectory_id"] in changed} == changed


def test_an_agents_training_may_be_taken(api: Caller, run: TrainingRun) -> None:
    answer = ran(api, reward="ground_truth", agent=run.agent.slug, limit=5)
    assert answer["summary"]["n"] == 5
    assert ran(api, reward="outcome", agent=str(run.agent_id))["summary"]["n"] == 24


def test_a_job_without_trajectories_has_nothing_to_say(api: Caller, run: TrainingRun) -> None:
    empty = TrajectoryRecord.objects.none()
    assert not empty and summary([]).n == 0
    answer = reward_try(Actor(run.job.created_by), reward="outcome", options={}, job=run.job_id, limit=1)
    assert answer["summary"]["n"] == 1 and answer["summary"]["correlation"] is None


def test_no_text_of_a_trajectory_is_given_out(api: Caller, run: TrainingRun) -> None:
    owner = owner_of(run)
    secret = Trajectory(
        RolloutKey(90, 0, 0),
        "Zanzibar",
        [],
        outcome=0.5,
        evidence={
            "answer": "Zanzibar",
            "expected": {"Zanzibar": "Zanzibar"},
            "scorer": "exact",
            "task_type": "Zanzibar",
        },
        started_at=1_760_000_000.0,
    )
    trajectories_write(TrajectoryScope(owner.job_id, owner.organization_id, owner.agent_id, owner.month), [secret])
    for reward in ("ground_truth", "composite", "relative_rank"):
        answer = ran(api, reward=reward, job=str(run.job_id), limit=1)
        assert answer["summary"]["n"] == 1
        assert "Zanzibar" not in json.dumps(answer)
    assert ran(api, reward="ground_truth", job=str(run.job_id), limit=1)["trajectories"][0]["evidence"]["score"] == 0.5


def test_evidence_is_numbers() -> None:
    hostile = {
        "name": "x",
        "by": 3,
        "score": math.nan,
        "text": "t",
        "more": {"n": 1, "t": "t"},
        "list": [1],
        5: 10**400,
    }
    assert without_texts(hostile) == {
        "name": "x", "by": 3.0, "score": None, "more": {"n": 1.0}, "list": None, "5": None,
    }  # fmt: skip
    deep: Any = {"n": 1}
    for _ in range(50):
        deep = {"in": deep}
    assert json.dumps(without_texts(deep)).count("in") == 6


def test_a_reward_that_raises_is_shown_and_not_an_error_of_ours(
    api: Caller, run: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def angry(trajectory: Trajectory) -> Payment:
        if trajectory.success:
            raise KeyError("my_field")
        return Payment.at_the_end(trajectory, {"a": 2.0})

    class Factory:
        description = "Angry."
        option_help: dict[str, str] = {}

        def __call__(self, options: Any) -> Any:
            return angry

    monkeypatch.setitem(rewards._items, "angry", Factory())
    answer = ran(api, reward="angry", job=str(run.job_id))
    assert answer["summary"]["unscored"] == 0.5 and answer["summary"]["mean"] == 2.0
    failed = [one for one in answer["trajectories"] if one["error"]]
    assert len(failed) == 12
    assert {(one["error"], one["reward"]) for one in failed} == {("reward: KeyError: 'my_field'", None)}


def test_stored_trajectories_stay_unchanged() -> None:
    one = Trajectory(RolloutKey(0, 0, 0), "q", [], outcome=1.0, error="reward: ValueError: then", evidence={"a": 1})
    [paid] = tried(rewards.get("ground_truth")({}), [("id", ("job",), one)])
    assert (paid.paid.reward, paid.paid.error) == (1.0, "")
    assert one.error and math.isnan(one.reward) and one.evidence == {"a": 1}


@pytest.mark.parametrize(
    "body",
    [
        {"reward": "outcome"},
        {"reward": "outcome", "job": "0199f1f3-0c4e-7a51-8d7a-1b2c3d4e5f60", "agent": "a"},
        {"reward": "outcome", "agent": "x", "limit": MAX_TRIED + 1},
        {"reward": "outcome", "agent": "x", "limit": 0},
        {"reward": "outcome", "job": "7"},
    ],
    ids=str,
)
def test_a_request_that_can_not_be_answered_is_refused(api: Caller, body: dict[str, Any]) -> None:
    assert api.post("rewards/run", body).status_code == 400


def step(kind: str, tool: str = "") -> dict[str, Any]:
    return {"action": {"type": kind, "tool": tool, "parameters": {}}, "result": {"success": True, "output": "4"}}


SAMPLES = [
    {"query": "2 + 2", "success": True, "steps": [step("answer")]},
    {"query": "2 + 2", "outcome": 0.5, "steps": [step("tool", "calc"), step("answer")], "rollout": 7},
    {"query": "2 + 2", "success": False, "error": "timeout: over 300 s"},
]


def test_samples_are_paid_before_any_agent_has_lived(api: Caller) -> None:
    result = ran(api, reward="outcome", samples=SAMPLES)
    assert [one["reward"] for one in result["trajectories"]] == [1.0, 0.5, -1.0]
    assert [(one["sample"], one["trajectory_id"]) for one in result["trajectories"]] == [
        (1, None),
        (2, None),
        (3, None),
    ]
    assert result["summary"]["n"] == 3
    ranked = ran(api, reward="relative_rank", options={"by": "steps", "success_first": False}, samples=SAMPLES[:2])
    first, second = (one["reward"] for one in ranked["trajectories"])
    assert first > second  # they are a group: the one with fewer steps comes first


def test_an_export_can_be_tried_without_a_change(api: Caller, run: TrainingRun) -> None:
    rows = TrajectoryRecord.objects.filter(job_id=run.job_id)[:20]
    lines = [json.dumps(one, default=str) for one in as_exported(list(rows))]
    samples = [json.loads(line) for line in lines]
    result = ran(api, reward="outcome", samples=samples)
    assert [one["reward"] for one in result["trajectories"]] == [float(one["outcome"]) for one in samples]


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([], "between 1 and"),
        ([7], "sample 1 is no object"),
        ([{"success": "yes"}], "success is true or false"),
        ([{"outcome": 2}], "between 0 and 1"),
        ([{"outcome": True}], "outcome is a number"),
        ([{"success": True}, {"steps": [{"action": []}]}], "sample 2, step 1: action is an object"),
        ([{"steps": "many"}], "steps is a list"),
        ([{"evidence": []}], "evidence is an object"),
    ],
)
def test_a_sample_that_is_none_is_refused_with_its_place(api: Caller, samples: list[Any], said: str) -> None:
    response = api.post("rewards/run", {"reward": "outcome", "samples": samples})
    assert response.status_code == 400 and said in response.content.decode()


def test_samples_cost_no_call_of_a_judge(api: Caller) -> None:
    response = api.post("rewards/run", {"reward": "judge", "options": {"rubric": "10: short."}, "samples": SAMPLES})
    assert response.status_code == 400 and "paid by an agent" in response.content.decode()


def test_wrong_options_are_refused_before_anything_is_read(api: Caller, run: TrainingRun) -> None:
    response = api.post("rewards/run", {"reward": "composite", "options": {"x": 1}, "job": str(run.job_id)})
    assert response.status_code == 400 and "options.x" in response.content.decode()
    assert api.post("rewards/run", {"reward": "praise", "job": str(run.job_id)}).status_code == 400


def test_strangers_find_nothing_and_who_works_with_trajectories_may_try(
    run: TrainingRun, charlie: Any, stella: Any, dan: Any
) -> None:
    for source in ({"job": str(run.job_id)}, {"agent": run.agent.slug}, {"agent": str(run.agent_id)}):
        assert Caller(charlie).post("rewards/run", {"reward": "outcome", **source}).status_code == 404
        assert Caller(stella).post("rewards/run", {"reward": "outcome", **source}).status_code == 403
        assert Caller(dan).post("rewards/run", {"reward": "outcome", **source}).status_code == 200
    assert Caller().post("rewards/run", {"reward": "outcome", "job": str(run.job_id)}).status_code == 401
    assert Caller().post("rewards/validate", {"reward": "outcome"}).status_code == 401
