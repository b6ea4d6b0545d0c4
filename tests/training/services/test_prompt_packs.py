"""A job acts by the prompt pack of the domain of its data, and what it learns holds for that pack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentcore_site.jobs.models import Job, Status
from agentcore_site.jobs.services import job_cancel
from agentcore_site.lib.errors import Conflict, DomainError, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import subject_erase
from budgets.services import price_set
from experiences.agents.services.agents import agent_create, agent_update
from experiences.agents.services.datasets import dataset_create, dataset_update
from experiences.agents.services.endpoints import endpoint_create
from experiences.learning.lessons.stamps import experience_stamp
from experiences.learning.lessons.states import LessonUpdate
from experiences.lessons.selectors import library_of
from experiences.lessons.services.lessons import experience_edit
from experiences.lessons.services.packs import pack_archive, pack_create, pack_update
from experiences.lessons.services.recording import experiences_sync
from experiences.lessons.stamps import stamps
from experiences.models import Agent, Dataset, Experience, PromptPack
from tests.console.conftest import console, signed_in  # noqa: F401
from tests.factories import ExperienceFactory
from tests.support.callers import Caller
from tests.support.llm_server import ModelServer
from tests.support.pages import html
from tests.support.running import run_to_end
from tests.support.simulated_adviser import Adviser
from tests.support.simulated_model import simulated_server
from tests.support.world import World
from training.exports.manifests import run_manifest
from training.models import TrainingRun
from training.services.run_lessons import starting_rule
from training.services.run_setup import setup_of
from training.services.runs import run_estimate, run_start

pytestmark = pytest.mark.django_db

WORLD = World(7)
ROWS = WORLD.rows(60, 7)
CONFIG: dict[str, Any] = {
    "n_iterations": 3,
    "batch_size": 8,
    "n_trajectories_per_query": 6,
    "max_concurrent_rollouts": 32,
    "max_budget_usd": 5.0,
    "context": {"epochs": 1, "gate_samples": 4, "accept_weak_gate": True},
}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with simulated_server(WORLD) as running:
        running.brain = Adviser(WORLD, WORLD.helpful[:3])
        yield running


def reader_at(adam: Any, base_url: str) -> Agent:
    actor = Actor(adam)
    price_set(
        actor, model="small", organization=adam.memberships.get().organization, input_micros=1_000, output_micros=1_000
    )
    endpoint = endpoint_create(actor, name="local", base_url=base_url, model="small", api_key="sk-test-123")
    return agent_create(
        actor,
        name="Reader",
        runtime="llm",
        philosophy="cot",
        environment="dataset",
        endpoint=endpoint,
        system_prompt="You read.",
        pack_by_domain=True,
        max_tokens=200,
    )


@pytest.fixture
def reader(adam: Any) -> Agent:
    return reader_at(adam, "http://127.0.0.1:9/v1")


@pytest.fixture
def billing(adam: Any) -> PromptPack:
    return pack_create(Actor(adam), name="billing", domain="Billing", system="You answer about bills.", max_words=40)


@pytest.fixture
def bills(operator: Actor) -> Dataset:
    return dataset_create(operator, name="bills", rows=ROWS, domain="billing")


@pytest.fixture
def words(operator: Actor) -> Dataset:
    return dataset_create(operator, name="words", rows=ROWS[:50])


def launched(actor: Actor, agent: Agent, dataset: Dataset, **changes: Any) -> TrainingRun:
    """A job as it begins: it ends before it does anything."""
    run = run_start(actor, agent=agent, dataset=dataset, config=CONFIG | changes)
    job_cancel(actor, run.job)
    return TrainingRun.objects.get(pk=run.pk)


def acts_by_text(run: TrainingRun) -> str:
    return str(setup_of(TrainingRun.objects.get(pk=run.pk)).acting._system)  # type: ignore[union-attr]


def learned(run: TrainingRun, handle: str, summary: str = "Read the bill twice.") -> None:
    acting = TrainingRun.objects.get(pk=run.pk).acting_agent
    states = [LessonUpdate(handle, summary, domain="Billing")]
    experiences_sync(job=run.job, agent=run.agent, states=states, by="iteration 1", acting=acting)


def begins_with(run: TrainingRun) -> list[str]:
    return [one["lesson"]["handle"] for one in run.library]


# -- which pack --------------------------------------------------------------------------------------------------------


def test_a_job_takes_the_pack_of_the_domain_of_its_data_and_says_why(
    operator: Actor, reader: Agent, billing: PromptPack, bills: Dataset, words: Dataset, adam: Any
) -> None:
    run = launched(operator, reader, bills)
    assert run.prompt_pack == billing and run.estimate["prompt"] == {
        "pack_id": str(billing.pk),
        "pack": "billing",
        "stamp": billing.stamp,
        "by_domain": True,
        "why": "it is for the domain of the data, 'billing'",
    }
    assert run.acting_agent.prompt_pack == billing and run.agent.prompt_pack is None
    assert setup_of(run).acting._system == "You answer about bills."  # type: ignore[union-attr]
    # Data of no domain, or of one without a pack: the agent's own.
    assert launched(operator, reader, words).prompt_pack is None
    dataset_update(operator, words, domain="poetry")
    other = launched(operator, reader, words)
    assert other.prompt_pack is None and "no prompt pack is for the domain 'poetry'" in other.estimate["prompt"]["why"]
    # An agent that does not choose by domain takes its own, and so do agents that were there before.
    own = pack_create(Actor(adam), name="own", system="You do what you do.")
    agent_update(Actor(adam), reader, pack_by_domain=False, prompt_pack=own)
    plain = launched(operator, Agent.objects.get(pk=reader.pk), bills)
    assert plain.prompt_pack is None and plain.estimate["prompt"]["pack"] == "own"
    assert not Agent(name="new").pack_by_domain


def test_two_packs_of_one_domain_refuse_the_launch_and_the_plan_says_so(
    operator: Actor, reader: Agent, billing: PromptPack, bills: Dataset, adam: Any
) -> None:
    second = pack_create(Actor(adam), name="invoices", domain="BILLING", system="You know invoices.")
    plan = run_estimate(operator, agent=reader, dataset=bills, config=CONFIG)
    with pytest.raises(Conflict, match="billing and invoices") as refused:
        run_start(operator, agent=reader, dataset=bills, config=CONFIG)
    assert [one["message"] for one in plan["refusals"]] == [refused.value.message] and plan["prompt"] is None
    pack_archive(Actor(adam), second)
    assert launched(operator, reader, bills).prompt_pack == billing


def test_a_pack_is_kept_until_each_job_with_that_pack_has_ended(
    operator: Actor, reader: Agent, billing: PromptPack, bills: Dataset, adam: Any
) -> None:
    run = run_start(operator, agent=reader, dataset=bills, config=CONFIG)
    with pytest.raises(Conflict, match="Train Reader"):
        pack_archive(Actor(adam), billing)
    # What the data are about may change: the job keeps what it was launched with.
    dataset_update(operator, bills, domain="")
    agent_update(Actor(adam), reader, pack_by_domain=False)
    assert TrainingRun.objects.get(pk=run.pk).acting_agent.prompt_pack == billing
    job_cancel(operator, run.job)
    assert pack_archive(Actor(adam), billing).archived_at is not None


def test_a_job_acts_by_the_text_that_its_pack_had_at_the_launch(
    operator: Actor, reader: Agent, billing: PromptPack, bills: Dataset, words: Dataset, adam: Any, client: Client
) -> None:
    of_bills, then = launched(operator, reader, bills), billing.stamp
    of_words = launched(operator, reader, words)
    pack_update(Actor(adam), billing, system="You answer in rhymes.", max_words=10)
    agent_update(Actor(adam), reader, system_prompt="You sing.")
    assert acts_by_text(of_bills) == "You answer about bills." and acts_by_text(of_words) == "You read."
    run = TrainingRun.objects.get(pk=of_bills.pk)
    assert run.acting_agent.prompt_pack is not None and run.acting_agent.prompt_pack.max_words == 40
    manifest = run_manifest(run)
    assert manifest["agent"]["prompt_sha256"] == then == run.estimate["prompt"]["stamp"]
    assert manifest["guard_rails"]["word_limit"]["limit"] == 40
    client.force_login(operator.user)
    page = html(client.get(f"/jobs/{run.pk}/?tab=settings"))
    assert then[:12] in page and "changed since" in page
    fresh = launched(operator, Agent.objects.get(pk=reader.pk), bills)
    assert "changed since" not in html(client.get(f"/jobs/{fresh.pk}/?tab=settings"))
    # A job of an earlier release kept no text, and goes by the present prompt.
    TrainingRun.objects.filter(pk=of_bills.pk).update(prompt=None)
    assert acts_by_text(of_bills) == "You answer in rhymes."


@pytest.mark.parametrize("keep", [False, True])
def test_lessons_of_a_job_hold_for_a_new_text_where_its_author_says_so(
    operator: Actor, reader: Agent, billing: PromptPack, bills: Dataset, adam: Any, keep: bool
) -> None:
    run = run_start(operator, agent=reader, dataset=bills, config=CONFIG)
    pack_update(Actor(adam), billing, domain="Bills", keep_lessons=keep)
    for text in ("You answer about bills, kindly.", "You answer about bills, and kindly."):
        pack_update(Actor(adam), PromptPack.objects.get(pk=billing.pk), system=text, keep_lessons=keep)
    learned(run, "x1")
    row = Experience.objects.get(handle="x1")
    assert bool(stamps([row])[row.pk].fault) is not keep
    assert run_manifest(TrainingRun.objects.get(pk=run.pk))["guard_rails"]["stamps"]["held"], "it holds for the job's"
    # Who says so once says it of the texts before only.
    pack_update(Actor(adam), PromptPack.objects.get(pk=billing.pk), system="You answer in rhymes.")
    learned(run, "x2")
    assert stamps([row := Experience.objects.get(handle="x2")])[row.pk].fault


def test_an_agent_that_chooses_actions_reads_no_pack(adam: Any, agent: Agent) -> None:
    with pytest.raises(Invalid) as refused:
        agent_update(Actor(adam), agent, pack_by_domain=True)
    assert "pack_by_domain" in refused.value.fields


# -- what data are about -----------------------------------------------------------------------------------------------


def test_the_same_queries_are_one_dataset_of_one_domain(operator: Actor, words: Dataset) -> None:
    assert dataset_create(operator, name="again", rows=ROWS[:50], domain=" poetry ").domain == "poetry"
    assert dataset_create(operator, name="again", rows=ROWS[:50], domain="Poetry") == words
    with pytest.raises(Conflict, match="words"):
        dataset_create(operator, name="again", rows=ROWS[:50], domain="prose")
    for wrong in ("x" * 61, "a\x00b"):
        with pytest.raises(Invalid) as refused:
            dataset_update(operator, words, domain=wrong)
        assert "domain" in refused.value.fields


def test_queries_with_the_job_name_their_domain_and_other_data_have_their_own(
    operator: Actor, reader: Agent, billing: PromptPack, bills: Dataset, olivia: Any
) -> None:
    run = run_start(operator, agent=reader, rows=ROWS[:55], domain="billing", config=CONFIG)
    job_cancel(operator, run.job)
    assert run.prompt_pack == billing and run.dataset is not None and run.dataset.domain == "billing"
    again = run_start(operator, agent=reader, rows=ROWS[:55], config=CONFIG)
    job_cancel(operator, again.job)
    assert again.prompt_pack == billing, "they are that dataset"
    values = {"agent_id": reader.slug, "training_data": ROWS[:52], "domain": "billing", "config": CONFIG}
    job = Caller(olivia).result("training.start_grpo", values)["training_job_id"]
    assert TrainingRun.objects.get(pk=job).prompt_pack == billing
    with pytest.raises(Invalid) as refused:
        run_start(operator, agent=reader, dataset=bills, domain="poetry", config=CONFIG)
    assert "domain" in refused.value.fields


# -- lessons -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def lessons(reader: Agent, billing: PromptPack) -> tuple[Experience, Experience]:
    """One that holds for the agent's own prompt, and one for the pack."""
    own, about_bills = ExperienceFactory(agent=reader), ExperienceFactory(agent=reader, domain="Billing")
    about_bills.stamp = experience_stamp(billing.stamp, about_bills.handle, 1, "Billing", about_bills.summary)
    about_bills.save()
    return own, about_bills


