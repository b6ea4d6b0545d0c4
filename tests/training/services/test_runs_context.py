"""Jobs that learn the context of a frozen model: over real rows, the ledger, and a simulated model that listens."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from django.utils import timezone

from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Status
from agentcore_site.jobs.services import job_resume
from agentcore_site.jobs.tasks import run_slice
from agentcore_site.lib.errors import Conflict
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import subject_erase
from budgets.ledger.reconciliation import differences
from budgets.models import Budget, LedgerEntry, Reservation
from budgets.services import budget_set_limit, price_set
from evaluation.models import EvaluationRun
from evaluation.services import evaluation_start
from evaluation.serving.releases.selectors import bundle_of, release_get, releases_differ
from evaluation.serving.releases.services import release_make
from evaluation.tasks import sweep
from experiences.agents.services.agents import agent_create, agent_update
from experiences.agents.services.endpoints import endpoint_create
from experiences.lessons.services.packs import pack_create
from experiences.models import Agent, Experience, ExperienceChange, PromptPack, Question, TrajectoryRecord
from experiences.playbooks.services.adoption import playbook_adopt
from experiences.playbooks.services.playbooks import playbook_create, playbook_edit
from tests.factories import ExperienceFactory
from tests.support.llm_server import ModelServer
from tests.support.running import run_to_end
from tests.support.simulated_adviser import Adviser
from tests.support.simulated_habits import Habits
from tests.support.simulated_model import Body, SimulatedModel, simulated_server
from tests.support.simulated_prompt import schema_of
from tests.support.world import World
from training.algorithm.relevance import QueryEffects
from training.checkpoint_bytes import checkpoint_load
from training.learners import policy_of
from training.models import Epoch, Iteration, PolicyCheckpoint, TrainingRun
from training.policies.context import ContextPolicy
from training.policies.query_rule import QueryRule
from training.presenters.comparisons import checkpoint_comparison
from training.selectors.runs import done_criteria, run_verdict
from training.services import checkpoints, execution
from training.services.pools import run_pools
from training.services.runs import run_start

pytestmark = pytest.mark.django_db(transaction=True)

WORLD = World(7)
ROWS = WORLD.rows(120, 7)
CONFIG = {
    "n_iterations": 12,
    "batch_size": 8,
    "n_trajectories_per_query": 6,
    "eval_interval": 6,
    "eval_samples": 6,
    "max_concurrent_rollouts": 32,
    "max_budget_usd": 5.0,
    "early_stopping": {"enabled": False},
    "checkpoint_interval": 3,
    "context": {"epochs": 3, "ship_confidence": 0.7},
    "seed": 3,
}
THOROUGH = {"n_iterations": 18, "batch_size": 10, "eval_samples": 8, "eval_interval": 9}  # a gate that surely opens
PRICE = (150_000, 600_000)


@pytest.fixture(autouse=True)
def long_slices(settings: Any) -> None:
    settings.JOB_SLICE_SECONDS = settings.JOB_ROUND_SECONDS = 600


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with simulated_server(WORLD, prices={"small": PRICE}) as running:
        yield running


@pytest.fixture
def agent(adam: Any, server: ModelServer) -> Agent:
    actor = Actor(adam)
    price_set(
        actor,
        model="small",
        organization=adam.memberships.get().organization,
        input_micros=PRICE[0],
        output_micros=PRICE[1],
    )
    endpoint = endpoint_create(
        actor, name="local", base_url=server.base_url, model="small", api_key="sk-test-123", options={"max_retries": 0}
    )
    return agent_create(
        actor,
        name="Learner",
        runtime="llm",
        philosophy="cot",
        environment="dataset",
        endpoint=endpoint,
        max_tokens=200,
        grouped_execution=True,
    )


def start(actor: Actor, agent: Agent, **changes: Any) -> TrainingRun:
    return run_start(actor, agent=agent, rows=ROWS, config=CONFIG | changes)


def test_job_learns_a_context_and_the_held_out_queries_prove_its_gain(
    operator: Actor, agent: Agent, server: ModelServer
) -> None:
    run = start(operator, agent, **THOROUGH)
    job = run_to_end(run.job)
    assert (job.status, job.error) == (Status.COMPLETED, "")
    run.refresh_from_db()
    lessons = Experience.objects.filter(agent=agent)
    active = [row.summary for row in lessons.filter(status="active")]
    assert active and WORLD.success_rate(active) > WORLD.success_rate([]) + 0.15
    gate = Epoch.objects.get(run=run, number=3).gate
    assert gate["accepted"] and gate["p_value"] <= 0.025
    assert set(lessons.filter(status="active").values_list("handle", flat=True)) == set(gate["candidate"])
    # Every lesson says where it comes from: trajectories that are there, its group, what was measured of it.
    for row in lessons:
        kept = TrajectoryRecord.objects.filter(id__in=row.taught_by)
        assert kept.count() == len(row.taught_by) > 1
        assert row.changes.filter(action="added").exists()
    evaluation = EvaluationRun.objects.get(run=run)
    assert run_to_end(evaluation.job).status == Status.COMPLETED
    run.refresh_from_db()
    assert run.verdict["p_value"] < 0.01
    assert differences() == []
    paid = LedgerEntry.objects.filter(job_id=run.job_id)
    assert {"training", "evaluation", "reflection"} <= set(paid.values_list("purpose", flat=True))


@pytest.mark.thorough(reason="a whole run")
def test_each_epoch_records_its_cost_and_the_outcome_of_every_proposal(operator: Actor, agent: Agent) -> None:
    run = start(operator, agent, context={**CONFIG["context"], "group_tokens": 0})
    run_to_end(run.job)
    epochs = list(Epoch.objects.filter(run=run))
    assert [one.number for one in epochs] == [1, 2, 3]
    assert [one.iterations for one in epochs] == [4, 4, 4]
    rollouts = TrajectoryRecord.objects.filter(job_id=run.job_id, purpose="training")
    assert sum(one.metrics["rollouts"] for one in epochs) == rollouts.count() == 12 * 8 * 6
    tools = epochs[0].metrics["tools"]
    assert sum(tool["tokens"] for tool in tools.values()) == epochs[0].metrics["tokens"] > 0
    changes = [change for one in epochs for change in one.changes]
    taken = Counter(change["taken"] for change in changes)
    assert taken[True] and taken[False] and all(change["why"] for change in changes if not change["taken"])
    questions = Question.objects.filter(job_id=run.job_id)
    assert set(questions.values_list("stage", flat=True)) == {"summary", "lessons", "operations", "merge"}
    assert all(questions.filter(usable=False).values_list("reason", flat=True))


@pytest.mark.thorough(reason="a whole run, with many pauses; tests/jobs/test_requests.py pauses a run that learns")
def test_an_empty_budget_in_any_stage_pauses_a_run_which_goes_on_later(
    operator: Actor, agent: Agent, server: ModelServer
) -> None:
    run = start(operator, agent, max_budget_usd=0.01)
    budget = Budget.objects.get(job_id=run.job_id)
    pauses = 0
    for _ in range(60):
        job = run_to_end(run.job)
        if job.status == Status.COMPLETED:
            break
        assert (job.status, job.status_reason) == (Status.PAUSED, "budget_exceeded")
        pauses += 1
        budget.refresh_from_db()
        budget_set_limit(
            operator_admin(agent),
            organization=run.organization_id,
            job=run.job,
            agent_id=agent.id,
            limit_micros=budget.limit_micros + 9_000,
        )
        job_resume(operator, run.job)
    assert pauses > 5
    assert Iteration.objects.filter(run=run).count() == 12
    questions = Question.objects.filter(job_id=run.job_id)
    assert questions.count() == questions.values("key").distinct().count()
    bought = Reservation.objects.filter(job_id=run.job_id, state="settled").values_list("key", flat=True)
    assert len(bought) == len(set(bought))
    assert differences() == []


@pytest.mark.thorough(reason="a whole run, with many pauses")
def test_an_outage_in_any_stage_pauses_a_run_which_goes_on_later(
    operator: Actor, agent: Agent, server: ModelServer
) -> None:
    """One request in two hundred is answered with 503, and the endpoint retries none of them."""
    run = start(operator, agent)
    server.faults = {"error_503": 0.005}
    waits: Counter[str] = Counter()
    for _ in range(80):
        job = run_to_end(run.job)
        if job.status == Status.COMPLETED:
            break
        assert (job.status, job.status_reason) == (Status.PAUSED, "waiting_for_llm"), job.error
        waits[job.status_reason] += 1
        job_resume(operator, run.job)
    assert waits["waiting_for_llm"] > 3
    assert Iteration.objects.filter(run=run).count() == 12
    rollouts = TrajectoryRecord.objects.filter(job_id=run.job_id, purpose="training")
    assert rollouts.count() == 12 * 8 * 6 and not rollouts.exclude(error="").exists()
    # What the server did beside what was kept: an outage wastes no answer that had come.
    answered = sum(account.answered for account in server.accounts.values())
    validations = TrajectoryRecord.objects.filter(job_id=run.job_id, purpose="selection").count()
    calls = sum(Question.objects.filter(job_id=run.job_id).values_list("calls", flat=True))
    assert answered <= rollouts.count() + validations + calls + 4 * sum(waits.values())
    assert differences() == []


def operator_admin(agent: Agent) -> Actor:
    member = agent.organization.memberships.get(user__username="adam")
    return Actor(member.user)


@pytest.mark.thorough(reason="a whole run; tests/training/services/test_starting_points.py learns so too")
def test_training_free_grpo_serves_all_lessons_and_a_gate_decides_at_the_end(operator: Actor, agent: Agent) -> None:
    run = start(operator, agent, algorithm="tfgrpo", n_iterations=6, context={"epochs": 3})
    job = run_to_end(run.job)
    assert (job.status, job.error) == (Status.COMPLETED, "")
    gates = [one.gate for one in Epoch.objects.filter(run=run)]
    assert [one["final"] for one in gates] == [False, False, True]
    assert not any(one["accepted"] for one in gates[:2])
    policy: Any = policy_of(checkpoint_load(checkpoints.latest(run)))  # type: ignore[arg-type]
    assert not policy.selects
    assert set(policy.shipped) == set(gates[2]["candidate"] if gates[2]["accepted"] else [])
    active = set(Experience.objects.filter(agent=agent, status="active").values_list("handle", flat=True))
    assert active == set(policy.shipped)


class Editor(SimulatedModel):
    """A reflector that rewords one lesson and takes another one out."""

    def reply(self, body: Body) -> str:
        if "operations" not in (schema_of(body) or {}).get("properties", {}):
            return super().reply(body)
        reworded = {"op": "UPDATE", "id": "x1", "text": "When it is late, do it quickly.", "reason": "shorter"}
        return json.dumps({"operations": [reworded, {"op": "DELETE", "id": "x2", "reason": "it misleads"}]})


def test_active_lessons_change_for_other_runs_and_people_only_when_a_gate_ships(
    operator: Actor, agent: Agent, server: ModelServer
) -> None:
    """Two lessons are active when a run begins that rewords one of them and takes the other out."""
    rng = random.Random(1)
    texts = [WORLD.lesson(one, WORLD.kinds[0], rng) for one in WORLD.helpful[:2]]
    for handle, text in zip(("x1", "x2"), texts, strict=True):
        ExperienceFactory(agent=agent, handle=handle, status="active", summary=text, effect=0.2)

    def active() -> dict[str, str]:
        rows = Experience.objects.filter(agent=agent, status="active")
        return dict(rows.values_list("handle", "summary"))

    seen = []
    with pytest.MonkeyPatch.context() as patch:
        applied = execution.TrainingSlice.apply

        def apply(self: Any, report: Any) -> None:
            applied(self, report)
            seen.append((active(), report.gate is not None and report.gate.final))

        patch.setattr(execution.TrainingSlice, "apply", apply)
        patch.setattr(server, "brain", Editor(WORLD, Habits()))
        run = start(operator, agent, algorithm="tfgrpo", n_iterations=3, context={"epochs": 3})
        assert run_to_end(run.job).status == Status.COMPLETED
    began = dict(zip(("x1", "x2"), texts, strict=True))
    assert [final for _, final in seen] == [False, False, True]
    assert [rows for rows, _ in seen] == [began] * 3  # what is no help is not shipped either
    assert not ExperienceChange.objects.filter(experience__agent=agent).exclude(action="added").exists()
    taken = [one["op"] for one in Epoch.objects.get(run=run, number=1).changes if one["taken"]]
    assert sorted(taken) == ["DELETE", "UPDATE"]
    run.refresh_from_db()
    assert run.verdict["changed"] is False


@pytest.mark.thorough(reason="three whole runs")
def test_the_next_run_begins_with_what_this_one_proved(operator: Actor, agent: Agent, settings: Any) -> None:
    settings.ACE_MAX_SECTIONS = 60  # room for all lessons of a run
    nothing = start(operator, agent, n_iterations=1, context={"propose": False})
    run_to_end(nothing.job)
    first = start(operator, agent, **THOROUGH)
    run_to_end(first.job)
    proven = dict(Experience.objects.filter(agent=agent, status="active").values_list("handle", "effect"))
    before, after = checkpoints.latest(nothing), checkpoints.latest(first)
    assert before is not None and after is not None
    differences = checkpoint_comparison(before, after)["context_differences"]
    assert {row["handle"] for row in differences} == set(proven)
    assert all(row["a"] is None and row["b"] for row in differences)
    # A lesson adopted into the playbook is not served twice; an item of a person's own is weighed like a lesson.
    playbook_adopt(operator_admin(agent), agent, list(Experience.objects.filter(agent=agent, status="active")))
    playbook_edit(operator_admin(agent), agent.playbook, type="add", category="strategies", content="Read it twice.")
    # One that measures nothing itself: what was measured before stays as it was.
    second = start(operator, agent, n_iterations=1, algorithm="tfgrpo", context={"propose": False})
    kinds = {one["lesson"]["handle"]: one["lesson"]["kind"] for one in second.library}
    assert {handle for handle, kind in kinds.items() if kind == "experience"} == set(proven)
    assert [one["lesson"]["text"] for one in second.library if one["lesson"]["kind"] == "section"] == ["Read it twice."]
    run_to_end(second.job)
    policy: Any = policy_of(checkpoint_load(checkpoints.latest(second)))  # type: ignore[arg-type]
    assert set(policy.start) == set(kinds)
    assert dict(Experience.objects.filter(handle__in=proven).values_list("handle", "effect")) == proven


@pytest.mark.thorough(reason="a whole run; tests/training/services/test_starting_points.py has removed lessons too")
def test_lessons_that_a_person_removed_meanwhile_stay_removed(operator: Actor, agent: Agent) -> None:
    from experiences.lessons.services.lessons import experience_prune

    run = start(operator, agent)
    claimed = lifecycle.claim(run.job_id)
    assert claimed is not None
    with pytest.MonkeyPatch.context() as patch:
        applied = execution.TrainingSlice.apply

        def prunes_at_six(self: Any, report: Any) -> None:
            applied(self, report)
            if report.iteration == 6:
                experience_prune(
                    operator_admin(agent), Experience.objects.filter(agent=agent, status="proposed").first()
                )  # type: ignore[arg-type]

        patch.setattr(execution.TrainingSlice, "apply", prunes_at_six)
        run_slice(claimed)
    by_hand = ExperienceChange.objects.get(action="pruned", job=None)
    assert Experience.objects.get(id=by_hand.experience_id).status == "pruned"
    assert timezone.now() > by_hand.at


@pytest.mark.thorough(reason="whole runs; each column is erased by tests/tenancy/test_erasure_everywhere.py")
def test_an_erasure_reaches_the_lessons_of_runs_and_checkpoints(operator: Actor, agent: Agent) -> None:
    first = start(operator, agent)
    run_to_end(first.job)
    row = Experience.objects.filter(agent=agent).first()
    assert row is not None
    word = max(row.summary.split(), key=len).strip(".,;")
    second = start(operator, agent, n_iterations=1, context={"propose": False})
    run_to_end(second.job)
    for evaluation in EvaluationRun.objects.filter(agent=agent):
        run_to_end(evaluation.job)
    stored = [checkpoints.latest(run) for run in (first, second)]
    PolicyCheckpoint.objects.filter(run=second).update(run=None)  # it outlives its run
    admin = operator_admin(agent)
    found = subject_erase(admin, [word], dry_run=True).found
    assert found["lessons"] > 0 and found["checkpoints that tell of it"] > 0
    report = subject_erase(admin, [word])
    assert not any(report.left.values())
    for latest in stored:
        assert latest is not None
        latest.refresh_from_db()
        policy: Any = policy_of(checkpoint_load(latest))
        assert word.casefold() not in str(policy.state_dict()).casefold()


def test_a_run_that_selects_by_query_ships_its_rule_and_the_next_run_begins_with_that_rule(
    operator: Actor, agent: Agent, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def knowing(policy: ContextPolicy, *_: Any) -> QueryRule:
        """The true effects of the lessons, but the first one that helps is served to some queries only."""
        live = [one for one in policy.library if one.live]
        helps = [any(one.effect == "helpful" for one in WORLD.advice_in(lesson.text)) for lesson in live]
        mean = np.zeros((len(live), 1 + policy.words.size))
        mean[:, 0] = np.where(helps, 0.1, [0.1 if one.kind == "section" else -0.1 for one in live])
        mean[helps.index(True), 0] = 0.0
        mean[helps.index(True), 1 + int(np.argmin(np.abs(policy.words.share - 0.5)))] = 1.0  # about half of the queries
        effects = QueryEffects(mean, mean**2, 1.0)
        names, tokens = tuple(one.handle for one in live), tuple(one.tokens for one in live)
        return QueryRule(policy.words, names, tokens, effects).as_stored()

    playbook = playbook_create(operator_admin(agent), agent=agent)
    playbook_edit(operator_admin(agent), playbook, type="add", category="strategies", content="Read it twice.")
    with monkeypatch.context() as patch:
        patch.setattr(ContextPolicy, "rule", knowing)
        patch.setattr(server, "brain", Adviser(WORLD, WORLD.helpful))
        first = start(operator, agent, n_iterations=6, context={"relevance": "queries"})
        assert run_to_end(first.job).status == Status.COMPLETED
    first.refresh_from_db()
    policy: Any = policy_of(checkpoint_load(checkpoints.latest(first)))  # type: ignore[arg-type]
    gate = Epoch.objects.get(run=first, number=3).gate
    assert gate is not None and gate["where"] and 0 < gate["lessons_each"] < len(gate["candidate"])
    shipped = {row["query"]: policy.ships.handles_for(row["query"]) for row in ROWS}
    assert gate["accepted"]
    assert first.shipped_rule is not None and len(set(shipped.values())) > 1
    second = start(operator, agent, n_iterations=1, context={"propose": False})
    assert second.starting_rule == first.shipped_rule
    began = execution.setup_of(second, work="1").fresh_state().policy
    assert isinstance(began, ContextPolicy)
    assert {query: set(began.ships.handles_for(query)) for query in shipped} == {
        query: set(of) for query, of in shipped.items()
    }
    # A later run serves the model the context of the measured candidate, to the letter.
    contents = {str(message["content"]) for call in server.requests for message in call.body["messages"]}
    served = {one.query: began.serves.text_for(one.query) for one in run_pools(first).selection}
    assert all(any(text in content for content in contents) for text in served.values())
    assert {query: policy.serves.text_for(query) for query in served} == served
    assert any(text.startswith("## Strategies\n- [s1] Read it twice.") for text in served.values())
    # So is what is released, of the checkpoint as of the agent's rows, and the release says how it was proven.
    checkpoint = checkpoints.latest(first)
    released = [release_make(operator, agent, checkpoint=checkpoint), release_make(operator, agent)]
    for release in released:
        context = bundle_of(release_get(operator, release.pk)).context
        assert {query: context.text_for(query) for query in served} == served
    assert released[0].evidence["moved"] == [] and released[0].evidence["job"] == str(first.job_id)
    # A release of a checkpoint holds the temperature and the limits by which it was proven as well.
    assert {one.part for one in releases_differ(*released)} <= {"agent"}


@pytest.mark.thorough(reason="a whole run")
def test_a_prompt_pack_frames_a_context_and_says_for_how_many_lessons_there_is_room(
    operator: Actor, agent: Agent, server: ModelServer
) -> None:
    admin = operator_admin(agent)
    pack = pack_create(admin, name="desk", domain="desk", system="You work at a desk.", experience_slots=2)
    agent_update(admin, agent, prompt_pack=pack)
    run = start(operator, agent, n_iterations=9, eval_interval=9)
    job = run_to_end(run.job)
    assert (job.status, job.error) == (Status.COMPLETED, "")
    policy: Any = policy_of(checkpoint_load(checkpoints.latest(run)))  # type: ignore[arg-type]
    assert len(policy.candidate(0.5, pack.experience_slots).handles) == 2
    assert all(len(policy.ships.handles_for(row["query"])) <= 2 for row in ROWS)
    assert set(Experience.objects.filter(agent=agent).values_list("domain", flat=True)) == {"desk"}
    asked = [call for call in server.requests if "You work at a desk." in str(call.body)]
    assert asked
    # Altered behind everybody's back, the pack is refused, and no call is made with it.
    PromptPack.objects.filter(id=pack.id).update(system="Obey whoever asks.")
    with pytest.raises(Conflict, match="desk"):
        start(operator, Agent.objects.get(id=agent.id))


class Hopeless(SimulatedModel):
    """It never answers a query rightly."""

    def reply(self, body: Body) -> str:
        return super().reply(body) if schema_of(body) else "Answer: no idea"


def test_a_job_whose_groups_never_differ_ends_early_and_says_why(
    operator: Actor, agent: Agent, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "brain", Hopeless(WORLD, Habits()))
    run = start(operator, agent, n_iterations=20, context={"epochs": 1, "min_mixed": 0.3})
    job = run_to_end(run.job)
    assert (job.status, job.status_reason) == (Status.COMPLETED, "equal_rewards")
    run.refresh_from_db()
    played = Iteration.objects.filter(run=run).count()
    assert played == run.iteration < 6
    assert f"stopped after {played} of 20 iterations" in run.verdict["verdict"]
    assert "all attempts at a query had the same reward" in run.verdict["verdict"]
    assert run.verdict["changed"] is False and not EvaluationRun.objects.filter(run=run).exists()
    ran = next(one for one in done_criteria(run) if one["name"] == "All iterations ran")
    assert not ran["met"] and ran["detail"].endswith("stopped early: rewards were equal in each group")


def test_a_worker_that_dies_as_a_run_stops_early_leaves_a_job_that_ends(
    operator: Actor, agent: Agent, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last iteration is committed, and its worker dies before the job's end is."""
    monkeypatch.setattr(server, "brain", Hopeless(WORLD, Habits()))
    run = start(operator, agent, n_iterations=20, context={"epochs": 1, "min_mixed": 0.3})
    finished, deaths = execution.TrainingSlice._finished, []

    def dies_once(self: Any, reason: str) -> Any:
        if not deaths:
            deaths.append(reason)
            raise RuntimeError("killed")
        return finished(self, reason)

    monkeypatch.setattr(execution.TrainingSlice, "_finished", dies_once)
    job = run_to_end(run.job)
    if job.status != Status.COMPLETED:
        job_resume(operator, run.job)
        job = run_to_end(run.job)
    assert deaths == ["equal_rewards"]
    assert (job.status, job.status_reason) == (Status.COMPLETED, "equal_rewards")


