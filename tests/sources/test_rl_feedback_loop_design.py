"""The feedback loop's design: its payloads and commands word for word, its REST, its formulas, and its field names.

The design's blocks are unchanged in the folder beside this file. A value such as ``"dense|sparse"`` lists choices:
unresolved it is refused, with the reason, and each choice is taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from django.utils import timezone

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from evaluation.events.intake.messages import StoredMessage, block_take
from evaluation.events.models import (
    DeadLetter,
    EventPublisher,
    OutboxEvent,
    ReceivedReward,
    TrainingRequest,
)
from evaluation.events.payloads.timestamps import read
from evaluation.events.schemas import fault_of
from evaluation.events.subjects import DEPLOYED, REQUEST, REWARD, STATUS, TRAJECTORY
from evaluation.serving.deployments.services import deployment_start, serving_change
from evaluation.serving.feedback.scoring import traces_score
from evaluation.serving.feedback.services import feedback_give
from evaluation.serving.gate.verdict import GateRule
from evaluation.serving.releases.services import release_make
from experiences.models import Agent
from experiences.rollouts.rewards import pay, rewards
from experiences.rollouts.rewards.composite import WEIGHTS
from experiences.rollouts.types import RolloutKey, Step, Trajectory
from tests import factories
from tests.evaluation.events.test_production_events import answered
from tests.support.callers import Caller
from tests.support.events import outgoing_payloads
from tests.support.rows import queued_run

FOLDER = Path(__file__).parent / "rl_feedback_loop_design"
DESIGN = {path.stem: path.read_text("utf-8") for path in FOLDER.iterdir()}
PAYLOADS = {subject: json.loads(DESIGN[subject]) for subject in (TRAJECTORY, REWARD, REQUEST, STATUS, DEPLOYED)}


def resolved(value: Any, choice: int = 0) -> Any:
    """The payload with one of the choices in the place of each list of them."""
    if isinstance(value, dict):
        return {name: resolved(one, choice) for name, one in value.items()}
    if isinstance(value, list):
        return [resolved(one, choice) for one in value]
    if isinstance(value, str) and "|" in value:
        choices = value.split("|")
        found = choices[choice % len(choices)]
        return None if found == "null" else found
    return value


def names(value: Any, inside: str = "") -> Iterator[str]:
    """Dotted names of all fields, of each turn and component once. Free objects (arguments, context) end a name."""
    for name, one in value.items():
        free = inside == "reward_components."
        path = f"{inside}{'*' if free else name}"
        yield path
        rows = one if isinstance(one, list) else [one]
        for row in rows:
            if isinstance(row, Mapping) and name not in ("tool_args", "context", "benchmark_scores"):
                yield from names(row, f"{path}.")


def differing(ours: dict[str, Any], subject: str) -> tuple[set[str], set[str]]:
    """Names that only the design has, and those that only we have."""
    theirs, mine = set(names(PAYLOADS[subject])), set(names(ours))
    return theirs - mine, mine - theirs


@pytest.fixture
def agent(acme: Organization, olivia: Any) -> Agent:
    EventPublisher.objects.create(organization=acme)
    made: Agent = factories.AgentFactory(
        organization=acme, created_by=olivia, slug="agent-zero-main", runtime="llm", environment="dataset"
    )
    return made


def sent(agent: Agent, olivia: Any, subject: str, *bodies: Any) -> list[str]:
    """The outcome of each message of a service of the organisation: "" if it was taken, else the reason."""
    credential = factories.EventCredentialFactory(agent=None, organization=agent.organization, created_by=olivia)
    name = f"received.{agent.organization_id}.{credential.pk}.{subject}"
    known = OutboxEvent.objects.count() + DeadLetter.objects.count() + 1
    messages = [
        StoredMessage(name, body.encode() if isinstance(body, str) else json.dumps(body).encode(), "S", known + n,
                      timezone.now())
        for n, body in enumerate(bodies)
    ]  # fmt: skip
    outcomes = block_take(messages)
    assert not any(isinstance(one, Exception) for one in outcomes), outcomes
    return ["" if one is None else one.reason for one in outcomes if one is None or isinstance(one, DeadLetter)]


@pytest.mark.django_db
def test_unresolved_placeholders_are_refused_with_the_field(agent: Agent, olivia: Any) -> None:
    expected = {
        TRAJECTORY: "turns.0.observation.type", REWARD: "reward_type", REQUEST: "trigger_reason", STATUS: "status",
    }  # fmt: skip
    for subject, place in expected.items():
        assert sent(agent, olivia, subject, DESIGN[subject]) == ["schema"]
        assert DeadLetter.objects.filter(detail__contains="is not one of").latest("created_at").detail.startswith(place)


@pytest.mark.django_db
def test_each_choice_of_a_trajectory_is_taken_and_goes_on_unchanged(agent: Agent, olivia: Any) -> None:
    given = [resolved(PAYLOADS[TRAJECTORY], choice) | {"trajectory_id": f"t-{choice}"} for choice in range(4)]
    assert sent(agent, olivia, TRAJECTORY, *given) == [""] * 4
    values = {one["trajectory_id"]: one for one in outgoing_payloads()[TRAJECTORY]}
    for payload in given:
        out = values[payload["trajectory_id"]]
        for one in (payload, out, *payload["turns"], *out["turns"]):
            for moment in ("timestamp", "start_timestamp", "end_timestamp"):
                if moment in one:
                    one[moment] = read(one[moment])
        if payload["turns"][0]["action"]["type"] == "response":  # which calls no tool
            payload["turns"][0]["action"] |= {"tool_name": None, "tool_args": {}}
        assert out == payload


@pytest.mark.django_db
def test_each_choice_of_a_reward_is_taken_and_goes_on_unchanged(agent: Agent, olivia: Any) -> None:
    trajectory = resolved(PAYLOADS[TRAJECTORY]) | {"trajectory_id": "matching-trajectory-uuid"}
    given = [resolved(PAYLOADS[REWARD], choice) | {"reward_id": f"r-{choice}"} for choice in range(2)]
    assert sent(agent, olivia, REWARD, *given) == ["", ""]
    assert sent(agent, olivia, TRAJECTORY, trajectory) == [""]
    assert sorted(outgoing_payloads()[REWARD], key=lambda one: one["reward_id"]) == given
    assert ReceivedReward.objects.get(applied=True).total == 0.8625


@pytest.mark.django_db
def test_each_algorithm_of_a_request_is_handed_over_and_its_status_followed(agent: Agent, olivia: Any) -> None:
    for choice, algorithm in enumerate(("ppo", "dpo", "rloo", "grpo")):
        payload = resolved(PAYLOADS[REQUEST], choice) | {"training_job_id": f"job-{choice}"}
        assert sent(agent, olivia, REQUEST, payload) == [""]
        row = TrainingRequest.objects.get(training_job_id=f"job-{choice}")
        assert (row.algorithm, row.mode, row.request) == (algorithm, "elsewhere", payload)
    for choice in range(5):
        report = resolved(PAYLOADS[STATUS], choice) | {"training_job_id": f"job-{choice % 4}"}
        assert sent(agent, olivia, STATUS, report) == [""], report["status"]
    row = TrainingRequest.objects.get(training_job_id="job-1")
    assert row.report["artifacts"] == PAYLOADS[STATUS]["artifacts"]
    assert row.report["resource_usage"]["cost_usd"] == 45.30


@pytest.mark.django_db
def test_rest_answers_the_designs_four_addresses(agent: Agent, olivia: Any, operator: Actor) -> None:
    rest = Caller(olivia)
    payload = resolved(PAYLOADS[REQUEST])
    made = rest.post("training/start", payload)
    assert (made.status_code, made.json()["training_job_id"]) == (201, "uuid-v4")
    status = rest.get("training/uuid-v4/status")
    assert (status.status_code, status.json()["status"]) == (200, "queued")
    assert fault_of(STATUS, status.json()) == ""
    assert rest.post("training/uuid-v4/cancel", {}).json()["status"] == "cancelled"
    release_make(operator, agent)
    [model] = rest.get("models").json()["results"]
    assert (model["model_id"], model["checkpoint_path"]) == ("agent-zero-main-1", None)
    assert rest.post("training/start", PAYLOADS[REQUEST]).status_code == 400


@pytest.mark.django_db
def test_the_appendix_commands_are_taken_word_for_word(agent: Agent, olivia: Any, settings: Any) -> None:
    settings.NATS_ORGANIZATION = agent.organization.slug
    EventPublisher.objects.update(created_by=olivia)
    bodies = [(REWARD, DESIGN["nats-pub-reward"]), (REQUEST, DESIGN["nats-pub-request"])]
    messages = [
        StoredMessage(subject, body.encode(), "S", n, timezone.now()) for n, (subject, body) in enumerate(bodies)
    ]
    assert block_take(messages) == [None, None]
    assert ReceivedReward.objects.get(reward_id="test-123").total == 0.92
    assert TrainingRequest.objects.get(training_job_id="job-001").algorithm == "ppo"


@pytest.mark.django_db
def test_a_deployment_of_others_is_refused_and_the_designs_payload_is_valid(agent: Agent, olivia: Any) -> None:
    for choice in range(3):
        assert fault_of(DEPLOYED, resolved(PAYLOADS[DEPLOYED], choice)) == ""
    assert sent(agent, olivia, DEPLOYED, resolved(PAYLOADS[DEPLOYED])) == ["refused"]


@pytest.mark.django_db
def test_our_own_messages_have_the_designs_names_and_named_additions(operator: Actor, agent: Agent) -> None:
    trace = answered(agent)
    traces_score([trace.pk])
    feedback_give(operator, trace, metric="thumbs", value="up")
    queued_run(operator, factories.AgentFactory(organization=agent.organization))
    serving_change(operator, agent, fallbacks=[], while_away_usd=0, gate=GateRule(safety=False))
    deployment_start(operator, release_make(operator, agent), strategy="immediate")
    payloads = outgoing_payloads()
    assert differing(payloads[TRAJECTORY][0], TRAJECTORY) == (set(), {"metadata.model_version"})
    assert differing(payloads[REWARD][-1], REWARD) == (set(), {"reward_components.*.normalized"})
    assert payloads[REWARD][-1]["reward_components"].keys() < PAYLOADS[REWARD]["reward_components"].keys()
    nulls = {"metrics.best.", "evaluation_results.", "error."}  # null until there is one
    only_theirs, only_ours = differing(payloads[STATUS][0], STATUS)
    assert {one for one in only_theirs if not one.startswith(tuple(nulls))} == set()
    assert only_ours == {"metadata.status_reason"}
    assert differing(payloads[DEPLOYED][0], DEPLOYED) == (set(), {"metadata.step"})


# -- formulas ----------------------------------------------------------------------------------------------------------


def theirs_and_ours(rng: np.random.Generator) -> tuple[Any, Trajectory]:
    """The same rollout in the design's form and in ours."""
    share = float(rng.choice([0.0, 0.25, 0.5, 1.0]))
    turns = int(rng.integers(1, 9))
    evidence: dict[str, Any] = {"task_type": "sums"}
    code = rng.random() < 0.7
    linter = SimpleNamespace(score=float(rng.integers(0, 101)) / 10) if rng.random() < 0.6 else None
    tests = SimpleNamespace(passed=int(rng.integers(0, 5)), total=4) if rng.random() < 0.6 else None
    scan = SimpleNamespace(critical_issues=int(rng.integers(0, 4))) if rng.random() < 0.6 else None
    if code:
        quality = evidence["code_quality"] = {}
        quality |= {} if linter is None else {"linter_score": linter.score}
        quality |= {} if tests is None else {"tests_passed": tests.passed, "tests_total": tests.total}
        quality |= {} if scan is None else {"critical_issues": scan.critical_issues}
    result = str(rng.choice(["thumbs_up", "thumbs_down", "rating", "correction", "abandoned", "none"]))
    rating = int(rng.integers(1, 6))
    spoken = result in ("thumbs_up", "thumbs_down", "rating")
    known = {"thumbs_up": {"thumbs": "up"}, "thumbs_down": {"thumbs": "down"}, "rating": {"stars": rating}}
    evidence["feedback"] = known.get(result, {"implicit": result})
    status = "completed_successfully" if share == 1 else "partial_completion" if share else "failed"
    theirs = SimpleNamespace(
        task_status=status,
        completion_percentage=share,
        turns=[None] * turns,
        task_type="sums",
        contains_code=code,
        linter_results=linter,
        test_results=tests,
        security_scan=scan,
        user_feedback=SimpleNamespace(type=result, rating=rating) if spoken else None,
        correction_requested=result == "correction",
        task_abandoned=result == "abandoned",
    )
    steps = [Step({}, {"type": "tool", "tool": "t"}, {"success": True}) for _ in range(turns)]
    ours = Trajectory(RolloutKey(0, 0, 0), "q", steps, success=share == 1, outcome=share, evidence=evidence)
    return theirs, ours