def test_a_job_begins_with_the_lessons_that_hold_for_its_pack(
    operator: Actor,
    reader: Agent,
    billing: PromptPack,
    bills: Dataset,
    words: Dataset,
    lessons: tuple[Experience, Experience],
    adam: Any,
) -> None:
    own, about_bills = lessons
    assert begins_with(launched(operator, reader, bills)) == [about_bills.handle]
    result = stamps(lessons)
    assert result[own.pk] == (None, "") and result[about_bills.pk] == (billing, "")
    assert {row.handle for row in library_of(reader)} == {own.handle, about_bills.handle}
    assert begins_with(launched(operator, reader, words)) == [own.handle]
    # Who keeps its lessons while the pack changes keeps these.
    pack_update(Actor(adam), billing, system="You answer about bills, kindly.", keep_lessons=True)
    assert not stamps([Experience.objects.get(pk=about_bills.pk)])[about_bills.pk].fault
    # Without the choice by domain the agent has one prompt, and what holds for another is left out.
    agent_update(Actor(adam), reader, pack_by_domain=False)
    again = Agent.objects.get(pk=reader.pk)
    assert [one.experience.handle for one in library_of(again).refused] == [about_bills.handle]


def test_lessons_of_a_job_are_stamped_with_its_own_pack(
    operator: Actor, reader: Agent, billing: PromptPack, bills: Dataset
) -> None:
    run = run_start(operator, agent=reader, dataset=bills, config=CONFIG)
    long = " ".join(["word"] * 36)  # the pack allows 40, other prompts 32
    learned(run, "x1", long)
    row = Experience.objects.get(handle="x1")
    assert stamps([row])[row.pk] == (billing, "")
    # A person's words name the same pack, and an altered pack vouches for nothing.
    assert stamps([experience_edit(operator, row, summary=f"{long} more")])[row.pk].pack == billing
    PromptPack.objects.filter(pk=billing.pk).update(system="You give money away.")
    assert stamps([Experience.objects.get(handle="x1")])[row.pk].fault
    # The job goes on by the text that it was launched with, which bears its stamp; an altered one stops it.
    learned(run, "x2")
    altered = TrainingRun.objects.get(pk=run.pk)
    TrainingRun.objects.filter(pk=run.pk).update(prompt=altered.prompt | {"system": "You give money away."})
    with pytest.raises(Conflict, match="billing"):
        learned(run, "x3")


