"""Rewards of groups and rewards that learn, in a whole run: crashes, checkpoints, rows, a judge that is paid."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client, override_settings
from django.urls import reverse

from agentcore_site.jobs.models import Job, Reason, Status
from agentcore_site.lib.errors import Forbidden, Invalid
from agentcore_site.tenancy.actors import Actor
from budgets.ledger.reconciliation import differences
from budgets.models import Budget, LedgerEntry
from budgets.services import price_set
from evaluation.models import EvaluationRun
from evaluation.services import evaluation_start
from experiences.agents.services.agents import agent_create
from experiences.agents.services.endpoints import endpoint_create
from experiences.models import Agent, GroupRecord, TrajectoryRecord
from experiences.rollouts.rewards import LearningReward, Payment, rewards
from experiences.rollouts.types import Trajectory
from experiences.trajectories.exports.rows import as_exported
from experiences.trajectories.filters import trajectories_filtered
from experiences.trajectories.selectors import trajectories_visible
from experiences.trajectories.storage import as_trajectory
from tests.support.llm_server import ModelServer
from tests.support.running import SMALL, SMALL_POOL, run_to_end
from tests.support.waiting import Interrupted
from tests.training.trainer.test_loop import Store, run, setup
from training.config.validation import ConfigError, parse_config
from training.policies.archive import pack, unpack
from training.schema import GRPOConfig
from training.services.runs import run_start
from training.trainer import TrainerSetup, steps

RANK = {"reward": "relative_rank", "reward_options": {"by": "steps"}}
COMPOSITE = {"reward": "composite", "reward_options": {"efficiency": 0.4}}
OF_COMPOSITE = {"reward": "relative_rank", "reward_options": {"by": "reward", "of": "composite"}}


class Huge:
    """A reward whose gradients overflow."""

    description = "Far too much."
    option_help: dict[str, str] = {}

    def __call__(self, options: Any) -> Any:
        return lambda one: Payment.at_the_end(one, {"outcome": 1e300 * (1 + one.key.rollout)})


@pytest.mark.django_db(transaction=True)
def test_a_run_whose_updates_are_not_finite_fails_with_that_reason_and_keeps_its_checkpoints(
    operator: Actor, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rewards._items, "huge", Huge())
    config = SMALL | {"reward": "huge", "scale_rewards": "none", "n_iterations": 6, "checkpoint_interval": 1}
    started = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=config)
    job = run_to_end(started.job)
    assert (job.status, job.status_reason) == (Status.FAILED, Reason.DIVERGED)
    assert job.error == "3 updates in a row were not finite. Lower the learning rate."
    assert started.checkpoints.exists()


# -- the trainer alone -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [RANK, COMPOSITE, {"reward": "ground_truth"}], ids=str)
def test_a_run_learns_from_each_reward(config: dict[str, Any]) -> None:
    made = setup(n_iterations=60, selection=6, eval_interval=60, **config)
    _, reports = run(made)
    last = reports[-1].selection
    assert last is not None and last.success_rate > last.baseline_success_rate + 0.3


def test_a_group_is_ranked_before_its_update() -> None:
    _, reports = run(setup(n_iterations=2, selection=0, **RANK))
    for report in reports:
        for group in report.groups:
            places = [one.reward for one in group.trajectories]
            assert all(math.isfinite(place) for place in places)
            assert sum(places) / len(places) == pytest.approx(0.5)
            assert all(one.evidence["reward"]["cohort"] == len(places) for one in group.trajectories)
            assert group.has_signal == (max(places) > min(places))


def test_dynamic_sampling_sees_ranks_and_not_what_was_before_them() -> None:
    """Unranked groups have no spread, so that all three rounds of rollouts would be made in each iteration."""
    config = {"reward": "relative_rank", "reward_options": {"by": "steps", "success_first": False}}
    made = setup(n_iterations=3, selection=0, dynamic_sampling=True, batch_size=4, **config)
    store = Store()
    list(steps(replace(made, rollouts=store), made.fresh_state()))
    rollouts = [len(rows) for rows in store.rows.values()]
    assert len(rollouts) == 3 and min(rollouts) < 3 * 4 * made.config.n_trajectories_per_query


def test_a_composite_scale_is_constant_within_an_iteration_and_moves_afterwards() -> None:
    made = setup(n_iterations=4, selection=0, batch_size=4, n_trajectories_per_query=4, **COMPOSITE)
    _, reports = run(made)
    observed = [
        {one.evidence["reward"]["observed"]["completion"] for group in report.groups for one in group.trajectories}
        for report in reports
    ]
    assert observed == [{0}, {16}, {32}, {48}]


@pytest.mark.parametrize("config", [RANK, COMPOSITE, OF_COMPOSITE], ids=["rank", "composite", "rank of composite"])
def test_a_run_that_crashed_ends_where_one_that_did_not_would(config: dict[str, Any]) -> None:
    """From a checkpoint two iterations back, its kept trajectories, and half of an iteration more."""
    made = setup(n_iterations=8, selection=0, **config)
    whole, _ = run(made)
    store, state = Store(), made.fresh_state()
    made = replace(made, rollouts=store)
    with closing(steps(made, state)) as going:
        for _ in range(3):
            next(going)
        checkpoint = state.to_bytes()
        for _ in range(2):
            next(going)
    checks = iter([None] * 40)

    def crash() -> None:
        if next(checks, "over") == "over":
            raise Interrupted("crash")

    store.checking = crash
    with pytest.raises(Interrupted):
        next(steps(made, state))
    store.checking = lambda: None
    assert store.rows[6] and len(store.rows[6]) < len(store.rows[5])
    again = made.state_of(checkpoint)
    list(steps(made, again))
    assert again.to_bytes() == whole.to_bytes()
    assert store.kept_again == 0


def test_the_state_of_a_reward_is_in_the_checkpoint() -> None:
    made = setup(n_iterations=3, selection=0, **COMPOSITE)
    state, _ = run(made)
    seen = made.state_of(state.to_bytes()).reward["seen/completion"]
    assert len(seen) == state.trajectories
    assert seen.tolist() == state.reward["seen/completion"].tolist()


def test_a_checkpoint_from_before_rewards_remembered_still_loads() -> None:
    made = setup(n_iterations=3, selection=0, **COMPOSITE)
    state, _ = run(made)
    old = {name: value for name, value in unpack(state.to_bytes()).items() if not name.startswith("reward/")}
    loaded = made.state_of(pack(old))
    assert loaded.reward == {}
    longer = replace(made, config=made.config.model_copy(update={"n_iterations": 4}))
    loaded.stop_reason = ""
    [report] = list(steps(longer, loaded))
    observed = report.groups[0].trajectories[0].evidence["reward"]["observed"]
    assert observed["completion"] == 0


def test_a_plain_reward_adds_nothing_to_the_checkpoint() -> None:
    state, _ = run(setup(n_iterations=2, selection=0))
    assert not any(name.startswith("reward/") for name in unpack(state.to_bytes()))


class Angry:
    """A group reward that fails on every second group."""

    def __init__(self) -> None:
        self.groups = 0

    def __call__(self, trajectory: Trajectory) -> Payment:
        return Payment.at_the_end(trajectory, {"a": trajectory.outcome})

    def settle(self, trajectories: Any) -> Any:
        self.groups += 1
        if self.groups % 2:
            raise RuntimeError("not today")
        return [None] * len(trajectories)


def test_a_reward_that_raises_on_a_group_marks_the_group_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainerSetup, "reward", lambda self: Angry())
    _, reports = run(setup(n_iterations=2, selection=0, batch_size=2))
    for report in reports:
        errors = [{one.error for one in group.trajectories} for group in report.groups]
        assert errors == [{"reward: RuntimeError: not today"}, {""}]
        assert not report.groups[0].has_signal


# -- options -----------------------------------------------------------------------------------------------------------


def test_options_reach_the_reward() -> None:
    reward = setup(**COMPOSITE).reward()
    assert isinstance(reward, LearningReward)
    assert reward.weights["efficiency"] == 0.4  # type: ignore[attr-defined]
    shaped = setup(reward_options={"partial_credit": True, "tool": 0.3}, shaping={"tool": 0.2}).reward()
    assert (shaped.partial_credit, shaped.tool) == (True, 0.3)  # type: ignore[attr-defined]


def test_a_form_may_type_them() -> None:
    for text in ('{"by": "steps"}', "{'by': 'steps'}"):
        assert GRPOConfig.model_validate({"reward_options": text}).reward_options == {"by": "steps"}
    for wrong in ("by steps", "[1]", 3):
        with pytest.raises(ConfigError, match="reward_options must be an object"):
            parse_config({"reward_options": wrong})


# -- whole jobs --------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_trajectorys_reward_is_one_number_everywhere(operator: Actor, agent: Agent, client: Client) -> None:
    """The reward that was learned from: in the row, the export, filters, the page and its raw JSON."""
    config = SMALL | {"n_iterations": 4} | OF_COMPOSITE
    run_ = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=config)
    with override_settings(JOB_SLICE_SECONDS=0):
        assert run_to_end(run_.job).status == Status.COMPLETED
    rows = list(TrajectoryRecord.objects.filter(job_id=run_.job_id, purpose="training"))
    groups = {(one.iteration, one.scenario): one for one in GroupRecord.objects.filter(job_id=run_.job_id)}
    for row, exported in zip(rows, as_exported(rows), strict=True):
        truth = groups[(row.iteration, row.scenario)].rewards[row.rollout]
        assert exported["reward"] == row.reward == truth
        assert exported["reward_before_ranking"] == row.reward_before_ranking != row.reward
        alone = row.reward if row.reward_before_ranking is None else row.reward_before_ranking
        assert as_trajectory(row).reward == alone
    assert {reward for group in groups.values() for reward in group.rewards} - {None}
    ranked = max((row for row in rows if row.reward_before_ranking is not None), key=lambda row: row.reward or 0.0)
    best = trajectories_filtered(
        trajectories_visible(operator), operator, {"job": run_.job_id, "min_reward": ranked.reward}
    )
    assert ranked in best and all((row.reward or 0.0) >= ranked.reward for row in best)
    client.force_login(operator.user)
    raw = client.get(reverse("experiences:raw", args=[ranked.pk])).json()
    assert (raw["reward"], raw["reward_before_ranking"]) == (ranked.reward, ranked.reward_before_ranking)
    page = client.get(reverse("experiences:trajectory", args=[ranked.pk])).content.decode()
    assert "before its group was ranked" in page


@pytest.mark.django_db(transaction=True)
def test_a_reward_that_pays_at_once_says_nothing_twice(operator: Actor, agent: Agent) -> None:
    config = SMALL | {"n_iterations": 2} | COMPOSITE
    run_ = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=config)
    assert run_to_end(run_.job).status == Status.COMPLETED
    rows = list(TrajectoryRecord.objects.filter(job_id=run_.job_id, purpose="training"))
    assert all(row.reward_before_ranking is None for row in rows)
    assert all(row.evidence["reward"]["name"] == "composite" for row in rows)


ROWS = [
    {"query": f"Say something kind about the number {n}.", "expected_outcome": {"judge": "10: kind. 0: unkind."}}
    for n in range(20)
]
PRICE = (2_000_000, 8_000_000)
JUDGED = {
    "n_iterations": 2,
    "batch_size": 2,
    "n_trajectories_per_query": 3,
    "eval_interval": 2,
    "eval_samples": 1,
    "max_budget_usd": 5,
    "reward": "outcome",
    "seed": 3,
}


def kind(messages: list[dict[str, Any]]) -> str:
    """An agent that is kind to even numbers, and a judge that looks for kindness."""
    if messages[0]["content"].startswith("You grade"):
        answer = re.findall(r"<<<ANSWER \S+>>>\n(.*?)\n<<<END", messages[1]["content"], re.DOTALL)[0]
        return json.dumps({"reason": "as it reads", "score": 9 if "lovely" in answer else 2})
    n = int(re.findall(r"number (\d+)", messages[-1]["content"])[0])
    return f"Answer: {n} is {'lovely' if n % 2 == 0 else 'dull'}."


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(brain=kind, prices={"small": PRICE, "strict": PRICE}) as running:
        yield running


@pytest.fixture
def talker(adam: Any, server: ModelServer) -> Agent:
    actor = Actor(adam)
    for model in ("small", "strict"):
        price_set(
            actor,
            model=model,
            organization=adam.memberships.get().organization,
            input_micros=PRICE[0],
            output_micros=PRICE[1],
        )
    endpoint = endpoint_create(
        actor, name="local", base_url=server.base_url, model="small", api_key="sk-1", options={"max_retries": 0}
    )
    return agent_create(
        actor, name="Talker", runtime="llm", philosophy="cot", environment="dataset", endpoint=endpoint, max_tokens=40
    )


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("options", [{}, {"judge_model": "strict"}], ids=["its own model", "another model"])
def test_rows_with_a_rubric_are_judged_and_paid_for(
    operator: Actor, talker: Agent, server: ModelServer, options: dict[str, Any]
) -> None:
    run_ = run_start(operator, agent=talker, rows=ROWS, environment_options=options, config=JUDGED)
    job = run_to_end(run_.job)
    assert (job.status, job.error) == (Status.COMPLETED, "")
    rows = list(TrajectoryRecord.objects.filter(job_id=job.id))
    assert {row.outcome for row in rows} == {0.9, 0.2}
    assert {row.evidence["judge"]["model"] for row in rows} == {options.get("judge_model", "small")}
    evaluation = EvaluationRun.objects.filter(run=run_).first() or evaluation_start(operator, run=run_)
    assert run_to_end(evaluation.job).status == Status.COMPLETED
    judged = LedgerEntry.objects.filter(job_id=job.id, kind="settle", purpose="judge")
    others = LedgerEntry.objects.filter(job_id=job.id, kind="settle").exclude(purpose="judge")
    assert judged.count() == others.count() > len(rows)
    assert set(judged.values_list("model", flat=True)) == {options.get("judge_model", "small")}
    assert Budget.objects.get(job_id=job.id).spent_micros == server.owed.micros
    assert differences() == []
    # What a run and an evaluation say they cost has the verdicts in it; what an agent costs to be served has not.
    run_.refresh_from_db()
    evaluation.refresh_from_db()
    training = [row for row in rows if row.purpose == "training"]
    verdicts = sum(row.evidence["judge"]["cost_micros"] for row in training)
    assert run_.cost_micros == sum(row.cost_micros for row in training) + verdicts > verdicts > 0
    assert evaluation.cost_micros > sum(evaluation.results.values_list("cost_micros", flat=True)) > 0


@pytest.mark.django_db(transaction=True)
def test_a_judge_that_cannot_be_paid_for_pauses_the_job(operator: Actor, talker: Agent) -> None:
    run_ = run_start(
        operator, agent=talker, rows=ROWS, environment_options={"judge_model": "unheard-of"}, config=JUDGED
    )
    job = run_to_end(run_.job)
    assert (job.status, job.status_reason) == (Status.PAUSED, "llm_refused")
    assert "unheard-of" in job.error
    assert TrajectoryRecord.objects.filter(job_id=job.id).count() == 0


@pytest.mark.django_db(transaction=True)
def test_an_agent_that_chooses_actions_is_not_trained_on_them(operator: Actor, agent: Agent) -> None:
    with pytest.raises(Invalid, match="Train an agent that is a language model"):
        run_start(operator, agent=agent, rows=[ROWS[n] | {"query": f"{n}?"} for n in range(20)], config=SMALL)
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("config", "field"),
    [({"reward": "unheard-of"}, "reward"), ({"reward": "outcome", "reward_options": {"partial": 1}}, "reward_options")],
)
def test_a_reward_that_is_not_there_or_refuses_its_options_is_refused_at_the_start(
    operator: Actor, agent: Agent, config: dict[str, Any], field: str
) -> None:
    with pytest.raises(Invalid) as refused:
        run_start(operator, agent=agent, environment_options=SMALL_POOL, config=SMALL | config)
    assert any(name.startswith(field) for name in refused.value.fields)


@pytest.mark.parametrize(
    "config",
    [
        {"reward": "judge", "reward_options": {"rubric": "10: short."}},
        {
            "reward": "relative_rank",
            "reward_options": {"by": "reward", "of": "judge", "of_options": {"rubric": "Short."}},
        },
    ],
)
def test_a_reward_that_asks_a_judge_is_refused_where_there_is_none(
    operator: Actor, agent: Agent, config: dict[str, Any]
) -> None:
    with pytest.raises(Invalid, match="asks a language model") as refused:
        run_start(operator, agent=agent, environment_options=SMALL_POOL, config=SMALL | config)
    assert "reward" in refused.value.fields


def test_an_action_agent_is_not_launched_in_a_world_of_text_nor_by_an_operator_at_any_address(
    operator: Actor, adam: Any, agent: Agent
) -> None:
    world = {"environment": "agentgym", "environment_options": {"base_url": "http://127.0.0.1:9", "size": 600}}
    with pytest.raises(Invalid, match="language model"):
        run_start(Actor(adam), agent=agent, config=SMALL, **world)
    with pytest.raises(Forbidden):
        run_start(operator, agent=agent, config=SMALL, **world)


@pytest.mark.django_db(transaction=True)
def test_ranks_leave_an_evaluation_whole(operator: Actor, agent: Agent) -> None:
    """There are no groups to rank in: its reward is not known, everything else is."""
    run_ = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=SMALL | {"n_iterations": 2} | RANK)
    assert run_to_end(run_.job).status == Status.COMPLETED
    evaluation = EvaluationRun.objects.get(run=run_)
    job = run_to_end(evaluation.job)
    assert (job.status, job.error) == (Status.COMPLETED, "")
