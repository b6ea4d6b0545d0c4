"""Demo of the learning loop with simulated users: an agent improves by its own production traces, and a worse release
is rolled back. It uses the public interfaces: the gateway, REST, services and their jobs."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from agentcore_site.lib.http_client import HttpFailed, http_client_of
from agentcore_site.lib.money import dollars
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.services import api_key_create
from evaluation.serving.deployments.rules import DeploymentRule, Stage
from evaluation.serving.deployments.services import deployment_start
from evaluation.serving.loop.presenters import sentence_of_turn
from evaluation.serving.loop.services import loop_change
from evaluation.serving.models import (
    Deployment,
    DeploymentState,
    LoopTurn,
    ProductionTrace,
    Release,
    RowReview,
    TurnState,
)
from evaluation.serving.releases.services import release_make
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent
from experiences.models.trajectories import DatasetOrigin
from experiences.rollouts.environments import environments
from experiences.rollouts.environments.reasoning_gym import ReasoningGymEnvironment
from experiences.rollouts.types import Scenario
from training.management.follow_job import follow
from training.models import PolicyCheckpoint, TrainingRun
from training.services.runs import run_start

FAMILIES: Final = ("gcd", "lcm", "base_conversion", "simple_equations", "letter_counting", "number_sorting")
OPTIONS: Final = {
    "tools": ["gcd", "lcm", "convert_base", "solve_linear", "count_letter", "sort_numbers", "int_calc"],
    "timeout_rate": 0.02,
    "corruption_rate": 0.02,
}
USERS: Final = 6
QUESTIONS: Final = 240  # traces with feedback that start a turn
PAUSE: Final = 0.25  # seconds between a user's questions
FEEDBACK_MINUTES: Final = 0.05  # users give feedback at once
BEGINS: Final = {"n_iterations": 1, "early_stopping": {"enabled": False}, "seed": 1}
LEARNS: Final = {"n_iterations": 160, "early_stopping": {"enabled": False}, "eval_interval": 40}
# A few hundred questions can't show non-inferiority by five points; they can show it by thirty.
CANARY: Final = DeploymentRule((Stage(0.25, 0.0, 15), Stage(0.5, 0.0, 15)), FEEDBACK_MINUTES, margin=0.3)
WATCHED: Final = DeploymentRule((Stage(0.25, 60.0, 10_000),), FEEDBACK_MINUTES)
LONGEST: Final = 120.0  # seconds that a step may take

Found = TypeVar("Found")


class LoopFailed(Exception):
    """A step of the loop did not end as expected."""


@dataclass
class GatewayCaller:
    """A program that calls the site's gateway with a key of its own."""

    url: str
    key: str
    model: str

    def post(self, path: str, body: dict[str, Any]) -> tuple[Any, Any]:
        """The answer with its headers. Raises OSError: the request failed."""
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        site = http_client_of(self.url)
        answer = site.exchange(
            "POST", f"{site.path}{path}", seconds=30, headers=headers, body=json.dumps(body).encode()
        )
        if not 200 <= answer.status < 300:
            raise HttpFailed(f"HTTP {answer.status}")
        return json.loads(answer.body), answer.headers