def test_the_reward_by_the_designs_formulas_is_that_of_its_own_code() -> None:
    """1,300 rollouts teach both; 300 further ones are paid by both: components, z-scores and total are equal."""
    rng = np.random.default_rng(20251208)
    reward: Any = rewards.get("composite")({"formulas": "feedback_loop"})
    history: dict[str, list[float]] = {name: [] for name in PAYLOADS[REWARD]["reward_components"]}
    ours_by_theirs = {
        "task_completion": "completion", "efficiency": "efficiency", "code_quality": "code_quality",
        "user_feedback": "feedback",
    }  # fmt: skip
    turns: list[int] = []
    for n in (100, 1_200):  # efficiency has no average before there was an iteration
        earlier = [theirs_and_ours(rng)[1] for _ in range(n)]
        for ours in earlier:
            pay(reward, ours)
            turns.append(len(ours.steps))
            for name, mine in ours_by_theirs.items():
                if (value := ours.evidence["reward"]["raw"][mine]) is not None:
                    history[name].append(value)
        reward.learn(earlier)
    turns = turns[-1_000:]
    stats = {"sums": SimpleNamespace(mean_turns=float(np.mean(turns)), std_turns=float(np.std(turns)))}
    code: dict[str, Any] = {"np": np, "task_stats": stats}  # a global in the design
    exec(DESIGN["formulas"], code)
    weights = {name: WEIGHTS[mine] for name, mine in ours_by_theirs.items()}
    assert weights == {name: part["weight"] for name, part in PAYLOADS[REWARD]["reward_components"].items()}
    for _ in range(300):
        theirs, ours = theirs_and_ours(rng)
        expected = code["compute_total_reward"](theirs, history, weights)
        pay(reward, ours)
        kept = ours.evidence["reward"]
        for name, mine in ours_by_theirs.items():
            assert kept["raw"][mine] == (None if (one := expected["components"][name]) is None else pytest.approx(one))
            assert kept["normalised"][mine] == pytest.approx(expected["normalized"][name], abs=1e-9)
        assert ours.reward == pytest.approx(expected["total_reward"], abs=1e-9)
