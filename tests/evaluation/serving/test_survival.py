"""Survival of lessons: paired drop-outs on another model, within a limit, by service, REST and pages."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from django.test import Client

from agentcore_site.jobs.models import Status
from agentcore_site.jobs.services import job_cancel
from agentcore_site.lib.errors import Conflict, Forbidden, Insufficient, Invalid, Missing
from agentcore_site.lib.money import dollars
from agentcore_site.lib.money_format import money
from agentcore_site.tenancy.actors import Actor
from budgets.models import Budget
from budgets.services import budget_set_limit, price_set
from evaluation.serving.models import Release, SurvivalRun
from evaluation.serving.releases.services import release_make
from evaluation.serving.survival.drop_outs import (
    NO_DIFFERENCE,
    TOO_FEW,
    DropOuts,
    PairKey,
    PairResult,
    pairs_planned,
    pairs_until_seen,
    survival_of,
    verdict_of,
)
from evaluation.serving.survival.services import survival_plan, survival_start
from experiences.agents.services.agents import agent_update
from experiences.agents.services.endpoints import endpoint_archive, endpoint_create
from experiences.learning.lessons.library import Lesson
from experiences.models import Agent, TrajectoryRecord
from tests.factories import ExperienceFactory
from tests.support.callers import Caller
from tests.support.llm_server import ModelServer
from tests.support.pages import html
from tests.support.playbooks import PRICE, model_agent
from tests.support.running import run_to_end
from training.models import TrainingRun
from training.policies.served_context import ServedContext
from training.services.pools import run_pools
from training.services.runs import run_start

ROWS = [{"query": f"What is {n} + 4?", "expected_outcome": {"answer": n + 4}} for n in range(60)]
HELPS, TURNS, IDLE = "Check each sum twice.", "Write the carry down.", "Be polite to readers."
CONFIG = {
    "n_iterations": 1,
    "batch_size": 2,
    "n_trajectories_per_query": 2,
    "max_budget_usd": 5.0,
    "eval_samples": 1,
    "context": {"epochs": 1, "accept_weak_gate": True},
}
# Chances of a right sum by model: without lessons, and what each lesson adds there.
CHANCES = {"small": (0.4, {HELPS: 0.3, TURNS: 0.3}), "large": (0.5, {HELPS: 0.45, TURNS: -0.45})}


class TwoModels:
    """Two models that add; a lesson that helps the one may harm the other."""

    def __init__(self) -> None:
        self.rng = random.Random(11)

    def __call__(self, messages: list[dict[str, Any]]) -> str:
        return self.reply({"messages": messages, "model": "small"})

    def reply(self, body: dict[str, Any]) -> str:
        found = re.findall(r"(\d+) \+ (\d+)", str(body["messages"][-1]["content"]))
        if not found:
            return "{}"
        base, effects = CHANCES[body["model"]]
        said = str(body["messages"])
        chance = base + sum(effect for lesson, effect in effects.items() if lesson in said)
        a, b = map(int, found[-1])
        return f"Answer: {a + b if self.rng.random() < chance else a + b + 1}"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(brain=TwoModels(), prices={"small": PRICE, "large": PRICE}) as running:
        yield running


@pytest.fixture
def agent(adam: Any, server: ModelServer) -> Agent:
    boss = Actor(adam)
    made = model_agent(boss, server, "Adder", philosophy="cot", max_tokens=60)
    organization = made.organization
    price_set(boss, model="large", organization=organization, input_micros=PRICE[0], output_micros=PRICE[1])
    for number, text in enumerate((HELPS, TURNS, IDLE)):
        ExperienceFactory(agent=made, handle=f"x000000000{number}", summary=text)
    return made


@pytest.fixture
def run(operator: Actor, agent: Agent) -> TrainingRun:
    """A job whose queries measure the lessons; its own training is not needed."""
    made = run_start(operator, agent=agent, rows=ROWS, config=CONFIG)
    job_cancel(operator, made.job)
    return made


@pytest.fixture
def release(operator: Actor, run: TrainingRun) -> Release:
    return release_make(operator, run.agent)


def outcomes_of(run: SurvivalRun) -> dict[str, str]:
    texts = {lesson["handle"]: lesson["text"] for lesson in run.release.bundle["context"]["lessons"]}
    return {texts[one["handle"]]: one["outcome"] for one in run.report["lessons"]}


@pytest.mark.django_db(transaction=True)
def test_lessons_are_classed_on_the_other_model_and_the_same_request_is_paid_for_once(
    operator: Actor, olivia: Any, stella: Any, charlie: Any, release: Release, server: ModelServer
) -> None:
    caller = Caller(olivia)
    body = {"release": str(release.pk), "model": "large", "max_budget_usd": 2.0, "pairs": 120}
    made = caller.post("survival-runs", body, idempotency_key="k-1")
    assert made.status_code == 201, made.content
    again = caller.post("survival-runs", body)
    assert again.status_code == 200 and again.json()["id"] == made.json()["id"]
    assert caller.post("survival-runs", body, idempotency_key="k-1").json()["id"] == made.json()["id"]
    run = SurvivalRun.objects.select_related("job", "run", "release").get(pk=made.json()["id"])
    before = len(server.requests)
    assert run_to_end(run.job).status == Status.COMPLETED, run.job.error
    run.refresh_from_db()
    assert outcomes_of(run) == {HELPS: "survives", TURNS: "harms", IDLE: "neutral"}
    played = [call.body for call in list(server.requests)[before:]]
    assert len(played) == 240 and {body["model"] for body in played} == {"large"}
    held_out = {scenario.query for scenario in run_pools(run.run).held_out}
    assert held_out and not held_out & {record.query for record in TrajectoryRecord.objects.filter(job_id=run.pk)}
    for lesson in (HELPS, TURNS, IDLE):
        assert sum(lesson in str(body["messages"]) for body in played) == 120
    budget = Budget.objects.get(job_id=run.pk)
    assert run.cost_micros == budget.spent_micros == server.account("large", "sk-test").micros > 0
    assert budget.reserved_micros == 0
    shown = caller.get(f"survival-runs/{run.pk}").json()
    assert [one["outcome"] for one in shown["lessons"]] == ["harms", "survives", "neutral"]
    assert shown["lessons"][0]["text"] == TURNS and shown["lessons"][0]["high"] < 0 < shown["lessons"][1]["low"]
    report = shown["report"]
    assert report["verdict"].startswith("Of 3 lessons on large: 1 survives, 1 harms") and report["pairs"] == 120
    assert (report["before"]["name"], report["model"]["name"]) == ("small", "large")
    assert report["digest"] == release.digest and report["cost_usd"] == dollars(run.cost_micros)
    after = caller.post("survival-runs", body)
    assert after.status_code == 200 and after.json()["id"] == str(run.pk)
    assert caller.get("survival-runs", release=str(release.pk)).json()["results"][0]["id"] == str(run.pk)
    stranger = Caller(charlie)
    assert stranger.get(f"survival-runs/{run.pk}").status_code == 404
    assert stranger.get("survival-runs").json()["results"] == []
    assert stranger.post("survival-runs", body).status_code == 404
    assert Caller(stella).post("survival-runs", body).status_code == 403


@pytest.mark.django_db(transaction=True)
def test_the_limit_holds_and_what_was_played_is_reported(operator: Actor, release: Release) -> None:
    least = dollars(survival_plan(operator, release, model="large", pairs=1).costs.least_micros)
    with pytest.raises(Insufficient, match=r"Give at least \$"):
        survival_start(operator, release, model="large", max_budget_usd=least / 2)
    limit = 2 * least
    run, is_new = survival_start(operator, release, model="large", max_budget_usd=limit, pairs=2_000)
    assert is_new and run_to_end(run.job).status == Status.COMPLETED
    run.refresh_from_db()
    assert run.out_of_money and 1 <= run.played < 2_000 and run.report["out_of_money"]
    assert limit / 2 < dollars(run.cost_micros) <= limit
    assert Budget.objects.get(job_id=run.pk).reserved_micros == 0


@pytest.mark.django_db(transaction=True)
def test_a_cancelled_measurement_ends_and_can_be_asked_for_again(operator: Actor, release: Release) -> None:
    run, _ = survival_start(operator, release, model="large", max_budget_usd=2.0, pairs=20)
    job_cancel(operator, run.job)
    assert run_to_end(run.job).status == Status.CANCELLED
    again, is_new = survival_start(operator, release, model="large", max_budget_usd=2.0, pairs=20)
    assert is_new and again.pk != run.pk


@pytest.mark.django_db(transaction=True)
def test_what_can_not_be_measured_is_refused_with_the_reason(
    operator: Actor, adam: Any, stella: Any, charlie: Any, release: Release, server: ModelServer
) -> None:
    with pytest.raises(Invalid, match="plays on small at of Adder already"):
        survival_start(operator, release, model="small")
    with pytest.raises(Invalid, match="can't be paid for"):
        survival_start(operator, release, model="unknown")
    with pytest.raises(Invalid, match="1 to"):
        survival_start(operator, release, model="large", pairs=0)
    with pytest.raises(Invalid, match="above"):
        survival_start(operator, release, model="large", max_budget_usd=0.0)
    other = endpoint_create(Actor(adam), name="other", base_url=server.base_url, model="large", api_key="sk-other")
    assert survival_plan(operator, release, endpoint=other, pairs=1).bundle.model.endpoint_name == "other"
    endpoint_archive(Actor(adam), other)
    other.refresh_from_db()
    with pytest.raises(Invalid, match="archived"):
        survival_start(operator, release, endpoint=other)
    with pytest.raises(Forbidden):
        survival_start(Actor(stella), release, model="large")
    with pytest.raises(Missing):
        survival_start(Actor(charlie), release, model="large")
    budget_set_limit(Actor(adam), organization=release.organization_id, limit_micros=10)
    with pytest.raises(Insufficient):
        survival_start(operator, release, model="large", max_budget_usd=2.0)


@pytest.mark.django_db(transaction=True)
def test_a_release_without_lessons_has_nothing_to_measure(operator: Actor, adam: Any, agent: Agent) -> None:
    agent.experiences.all().delete()
    agent_update(Actor(adam), agent, system_prompt="You add.")
    with pytest.raises(Conflict, match="has no lessons"):
        survival_start(operator, release_make(operator, agent), model="large")


# -- pure ----------------------------------------------------------------------------------------------------------


def context_of(n: int) -> ServedContext:
    return ServedContext(tuple(Lesson(f"x{k}", f"Lesson {k}.", status="active") for k in range(n)))


def results_of(drop_outs: DropOuts, effects: list[float], pairs: int, seed: int) -> list[PairResult]:
    rng = np.random.default_rng(seed)
    found = []
    for key in pairs_planned(range(20), range(20, 60), pairs, seed):
        chance = np.clip(0.5 + (drop_outs.included(key, "q") - 0.5) @ np.array(effects), 0, 1)
        one, other = (rng.random(2) < chance).astype(float)
        found.append(PairResult(key, "q", (float(one), float(other))))
    return found


def test_each_lesson_is_in_exactly_one_play_of_a_pair_and_queries_are_taken_in_turn() -> None:
    drop_outs = DropOuts(context_of(6), 3)
    planned = pairs_planned(range(4), range(4, 10), 25, 3)
    assert {key.scenario for key in planned[:4]} == set(range(4))
    assert {key.scenario for key in planned[:10]} == set(range(10)) and planned[10] == PairKey(planned[0].scenario, 1)
    for key in planned:
        included = drop_outs.included(key, "q")
        assert (included.sum(axis=0) == 1).all()
        for rollout, inside in zip(key.members, included, strict=True):
            handles = drop_outs.context_for(rollout, "q").note["lessons"]
            assert handles == [f"x{k}" for k in range(6) if inside[k]]
    assert pairs_planned((), (), 5, 0) == []


@pytest.mark.parametrize("seed", range(4))
def test_effects_are_found_with_their_signs(seed: int) -> None:
    drop_outs = DropOuts(context_of(3), seed)
    helps, harms, idle = survival_of(drop_outs, results_of(drop_outs, [0.45, -0.45, 0.0], 250, seed))
    assert (helps.outcome, harms.outcome, idle.outcome) == ("survives", "harms", "neutral")
    assert idle.words == TOO_FEW and helps.pairs == 250


def test_equal_rewards_say_something_only_when_there_are_enough_of_them() -> None:
    drop_outs = DropOuts(context_of(2), 1)
    needed = pairs_until_seen(0.025)

    def words(pairs: int) -> set[str]:
        keys = pairs_planned(range(20), (), pairs, 1)
        return {one.words for one in survival_of(drop_outs, [PairResult(key, "q", (1.0, 1.0)) for key in keys])}

    assert words(needed - 1) == words(3) == words(0) == {TOO_FEW} and words(needed) == {NO_DIFFERENCE}
    ungraded = [PairResult(key, "q", (1.0, float("nan"))) for key in pairs_planned(range(5), (), 5, 1)]
    found = survival_of(drop_outs, ungraded)
    assert [one.pairs for one in found] == [0, 0]
    said = "Of 2 lessons on large: 0 survive, 0 harm, for 2 there are too few plays to say."
    assert verdict_of(found, "large") == said


def text_of(page: Any) -> str:
    """The words of a page, without tags."""
    return " ".join(re.sub(r"<[^>]+>", "", html(page)).split())


@pytest.mark.django_db(transaction=True)
def test_the_pages_estimate_start_and_show_a_measurement(
    operator: Actor, olivia: Any, charlie: Any, release: Release
) -> None:
    console = Client(raise_request_exception=True)
    console.force_login(olivia)
    door = f"/releases/{release.pk}/survival/"
    assert door in html(console.get(f"/releases/{release.pk}/"))
    endpoint = release.bundle["model"]["endpoint"]
    values = {"endpoint": endpoint, "model": "large", "max_budget_usd": "2", "pairs": "10"}
    assert "Test the lessons on another model" in html(console.get(door))
    costs = survival_plan(operator, release, model="large", pairs=10).costs
    estimate = text_of(console.post(door, values | {"do": "estimate"}))
    assert f"All pairs cost about {money(costs.expected_micros)} by" in estimate
    assert f"The lowest possible limit is {money(costs.least_micros)}," in estimate
    refused = console.post(door, values | {"model": "small"})
    assert refused.status_code == 400 and "already. Choose another" in html(refused)
    started = console.post(door, values)
    assert started.status_code == 302
    run = SurvivalRun.objects.select_related("job").get()
    assert "Waiting for a worker" in html(console.get(started.url))
    assert run_to_end(run.job).status == Status.COMPLETED
    run.refresh_from_db()
    for sort in ("outcome", "effect", "pairs", "lesson", "other"):
        shown = html(console.get(f"{started.url}?sort={sort}"))
        assert run.report["verdict"] in shown and TURNS in shown
    assert f"{money(run.cost_micros)} of at most {money(2_000_000)}" in text_of(console.get(started.url))
    assert run.report["verdict"] in html(console.get(f"/releases/{release.pk}/"))
    assert console.post(door, values).url == started.url  # and nothing is paid for again
    assert SurvivalRun.objects.count() == 1
    console.force_login(charlie)
    assert console.get(started.url).status_code == console.get(door).status_code == 404