@dataclass
class Users(GatewayCaller):
    """Simulated users who ask a question, rate the answer, and send a correction of a wrong one."""

    world: ReasoningGymEnvironment
    questions: Iterator[Scenario]
    lately: deque[bool] = field(default_factory=lambda: deque(maxlen=200))
    asked: int = 0
    failed: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def ask(self) -> None:
        with self._guard:
            question = next(self.questions)
            number = self.asked
            self.asked += 1
        body = {"model": self.model, "messages": [{"role": "user", "content": question.query}], "user": f"u{number}"}
        answer, headers = self.post("/v1/chat/completions", body)
        right = self.world.world.score(answer["choices"][0]["message"]["content"], question).success
        feedback: list[dict[str, Any]] = [
            {"metric": "thumbs", "value": "up" if right else "down"},
            {"metric": "success", "value": float(right)},
        ]
        if not right:
            feedback.append({"metric": "correction", "text": str(question.expected["answer"])})
        for one in feedback:
            self.post("/api/v1/feedback", {"trace": headers["x-agentcore-trace-id"], **one})
        self.lately.append(right)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While the block runs, all users ask questions."""
        self._stopping.clear()
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(USERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for one in threads:
                one.join(10)

    def _work(self) -> None:
        while not self._stopping.wait(PAUSE):
            try:
                self.ask()
            except OSError:
                self.failed += 1

    @property
    def content(self) -> float:
        """The share of right answers among the latest ones."""
        return sum(self.lately) / len(self.lately) if self.lately else 0.0


def circle(agent: Agent, url: str, say: Callable[[str], None]) -> dict[str, Any]:
    """One turn, and the rollback of a release that is made bad on purpose. Returns the results.

    Raises:
        LoopFailed: a step did not end in time.
        DomainError: a service refused a step.
    """
    began = time.monotonic()
    actor = Actor(agent.created_by, interface="command")
    world = environments.get("reasoning_gym")({"families": list(FAMILIES)})
    assert isinstance(world, ReasoningGymEnvironment)
    _, key = api_key_create(actor, name="simulated users", scopes=["gateway:call", "feedback:write"], days=1)
    questions = itertools.cycle(world.scenarios("train", 3_000, 0))
    users = Users(url, key, f"agent:{agent.slug}", world, questions)

    say("release 1: the agent as it begins, untrained")
    untrained = _trained(actor, agent, BEGINS, rows=_first_rows(world))
    first = _released(actor, agent, untrained)
    deployment_start(actor, first, strategy="immediate", note="as it begins")
    turn = _first_turn(actor, agent, users)
    before = users.content
    say(f"users asked {users.asked} questions; {before:.0%} of the answers were right")
    turn = _round(turn, users, say)
    loop_change(actor, agent, on=False)
    with users.at_work():
        users.lately.clear()
        _until(lambda: len(users.lately) >= 100, "answers")
    after = users.content
    say(f"now {after:.0%} of the answers are right")

    say("release 3: made worse on purpose, the parameters of the beginning")
    third = _released(actor, agent, untrained)
    bad = _watched(actor, third, users, say)
    return {
        "promoted": turn.state == TurnState.DONE,
        "rolled_back": bad.state == DeploymentState.ROLLED_BACK,
        "gain_points": round(100 * (after - before), 1),
        "requests_to_rollback": bad.observations.filter(new=True).exclude(reward_counted_at=None).count(),
        "requests_of_the_bad_release": bad.observations.filter(new=True).count(),
        "reason": bad.reason,
        "right_before": round(before, 3),
        "right_after": round(after, 3),
        "trigger": turn.trigger,
        "rows": turn.rows_found,
        "turn_cost_usd": dollars(turn.cost_micros),
        "traces": ProductionTrace.objects.filter(agent=agent).count(),
        "failed_requests": users.failed,
        "seconds": round(time.monotonic() - began, 1),
    }


def _first_rows(world: ReasoningGymEnvironment) -> list[dict[str, Any]]:
    """Rows for the first job: a few scenarios of another seed."""
    return [
        {"query": scenario.query, "expected_outcome": {"answer": scenario.expected["answer"]}, "metadata": {}}
        for scenario in world.scenarios("selection", 30, 5)
    ]


def _trained(actor: Actor, agent: Agent, config: Any, *, rows: list[dict[str, Any]]) -> TrainingRun:
    """A completed job on these rows. Raises LoopFailed."""
    dataset = dataset_create(actor, name=f"production of {agent.name}", rows=rows, origin=DatasetOrigin.TRACES)
    run = run_start(actor, agent=agent, dataset=dataset, environment_options=OPTIONS, config=config)
    _followed(run)
    return TrainingRun.objects.get(pk=run.pk)


def _followed(run: TrainingRun) -> None:
    """Raises LoopFailed."""
    result = follow(run.job_id)
    if result["status"] != "completed":
        raise LoopFailed(f"the job ended as {result['status']}")


def _released(actor: Actor, agent: Agent, run: TrainingRun) -> Release:
    checkpoint = run.best_checkpoint or PolicyCheckpoint.objects.filter(run=run).latest("iteration")
    return release_make(actor, agent, checkpoint=checkpoint)


def _first_turn(actor: Actor, agent: Agent, users: Users) -> LoopTurn:
    """Switches the loop on, and waits for the turn that begins by itself. Raises LoopFailed."""
    loop_change(
        actor,
        agent,
        on=True,
        after_traces=QUESTIONS,
        judged_only=True,
        review=RowReview.NONE,
        config=LEARNS,
        environment_options=OPTIONS,
        rule=CANARY.as_json(),
    )
    with users.at_work():
        return _until(lambda: LoopTurn.objects.filter(agent=agent).first(), "a turn that begins by itself")


def _round(turn: LoopTurn, users: Users, say: Callable[[str], None]) -> LoopTurn:
    """Follows a turn to its end; users ask questions during its canary. Raises LoopFailed."""

    def reached(*states: TurnState) -> bool:
        turn.refresh_from_db()
        return turn.state in (*states, TurnState.DONE, TurnState.STOPPED)

    _until(lambda: reached(TurnState.TRAINING), "rows")
    say(f"turn {turn.number} began by itself: {turn.rows_found} rows to learn from, out of thumbs and corrections")
    if turn.run is not None:
        _followed(turn.run)
    _until(lambda: reached(TurnState.DEPLOYING), "the gate")
    if turn.deployment is not None:
        say(f"canary of release {turn.deployment.release.number}: /deployments/{turn.deployment_id}/")
    with users.at_work():
        _until(reached, "the end of the canary")
    say(f"turn {turn.number}: {sentence_of_turn(turn)}")
    return turn


def _watched(actor: Actor, release: Release, users: Users, say: Callable[[str], None]) -> Deployment:
    """A canary with traffic, followed to its end. Raises LoopFailed."""
    deployment = deployment_start(actor, release, strategy="canary", rule=WATCHED)
    say(f"canary of release {release.number}: /deployments/{deployment.pk}/")

    def ended() -> bool:
        deployment.refresh_from_db()
        return not deployment.live

    with users.at_work():
        _until(ended, "the end of the canary")
    say(f"release {release.number}: {deployment.get_state_display().lower()}. {deployment.reason}")
    return deployment


def _until(what: Callable[[], Found | None], why: str) -> Found:
    """The first true value of ``what()``. Raises LoopFailed."""
    deadline = time.monotonic() + LONGEST
    while not (found := what()):
        if time.monotonic() > deadline:
            raise LoopFailed(f"not within {LONGEST:.0f} s: {why}")
        time.sleep(0.2)
    return found