def test_a_rule_is_taken_over_from_a_run_under_the_same_pack(
    operator: Actor, reader: Agent, billing: PromptPack, bills: Dataset, words: Dataset
) -> None:
    of_bills, of_words = launched(operator, reader, bills), launched(operator, reader, words)
    for run in (of_bills, of_words):
        shipped: dict[str, Any] = {"shipped_rule": {"of": str(run.pk)}, "shipped_at": timezone.now()}
        TrainingRun.objects.filter(pk=run.pk).update(**shipped)
    assert starting_rule(reader, billing) == {"of": str(of_bills.pk)}
    assert starting_rule(reader) == {"of": str(of_words.pk)}
    # A run that acted by this pack as its agent's own counts too.
    TrainingRun.objects.filter(pk=of_bills.pk).update(prompt_pack=None)
    assert starting_rule(reader, billing) == {"of": str(of_bills.pk)}


def test_erasing_a_word_of_a_pack_waits_for_the_jobs_with_that_pack(
    operator: Actor, reader: Agent, billing: PromptPack, bills: Dataset, adam: Any
) -> None:
    run = run_start(operator, agent=reader, dataset=bills, config=CONFIG)
    with pytest.raises(DomainError, match="Train Reader"):
        subject_erase(Actor(adam), ["You answer about bills"])
    Job.objects.filter(pk=run.job_id).update(status=Status.CANCELLED)
    learned(run, "x1")
    subject_erase(Actor(adam), ["You answer about bills"])
    assert "bills" not in PromptPack.objects.get(pk=billing.pk).system
    # What the job acted by is changed with it: proofs of it can still be made, and its lessons hold.
    assert "bills" not in acts_by_text(run)
    assert run_manifest(TrainingRun.objects.get(pk=run.pk))["guard_rails"]["stamps"] == {
        "verified": 1,
        "faults": {},
        "held": True,
    }


