"""The launch form: what was typed stays, the plan follows, and what is wrong is said where it is."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from agentcore_site.tenancy.actors import Actor
from budgets.services import price_set
from experiences.agents.services.agents import agent_create
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent, Dataset, ModelEndpoint
from tests.console.conftest import SignIn
from tests.support.llm_server import ModelServer
from tests.support.pages import html
from tests.support.rows import queued_run
from training.config.applicability import counts_for
from training.config.form import fields, groups
from training.models import TrainingRun

pytestmark = pytest.mark.django_db

ROWS = [{"query": f"What is {i} + {i}?", "expected_outcome": {"answer": str(2 * i)}} for i in range(30)]


def file_of(rows: list[Any] | None = None, name: str = "sums.jsonl") -> SimpleUploadedFile:
    content = "\n".join(json.dumps(row) for row in (ROWS if rows is None else rows))
    return SimpleUploadedFile(name, content.encode())


def text(response: Any) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html(response)))


def test_form_starts_a_job_from_the_agents_environment(console: Client, agent: Agent) -> None:
    form = {"agent": agent.pk, "source": "environment", "preset": "recommended", "n_iterations": "25"}
    form |= {"title": "First try", "priority": "0", "shaping.tool": "0.05", "dynamic_sampling": "true", "std_ddof": "0"}
    response = console.post("/launch/", form)
    run = TrainingRun.objects.select_related("job").get()
    assert response["Location"] == f"/jobs/{run.pk}/"
    assert (run.job.title, run.job.priority, run.total_iterations) == ("First try", 0, 25)
    assert run.config["shaping"]["tool"] == 0.05 and run.config["dynamic_sampling"] is True
    assert run.config["std_ddof"] == 0 and run.config["batch_size"] == 4  # the preset's


def test_an_uploaded_file_becomes_a_dataset(console: Client, agent: Agent) -> None:
    form = {"agent": agent.pk, "source": "upload", "preset": "recommended", "n_iterations": "5", "file": file_of()}
    assert console.post("/launch/", form).status_code == 302
    dataset = Dataset.objects.get()
    assert (dataset.name, dataset.size, TrainingRun.objects.get().dataset) == ("sums", 30, dataset)


def test_a_mistake_keeps_everything_that_was_typed_and_the_upload(console: Client, agent: Agent) -> None:
    form = {"agent": agent.pk, "source": "upload", "preset": "dapo", "n_iterations": "0", "learning_rate": "fast"}
    response = console.post("/launch/", form | {"title": "Kept", "gamma": "0.9", "file": file_of()})
    shown = html(response)
    assert response.status_code == 400 and TrainingRun.objects.count() == 0
    assert "n_iterations must be between 1 and 10,000; got" in shown
    assert "learning_rate must be a number" in shown
    for kept in ('value="Kept"', 'value="0.9"', 'value="fast"', 'value="dapo" checked'):
        assert kept in shown, kept
    assert re.search(rf'value="{Dataset.objects.get().pk}" selected', shown)
    assert '<details class="card" open><summary class="fold">Advanced settings' in shown


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.jsonl", b'{"query": "a", "expected_outcome": {"answer": "b"}}\nnope', "Line 2 is not JSON"),
        ("bad.csv", b"alpha,beta\n1,2\n", "No column is named like a query"),
        ("bad.jsonl", b'{"query": "  "}', "Row 1"),
        ("bad.jsonl", b"", "At least one query"),
        ("bad.jsonl", b"\xff\xff", "not UTF-8"),
    ],
)
def test_an_invalid_upload_is_reported_by_line(
    console: Client, agent: Agent, name: str, content: bytes, message: str
) -> None:
    response = console.post("/launch/upload/", {"agent": agent.pk, "file": SimpleUploadedFile(name, content)})
    assert message in text(response)
    assert "<html" not in html(response)
    assert Dataset.objects.count() == 0


def test_an_upload_is_shown_with_its_first_rows_and_moves_the_plan(console: Client, agent: Agent) -> None:
    response = console.post("/launch/upload/", {"agent": agent.pk, "file": file_of()})
    assert "sums: 30 queries" in text(response) and "What is 2 + 2?" in text(response)
    assert response["HX-Trigger-After-Settle"] == "planned"


def test_the_plan_shows_cost_time_and_the_smallest_provable_effect(
    console: Client, agent: Agent, operator: Actor
) -> None:
    form = {"agent": agent.pk, "preset": "recommended", "n_iterations": "50", "max_budget_usd": "12"}
    shown = text(console.post("/launch/plan/", form))
    assert "50 × 4 queries × 4 rollouts" in shown and "800 at most" in shown
    assert "at 80 % power" in shown and "Launch for up to $12.00" in shown
    few = dataset_create(operator, name="few", rows=ROWS)
    shown = text(console.post("/launch/plan/", form | {"source": "dataset", "dataset": few.pk}))
    assert "6 held-out queries" in shown and "Add queries" in shown


def test_the_plan_asks_for_what_is_missing_and_names_what_is_wrong(console: Client, agent: Agent) -> None:
    assert "Choose or upload a dataset" in text(console.post("/launch/plan/", {"agent": agent.pk, "source": "dataset"}))
    shown = text(console.post("/launch/plan/", {"agent": agent.pk, "batch_size": "200", "gamma": "2"}))
    assert "batch_size must be between 1 and 128" in shown and "gamma must be" in shown
    assert "disabled" in html(console.post("/launch/plan/", {"agent": agent.pk, "gamma": "2"}))


def test_another_preset_moves_the_values_behind_what_was_typed(console: Client, agent: Agent) -> None:
    form = {"agent": agent.pk, "preset": "flow_spec", "learning_rate": "0.02"}
    shown = html(console.post("/launch/settings/", form))
    assert re.search(r'name="batch_size" value="" placeholder="16"', shown)
    assert 'value="0.02"' in shown and "1 changed" in text(console.post("/launch/settings/", form))


def test_a_duplicate_starts_from_the_same_agent_data_and_settings(
    console: Client, operator: Actor, agent: Agent
) -> None:
    run = queued_run(operator, agent, config={"learning_rate": 0.007, "mask_truncated": True})
    shown = html(console.get(f"/launch/?from={run.pk}"))
    assert re.search(rf'value="{agent.pk}" selected', shown)
    assert 'value="0.007"' in shown and re.search(r'name="mask_truncated">.*?value="true" selected', shown, re.S)


def test_every_setting_that_counts_for_the_agent_is_on_the_form_with_its_effect(console: Client, agent: Agent) -> None:
    shown = html(console.get(f"/launch/?agent={agent.pk}"))
    advanced = {one.name for members in groups().values() for one in members}
    assert advanced | {"max_budget_usd"} == set(fields())
    for field in fields().values():
        assert (f'name="{field.name}"' in shown) == counts_for(field.name, agent.runtime), field.name
        assert field.title and field.description, field.name


def test_a_second_job_of_a_busy_agent_is_refused_in_words(console: Client, operator: Actor, agent: Agent) -> None:
    queued_run(operator, agent)
    response = console.post("/launch/", {"agent": agent.pk, "preset": "recommended"})
    assert response.status_code == 409 and "already has an active training job" in text(response)


def test_an_agent_that_trains_on_datasets_needs_one(console: Client, operator: Actor) -> None:
    own = agent_create(operator, name="Reader", environment="dataset")
    response = console.post("/launch/", {"agent": own.pk, "preset": "recommended"})
    assert response.status_code == 400 and "Choose a dataset" in text(response)


def test_all_mistakes_of_a_launch_are_said_in_one_answer_each_at_its_field(console: Client, agent: Agent) -> None:
    form = {"agent": agent.pk, "source": "dataset", "not_before": "tomorrow", "gamma": "2", "n_iterations": "0"}
    response = console.post("/launch/", form)
    shown = text(response)
    assert response.status_code == 400 and "4 things must be corrected" in shown
    for message in ("Choose a dataset, or upload", "Give the start as", "gamma must be", "n_iterations must be"):
        assert shown.count(message) >= 2, message  # above the form, and at the field


def test_the_form_asks_for_agent_data_and_budget_and_offers_what_the_last_job_had(
    console: Client, operator: Actor, agent: Agent
) -> None:
    shown = html(console.get(f"/launch/?agent={agent.pk}"))
    questions = re.findall(r"<legend>(\d\. \w+)</legend>", shown)
    assert questions == ["1. Agent", "2. Data", "3. Budget"]
    assert "Use its data and settings" not in shown
    run = queued_run(operator, agent, config={"learning_rate": 0.007})
    shown = html(console.get(f"/launch/?agent={agent.pk}"))
    assert f'href="/launch/?from={run.pk}">Use its data and settings' in shown


def test_a_start_that_is_no_date_is_said_at_its_field(console: Client, agent: Agent) -> None:
    response = console.post("/launch/", {"agent": agent.pk, "not_before": "tomorrow", "source": "environment"})
    assert response.status_code == 400 and "Give the start as a date and a time" in text(response)


def test_agents_and_datasets_of_others_can_not_be_chosen(
    console: Client, charlie: Any, signed_in: SignIn, agent: Agent
) -> None:
    theirs = agent_create(charlie, name="Theirs")
    rows = dataset_create(charlie, name="theirs", rows=ROWS)
    response = console.post("/launch/", {"agent": theirs.pk, "not_before": "tomorrow"})
    assert response.status_code == 400 and "There is no agent" in text(response)
    assert "Give the start as" in text(response)
    response = console.post("/launch/", {"agent": agent.pk, "source": "dataset", "dataset": rows.pk})
    assert response.status_code == 400 and TrainingRun.objects.count() == 0
    assert console.get(f"/launch/?agent={theirs.pk}").status_code == 200
    assert "Theirs" not in html(console.get(f"/launch/?agent={theirs.pk}"))


# -- agents ------------------------------------------------------------------------------------------------------------


def test_an_agent_is_made_changed_and_archived(console: Client) -> None:
    form = {"name": "Clerk", "philosophy": "react", "runtime": "action", "environment": "reasoning_gym"}
    made = console.post("/agents/new/", form | {"environment_options": '{"families": ["gcd"]}'})
    agent = Agent.objects.get()
    assert made["Location"] == f"/agents/{agent.pk}/" and agent.environment_options == {"families": ["gcd"]}
    assert "families" in html(console.get(f"/agents/{agent.pk}/edit/"))
    console.post(f"/agents/{agent.pk}/edit/", form | {"name": "Head clerk"})
    agent.refresh_from_db()
    assert (agent.name, agent.slug, agent.environment_options) == ("Head clerk", "clerk", {})
    console.post(f"/agents/{agent.pk}/archive/")
    assert "Head clerk is archived" in text(console.get("/agents/"))
    assert "Head clerk" not in text(console.get("/agents/"))
    assert "Head clerk" in text(console.get("/agents/?show=archived"))
    assert "/launch/?agent=" not in html(console.get(f"/agents/{agent.pk}/"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "required"),
        ({"slug": "Not a slug!"}, "slug"),
        ({"environment": "nowhere"}, "nowhere"),
        ({"environment_options": "{not json"}, "This is not JSON"),
        ({"environment_options": "[1]"}, "Options are an object"),
        ({"environment_options": '{"families": ["alchemy"]}'}, "alchemy"),
        ({"environment_options": '{"colour": 1}'}, "colour"),
    ],
)
def test_an_error_of_an_agent_is_shown_at_its_field(console: Client, change: dict[str, str], message: str) -> None:
    form = {"name": "Clerk", "description": "Kept words", "philosophy": "react", "runtime": "action"}
    response = console.post("/agents/new/", form | {"environment": "reasoning_gym"} | change)
    assert response.status_code == 400 and message in text(response)
    assert "Kept words" in text(response) and Agent.objects.count() == 0


def test_a_slug_that_is_taken_is_said_at_its_field(console: Client, agent: Agent) -> None:
    form = {"name": "Another", "slug": agent.slug, "philosophy": "react", "runtime": "action"}
    response = console.post("/agents/new/", form | {"environment": "reasoning_gym"})
    assert response.status_code == 409 and "Choose another" in text(response)


def test_the_form_asks_for_its_agent_once_and_not_for_each_setting(
    console: Client, agent: Agent, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(26):
        console.get(f"/launch/?agent={agent.pk}")


def test_the_description_of_a_dataset_is_shown_beside_the_dataset_and_in_an_upload(
    console: Client, operator: Actor, agent: Agent
) -> None:
    rows = dataset_create(operator, name="sums", rows=ROWS)
    form = {"agent": agent.pk, "source": "dataset", "dataset": rows.pk}
    shown = html(console.post("/launch/domain/", form | {"dataset_domain": "Billing"}))
    rows.refresh_from_db()
    assert rows.domain == "Billing" and 'value="Billing"' in shown
    assert "can&#x27;t be kept" in html(console.post("/launch/domain/", form | {"dataset_domain": "x" * 61}))
    console.post("/launch/domain/", form)
    rows.refresh_from_db()
    assert rows.domain == ""
    console.post("/launch/upload/", {"agent": agent.pk, "domain": "poetry", "file": file_of()})
    assert Dataset.objects.latest("created_at").domain == "poetry"


def test_another_agent_or_dataset_changes_what_can_be_chosen(console: Client, operator: Actor, agent: Agent) -> None:
    reader = agent_create(operator, name="Reader", environment="dataset")
    rows = dataset_create(operator, name="sums", rows=ROWS)
    shown = html(console.post("/launch/data/", {"agent": reader.pk}))
    assert re.search(r'value="environment" disabled', shown) and re.search(r'value="dataset" checked', shown)
    shown = html(console.post("/launch/data/", {"agent": agent.pk, "source": "dataset", "dataset": rows.pk}))
    assert "sums: 30 queries" in shown and "<html" not in shown
    assert 'placeholder="375"' in shown  # the settings follow: other agents have other presets


# -- model endpoints ---------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_an_admin_makes_an_endpoint_and_an_operator_an_agent_with_that_endpoint(
    adam: Any, console: Client, signed_in: SignIn
) -> None:
    with ModelServer(brain=lambda _: "I am ready.") as server:
        boss = signed_in(adam)
        price_set(
            Actor(adam),
            model="small",
            organization=adam.memberships.get().organization,
            input_micros=1_000,
            output_micros=1_000,
        )
        form = {"name": "local", "kind": "openai", "base_url": server.base_url, "model": "small", "api_key": "sk-abc"}
        refused = boss.post("/endpoints/new/", form | {"base_url": "ftp://x", "options": '{"timeout_s": 3}'})
        assert (
            refused.status_code == 400
            and "begins with http:// or https://" in text(refused)
            and "ftp://x" in html(refused)
        )
        made = boss.post("/endpoints/new/", form)
        endpoint = ModelEndpoint.objects.get()
        assert made["Location"] == f"/endpoints/{endpoint.pk}/" and "sk-abc" not in endpoint.api_key
        shown = html(boss.get(f"/endpoints/{endpoint.pk}/")) + html(boss.get("/endpoints/"))
        assert "sk-abc" not in shown and endpoint.api_key not in shown
        moved = boss.post(f"/endpoints/{endpoint.pk}/", form | {"base_url": "http://other.example/v1", "api_key": ""})
        assert moved.status_code == 400 and "enter it again" in text(moved)
        tried = console.post("/endpoints/test/", {"endpoint": endpoint.pk})
        assert "I am ready." in text(tried) and "The endpoint answered in" in text(tried)
        agent_form = {"name": "Talker", "philosophy": "cot", "runtime": "llm", "environment": "dataset"}
        lost = console.post("/agents/new/", agent_form)
        assert lost.status_code == 400 and "Choose a model endpoint" in text(lost)
        console.post("/agents/new/", agent_form | {"endpoint": endpoint.pk, "tools": ["int_calc"], "max_tokens": "99"})
    agent = Agent.objects.get(name="Talker")
    assert (agent.endpoint, agent.tools, agent.max_tokens, agent.collects) == (endpoint, ["int_calc"], 99, True)
    assert "small" in text(console.get(f"/agents/{agent.pk}/"))
    kept = boss.post(f"/endpoints/{endpoint.pk}/archive/")
    assert kept.status_code == 409 and "Talker use it" in text(kept)
    assert console.get("/endpoints/new/").status_code == 403