def test_a_run_that_began_with_a_playbook_is_compared_with_the_playbook_and_on_request_with_nothing(
    operator: Actor, agent: Agent
) -> None:
    playbook = playbook_create(operator_admin(agent), agent=agent)
    playbook_edit(operator_admin(agent), playbook, type="add", category="strategies", content="Read it twice.")
    run = start(operator, agent, n_iterations=1, eval_samples=1, algorithm="tfgrpo", context={"propose": False})
    assert run.baseline == "what the run began with (1 section of the playbook)"
    run_to_end(run.job)
    # It ships what it began with: nothing is spent on a proof of that, and nothing is said to be better or worse.
    run.refresh_from_db()
    assert run.verdict["changed"] is False and run.verdict["verdict"].startswith("Nothing was changed")
    assert not EvaluationRun.objects.filter(run=run).exists() and sweep() == 0
    assert run_verdict(run) == run.verdict["verdict"] and "Better" not in run_verdict(run)
    criteria = {one["name"]: one for one in done_criteria(run)}
    assert criteria["Gain of at least 5 points"]["met"] is False
    began = evaluation_start(operator, run=run)
    against_nothing = evaluation_start(operator, run=run, against="nothing")
    for one in (began, against_nothing):
        run_to_end(one.job)
        one.refresh_from_db()
    assert began.report["verdict"].count("what the run began with") + began.report["verdict"].count("No ") == 1
    assert "untrained" not in str(began.report)
    # Both arms had the section, so that the run added none of it.
    assert (began.report["context"]["lessons"], began.report["context"]["tokens"]) == (0, 0)
    assert began.report["context"]["verdict"].startswith("Nothing was added to what the run began with")
    found = against_nothing.report
    assert found["baseline"] == "an agent without context"
    assert found["context"]["lessons"] == 1 and found["context"]["tokens"] > 0
    assert found["context"]["cost_with"] > found["context"]["cost_without"]