def asked_for(condition: str, work: Callable[[], object]) -> int:
    """The number of SQL queries that ask for packs by this condition while ``work`` is done."""
    with CaptureQueriesContext(connection) as asked:
        work()
    return sum(condition in one["sql"].split(" WHERE ")[-1] for one in asked)


def test_a_launch_and_its_plan_ask_once_which_pack_they_take(
    operator: Actor, reader: Agent, billing: PromptPack, bills: Dataset
) -> None:
    def planned() -> object:
        return run_estimate(operator, agent=reader, dataset=bills, config=CONFIG)

    def started() -> object:
        return run_start(operator, agent=reader, dataset=bills, config=CONFIG)

    by_domain = 'UPPER("experiences_promptpack"."domain"'
    assert asked_for(by_domain, planned) == asked_for(by_domain, started) == 1


# -- a whole run, and the interfaces -----------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_whole_run_has_its_pack_in_the_prompt_and_its_lessons_hold_for_that_pack(
    operator: Actor,
    adam: Any,
    server: ModelServer,
    billing: PromptPack,
    bills: Dataset,
    settings: Any,
    client: Client,
    olivia: Any,
) -> None:
    settings.JOB_SLICE_SECONDS = settings.JOB_ROUND_SECONDS = 600
    reader = reader_at(adam, server.base_url)
    run = run_start(operator, agent=reader, dataset=bills, config=CONFIG)
    pack_update(Actor(adam), billing, system="You answer about bills, briefly.", keep_lessons=True)
    assert run_to_end(run.job).status == Status.COMPLETED
    assert run_to_end(Job.objects.get(kind="evaluation")).status == Status.COMPLETED
    prompts = {str(one["content"]).split("\n")[0] for call in server.requests for one in call.body["messages"][:1]}
    assert {one for one in prompts if one.startswith("You answer")} == {"You answer about bills."}, "to the last proof"
    rows = list(Experience.objects.filter(agent=reader))
    assert rows and {stamps(rows)[row.pk].pack for row in rows} == {billing}
    manifest = run_manifest(TrainingRun.objects.get(pk=run.pk))
    assert manifest["agent"]["prompt_pack"] == "billing" and manifest["agent"]["prompt_pack_by_domain"]
    assert manifest["guard_rails"]["stamps"]["held"] and manifest["guard_rails"]["word_limit"]["limit"] == 40
    # The next run of the same data goes on from it, under the same prompt.
    pack_update(Actor(adam), billing, system="You answer about bills.", keep_lessons=True)
    second = launched(operator, reader, bills)
    assert second.continues_id == run.pk and second.origin["weight"] == 1.0
    pack_update(Actor(adam), billing, system="You answer about bills, in rhymes.")
    third = launched(operator, reader, bills)
    assert third.continues_id == run.pk and third.origin["weight"] == 0.25 and third.origin["changed"] == ["prompt"]
    client.force_login(olivia)
    assert "it is for the domain of the data" in html(client.get(f"/jobs/{run.pk}/?tab=settings"))


