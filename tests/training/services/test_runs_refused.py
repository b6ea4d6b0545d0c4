"""Jobs whose service refuses them: they pause with the service's words, and no verdict says that all was well."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.models import Job, JobEvent, Status
from agentcore_site.jobs.services import job_resume
from agentcore_site.tenancy.actors import Actor
from budgets.services import price_set
from experiences.agents.services.agents import agent_create
from experiences.agents.services.endpoints import endpoint_create, endpoint_test, endpoint_update
from experiences.models import Agent, TrajectoryRecord
from tests.support.dialects import Body, Dialect, DialectServer, Refusal, reasoning_model
from tests.support.llm_server import ModelServer
from tests.support.pages import html
from tests.support.running import run_to_end
from tests.support.shop_model import ShopModel
from training.data.sample import sample_rows
from training.models import TrainingRun
from training.services.runs import run_start

pytestmark = pytest.mark.django_db(transaction=True)

ROWS = [{"query": f"What is {n} + {n + 3}?", "expected_outcome": {"answer": 2 * n + 3}} for n in range(24)]
CONFIG = {
    "n_iterations": 1,
    "batch_size": 4,
    "n_trajectories_per_query": 3,
    "eval_samples": 1,
    "max_budget_usd": 0.5,
    "max_concurrent_rollouts": 4,
    "selection_share": 0.1,
    "selection_least": 1,
    "context": {"propose": False, "gate_samples": 1, "gate_steps": 1, "accept_weak_gate": True},
    "seed": 3,
}


class Moody(DialectServer):
    """A service that refuses as ``refuses`` says now."""

    def __init__(self) -> None:
        self.refuses: Callable[[Body], Refusal] = lambda _: None
        super().__init__(Dialect("moody", "http://moody.example/v1", "small", lambda body: self.refuses(body)))


@pytest.fixture
def server() -> Iterator[Moody]:
    with Moody() as running:
        yield running


@pytest.fixture
def asked_agent(adam: Any, server: Moody) -> Agent:
    actor = Actor(adam)
    price_set(
        actor, model="small", organization=adam.memberships.get().organization, input_micros=10**6, output_micros=10**6
    )
    endpoint = endpoint_create(
        actor, name="local", base_url=server.base_url, model="small", api_key="x", options={"max_retries": 0}
    )
    return agent_create(
        actor, name="Adder", runtime="llm", philosophy="cot", environment="dataset", endpoint=endpoint, max_tokens=60
    )


def start(actor: Actor, agent: Agent, **changes: Any) -> TrainingRun:
    return run_start(actor, agent=agent, rows=ROWS, config=CONFIG | changes)


def test_a_job_that_is_refused_from_the_start_pauses_and_goes_on_once_the_options_fit(
    operator: Actor, adam: Any, asked_agent: Agent, server: Moody
) -> None:
    server.refuses = reasoning_model
    run = start(operator, asked_agent)
    job = run_to_end(run.job)
    assert (job.status, job.status_reason) == (Status.PAUSED, "llm_refused")
    assert "'max_tokens' is not supported" in job.error and "max_tokens_field may help (max_completion" in job.error
    assert "Test the endpoint" in job.error
    assert server.refused <= 3 + CONFIG["max_concurrent_rollouts"]

    found = endpoint_test(Actor(adam), endpoint=asked_agent.endpoint, save=True)
    assert found.saved and found.options == {
        "max_retries": 0, "max_tokens_field": "max_completion_tokens", "leave_out": ["temperature"]
    }  # fmt: skip
    job_resume(operator, job)
    job = run_to_end(Job.objects.get(id=job.id))
    assert job.status == Status.COMPLETED
    assert TrajectoryRecord.objects.filter(job_id=job.id, purpose="training", success=True).exists()


def test_refusals_after_a_good_start_are_counted_in_the_verdict(
    operator: Actor, asked_agent: Agent, server: Moody
) -> None:
    answered: list[Body] = []

    def refuses(body: Body) -> Refusal:
        a = int(re.findall(r"(\d+) \+", str(body["messages"]))[-1])
        if a % 2 and len(answered) > 3:
            return 400, {"error": {"message": "filtered: Jane Doe", "code": "content_filter"}}
        answered.append(body)
        return None

    server.refuses = refuses
    run = start(operator, asked_agent, n_iterations=3)
    assert run_to_end(run.job).status == Status.COMPLETED
    run.refresh_from_db()
    refused = TrajectoryRecord.objects.filter(job_id=run.pk, purpose="training", error__startswith="refused: ").count()
    assert 0 < refused < 36
    said = f"Of 36 rollouts {refused} were refused by the model's service."
    assert said in run.verdict["verdict"] and "filtered" in run.verdict["verdict"]


@pytest.mark.parametrize("queries", [1, 24])
def test_a_run_of_which_all_rollouts_fail_says_that_nothing_could_be_learned(
    operator: Actor, asked_agent: Agent, server: Moody, queries: int
) -> None:
    """The content of one query is refused, so that the job does not pause; of many it is."""
    server.refuses = lambda _: (400, {"error": {"message": "filtered", "code": "content_filter"}})
    rows = [ROWS[0]] * 3 if queries == 1 else ROWS
    config = CONFIG | {"selection_share": 0.34, "batch_size": 1} if queries == 1 else CONFIG
    run = run_start(operator, agent=asked_agent, rows=rows, config=config)
    job = run_to_end(run.job)
    run.refresh_from_db()
    if queries == 1:
        assert job.status == Status.COMPLETED
        assert run.verdict["verdict"].startswith(
            "Nothing could be learned: 3 of 3 rollouts were refused by the model's service. The latest words: 400: filt"
        )
    else:
        assert (job.status, job.status_reason) == (Status.PAUSED, "llm_refused")
        assert "filtered" in job.error


def test_a_reflector_that_is_refused_is_no_run_without_a_useful_lesson(
    operator: Actor, asked_agent: Agent, server: Moody
) -> None:
    server.refuses = lambda body: (400, {"detail": "not for you"}) if "lesson" in str(body).lower() else None
    said = itertools.count()

    def brain(messages: list[dict[str, Any]]) -> str:
        a, b = map(int, re.findall(r"(\d+) \+ (\d+)", str(messages))[-1])
        return f"Answer: {a + b + next(said) % 2}"  # right every other time

    server.brain = brain
    run = start(operator, asked_agent, context=CONFIG["context"] | {"propose": True})
    assert run_to_end(run.job).status == Status.COMPLETED
    run.refresh_from_db()
    assert "gave no usable answer" in run.verdict["verdict"] and "not for you" in run.verdict["verdict"]
    assert "No useful lesson" not in run.verdict["verdict"]


def test_a_prompt_that_the_service_cut_is_said_and_its_rollout_does_not_count(
    operator: Actor, asked_agent: Agent, server: Moody
) -> None:
    asked_agent.system_prompt = "Mind each of these words. " * 200
    asked_agent.save()
    server.count = lambda _: 2  # it says that it read two tokens of each message
    run = start(operator, asked_agent)
    assert run_to_end(run.job).status == Status.COMPLETED
    run.refresh_from_db()
    assert run.verdict["verdict"].startswith("Nothing could be learned: 12 of 12 rollouts lost a part of their prompt")
    assert "num_ctx" in run.verdict["verdict"]


def test_a_call_of_a_tool_as_text_is_a_warning_of_the_job(operator: Actor, asked_agent: Agent, server: Moody) -> None:
    asked_agent.philosophy, asked_agent.tools = "react", ["calculator"]
    asked_agent.save()
    text = '<tool_call>{"name": "calculator", "arguments": {"expression": "1 + 1"}}</tool_call>'
    server.brain = lambda _: text
    run = start(operator, asked_agent)
    job = run_to_end(run.job)
    warned = JobEvent.objects.filter(job=job, type="warning", message__contains="--tool-call-parser")
    assert warned.count() == 1


def test_the_launch_form_tests_before_it_spends_and_the_page_saves_what_it_finds(
    olivia: Any, adam: Any, asked_agent: Agent, server: Moody, client: Client
) -> None:
    server.refuses = reasoning_model
    form = {"agent": str(asked_agent.pk), "source": "environment", "preset": "recommended"}
    client.force_login(olivia)
    refused = client.post("/launch/", form).content.decode()
    assert "service refuses what this job would send" in refused and "max_completion_tokens" in refused
    assert not TrainingRun.objects.filter(agent=asked_agent).exists()
    shown = client.post("/endpoints/test/", {"endpoint": str(asked_agent.endpoint_id)}).content.decode()
    assert "leave_out" in shown and "Save these options" not in shown  # an operator may not

    client.force_login(adam)
    shown = client.post("/endpoints/test/", {"endpoint": str(asked_agent.endpoint_id)}).content.decode()
    assert "Save these options" in shown
    assert "<dt>JSON</dt>" in shown and 'id="id_options"' not in shown
    saved = client.post("/endpoints/test/", {"endpoint": str(asked_agent.endpoint_id), "save": "yes"})
    assert "These options were saved" in saved.content.decode()
    # The form beside the test shows what was saved, so that its button does not save the former options again.
    field = re.search(r'<textarea[^>]*id="id_options"[^>]*>(.*?)</textarea>', saved.content.decode(), re.DOTALL)
    assert field is not None and 'hx-swap-oob="true"' in field[0] and "temperature" in field[1]
    asked_agent.endpoint.refresh_from_db()
    assert asked_agent.endpoint.options["leave_out"] == ["temperature"]

    path = f"/api/v1/model-endpoints/{asked_agent.endpoint_id}/test/"
    found = client.post(path, {}, content_type="application/json").json()
    assert found["ok"] and [part["name"] for part in found["parts"]] == ["chat", "tools", "json", "stream"]
    assert (found["options"], found["saved"]) == ({}, False)

    asked = len(server.requests)
    client.force_login(olivia)
    accepted = client.post("/launch/", form)
    assert "service refuses" not in accepted.content.decode()
    assert len(server.requests) == asked  # the test of a moment ago counts
    assert AuditEvent.objects.filter(action="endpoint.tested", after__ok=True).exists()

    endpoint_update(Actor(adam), asked_agent.endpoint, options={"max_retries": 0})
    assert "service refuses what this job" in client.post("/launch/", form).content.decode()


@pytest.mark.parametrize(
    ("refusal", "step"),
    [
        ((401, {"error": {"message": "Incorrect API key provided"}}), "or its rights at the service"),
        ((404, {"error": {"message": "The model does not exist"}}), "Correct the name of the model"),
        ((402, {"error": {"message": "Insufficient Balance"}}), "Add credit"),
        (
            (400, {"error": {"message": "triggering our content management policy", "code": "content_filter"}}),
            "filter refuses the words",
        ),
        ((429, {"error": {"message": "Slow down"}}), "Wait a while"),
    ],
)
def test_a_test_that_fails_names_the_step_to_take(
    adam: Any, asked_agent: Agent, server: Moody, client: Client, refusal: Refusal, step: str
) -> None:
    server.refuses = lambda _: refusal
    client.force_login(adam)
    assert step in html(client.post("/endpoints/test/", {"endpoint": str(asked_agent.endpoint_id)}))


def test_a_run_whose_attempts_never_differ_says_so(operator: Actor, asked_agent: Agent, server: Moody) -> None:
    run = start(operator, asked_agent)
    assert run_to_end(run.job).status == Status.COMPLETED
    run.refresh_from_db()
    said = "No useful lesson was found. In each of 4 groups all attempts at a query had the same reward"
    assert said in run.verdict["verdict"] and "raise the temperature" in run.verdict["verdict"]


def test_a_run_whose_proposals_were_all_refused_says_why(operator: Actor, adam: Any) -> None:
    with ModelServer(brain=ShopModel(when=False)) as shop:
        endpoint = endpoint_create(Actor(adam), name="shop", base_url=shop.base_url, model="shop", api_key="x")
        price_set(Actor(adam), model="shop", organization=endpoint.organization, free=True)
        agent = agent_create(operator, name="Sorter", runtime="llm", environment="dataset", endpoint=endpoint)
        config = CONFIG | {"batch_size": 20, "n_iterations": 2, "context": CONFIG["context"] | {"propose": True}}
        run = run_start(operator, agent=agent, rows=sample_rows(), config=config)
        assert run_to_end(run.job).status == Status.COMPLETED
    run.refresh_from_db()
    said = r"No useful lesson was found. All (\d+) proposals were refused, most often because (.*)\."
    found = re.search(said, run.verdict["verdict"])
    assert found and int(found[1]) > 1 and found[2] == 'it does not begin with "When"'