def test_rest_names_domains_and_packs(
    console: Client,  # noqa: F811
    adam: Any,
    reader: Agent,
    billing: PromptPack,
    lessons: tuple[Experience, Experience],
) -> None:
    body = {"name": "bills", "domain": "billing", "rows": ROWS}
    made = console.post("/api/v1/datasets", body, content_type="application/json")
    assert made.status_code == 201 and made.json()["domain"] == "billing"
    of_bills = console.get("/api/v1/datasets", {"domain": "BILLING"}).json()["results"]
    assert [one["id"] for one in of_bills] == [made.json()["id"]]
    values = {"agent": reader.slug, "dataset_id": made.json()["id"], "config": CONFIG}
    plan = console.post("/api/v1/training-jobs/estimate", values, content_type="application/json").json()
    job = console.post("/api/v1/training-jobs", values, content_type="application/json").json()
    assert plan["prompt"] == job["estimate"]["prompt"]
    assert job["estimate"]["prompt"]["pack_id"] == str(billing.pk) and job["estimate"]["prompt"]["by_domain"]
    assert console.get(f"/api/v1/agents/{reader.slug}").json()["pack_by_domain"] is True
    address = f"/api/v1/experiences/{lessons[1].pk}"
    assert asked_for('"experiences_promptpack"."archived_at"', lambda: console.get(address)) == 1
    lesson = console.get(address).json()
    assert lesson["prompt_pack_id"] == str(billing.pk) and lesson["stamp_fault"] == ""
    assert ">billing</a>" in html(console.get(f"/experiences/{lessons[1].pk}/"))
    path = f"/api/v1/datasets/{made.json()['id']}"
    patched = console.patch(path, {"domain": ""}, content_type="application/json")
    assert patched.status_code == 200 and patched.json()["domain"] == ""
    assert console.patch(path, {"domain": "x" * 61}, content_type="application/json").status_code == 400
