"""Defaults of a launch: the agent's own reward and the site's settings, at every interface."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client

from agentcore_site import env
from agentcore_site.jobs import lifecycle
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from experiences.agents.services.agents import agent_update
from experiences.models import Agent
from tests.factories import OrganizationFactory
from tests.support.callers import Caller
from tests.support.pages import html
from training.config.presets import preset_config
from training.models import TrainingRun
from training.schema import GRPOConfig
from training.services.runs import run_start

pytestmark = pytest.mark.django_db

OWN = {"reward": "composite", "reward_options": {"feedback": 0.5}}


@pytest.fixture(autouse=True)
def fresh_limits() -> None:
    cache.clear()


@pytest.fixture
def paid(operator: Actor, agent: Agent) -> Agent:
    """An agent with a reward of its own."""
    return agent_update(operator, agent, **OWN)


def by_form(olivia: Any, agent: Agent, config: dict[str, Any]) -> None:
    client = Client()
    client.force_login(olivia)
    texts = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in config.items()}
    answer = client.post("/launch/", {"agent": agent.pk, "preset": "recommended", **texts})
    assert answer.status_code == 302, answer.content


def by_rest(olivia: Any, agent: Agent, config: dict[str, Any]) -> None:
    answer = Caller(olivia).post("training-jobs", {"agent": agent.slug, "config": config})
    assert answer.status_code == 201, answer.content


def by_rpc(olivia: Any, agent: Agent, config: dict[str, Any]) -> None:
    params = {"agent_id": agent.slug, "environment": agent.environment, "config": config}
    Caller(olivia).result("training.start_grpo", params)


def by_command(olivia: Any, agent: Agent, config: dict[str, Any]) -> None:
    with NamedTemporaryFile("w", suffix=".json") as file:
        file.write(json.dumps(config))
        file.flush()
        asked = ["--agent", agent.slug, "--environment", agent.environment, "--config", file.name]
        call_command("train", *asked, stdout=StringIO(), stderr=StringIO())


INTERFACES = [by_form, by_rest, by_rpc, by_command]
Launch = Callable[[Any, Agent, dict[str, Any]], None]


def launched() -> GRPOConfig:
    return TrainingRun.objects.get().configuration


@pytest.mark.parametrize("launch", INTERFACES)
def test_a_job_is_paid_by_the_reward_of_its_agent(launch: Launch, olivia: Any, paid: Agent) -> None:
    launch(olivia, paid, {"n_iterations": 1})
    assert (launched().reward, launched().reward_options) == (OWN["reward"], OWN["reward_options"])


@pytest.mark.parametrize("launch", INTERFACES)
def test_a_launch_that_names_another_takes_none_of_its_options(launch: Launch, olivia: Any, paid: Agent) -> None:
    launch(olivia, paid, {"n_iterations": 1, "reward": "outcome"})
    assert (launched().reward, launched().reward_options) == ("outcome", {})


@pytest.mark.parametrize("launch", INTERFACES)
def test_options_of_a_launch_take_the_place_of_the_agents(launch: Launch, olivia: Any, paid: Agent) -> None:
    launch(olivia, paid, {"n_iterations": 1, "reward_options": {"efficiency": 0.4}})
    assert (launched().reward, launched().reward_options) == ("composite", {"efficiency": 0.4})


def test_an_agent_without_one_is_paid_as_the_preset_says(olivia: Any, agent: Agent) -> None:
    by_rest(olivia, agent, {"n_iterations": 1})
    assert launched() == preset_config().model_copy(update={"n_iterations": 1})


def test_the_form_shows_what_an_empty_field_means(olivia: Any, paid: Agent, settings: Any) -> None:
    settings.TRAINING_DEFAULT_BUDGET_USD = 12.5
    client = Client()
    client.force_login(olivia)
    shown = html(client.get(f"/launch/?agent={paid.pk}"))
    assert re.search(r'name="reward"[^>]*>\s*<option value="">composite</option>', shown)
    assert "Options of composite" in shown
    assert re.search(r'name="max_budget_usd" value="" placeholder="12.5"', shown)


def test_a_duplicate_is_the_same_job_when_the_defaults_have_moved(olivia: Any, agent: Agent, settings: Any) -> None:
    first = run_start(Actor(olivia), agent=agent, config={"n_iterations": 1})
    lifecycle.cancel(Actor(olivia), first.job)
    agent_update(Actor(olivia), agent, **OWN)
    settings.TRAINING_CHECKPOINT_INTERVAL = 3
    client = Client()
    client.force_login(olivia)
    page = html(client.get(f"/launch/?from={first.pk}"))
    assert re.search(r'<option value="shaped" selected>\s*shaped', page) and "Options of shaped" in page
    assert re.search(r'name="checkpoint_interval" value="10"', page)


# -- the agent's form and REST -----------------------------------------------------------------------------------------


def test_a_person_sets_the_default_reward_in_the_agents_form(olivia: Any, agent: Agent) -> None:
    client = Client()
    client.force_login(olivia)
    kept = {"name": agent.name, "philosophy": "react", "runtime": "action", "environment": "reasoning_gym"}
    address = f"/agents/{agent.pk}/edit/"
    given = {"reward": "composite", "reward_options": '{"feedback": 0.5}', "grouped_execution": "on", "evolves": "on"}
    assert client.post(address, kept | given | {"ace_max_sections": "7"}).status_code == 302
    agent.refresh_from_db()
    assert {"reward": agent.reward, "reward_options": agent.reward_options} == OWN
    assert (agent.grouped_execution, agent.evolves, agent.ace_max_sections) == (True, True, 7)
    shown = html(client.get(address))
    assert '<option value="composite" selected>' in shown and 'name="ace_max_sections" value="7"' in shown
    refused = client.post(address, kept | given | {"reward_options": '{"speed": 1}', "ace_max_sections": "99"})
    assert refused.status_code == 400 and "ACE_MAX_SECTIONS" in html(refused)


def test_rest_sets_the_default_reward_and_says_what_is_wrong(olivia: Any, stella: Any, agent: Agent) -> None:
    api = Caller(olivia)
    answer = api.patch(f"agents/{agent.slug}", {**OWN, "evolves": True, "ace_min_confidence": 0.9})
    assert answer.status_code == 200, answer.content
    body = api.get(f"agents/{agent.slug}").json()
    assert (body["reward"], body["evolves"], body["ace_min_confidence"]) == ("composite", True, 0.9)
    assert body["grouped_execution"] is False and body["ace_max_sections"] is None
    refused = api.patch(f"agents/{agent.slug}", {"reward": "nothing"})
    assert refused.status_code == 400 and "nothing" in json.dumps(refused.json())
    assert Caller(stella).patch(f"agents/{agent.slug}", {"evolves": False}).status_code == 403


# -- rollouts in groups ------------------------------------------------------------------------------------------------


def test_an_agent_is_trained_in_groups_only_where_that_is_switched_on(
    operator: Actor, agent: Agent, settings: Any
) -> None:
    Agent.objects.filter(pk=agent.pk).update(runtime="llm")
    agent.refresh_from_db()
    settings.LLM_BASE_URL, settings.LLM_MODEL = "http://127.0.0.1:9/v1", "small"
    with pytest.raises(Invalid, match="off for this agent") as refused:
        run_start(operator, agent=agent, preset="tfgrpo")
    assert list(refused.value.fields) == ["algorithm"]
    agent.grouped_execution = True
    settings.FEATURE_TFGRPO_GROUP = False
    with pytest.raises(Invalid, match="FEATURE_TFGRPO_GROUP=0"):
        run_start(operator, agent=agent, preset="tfgrpo")


# -- the site's settings -----------------------------------------------------------------------------------------------


def read(**variables: str) -> subprocess.CompletedProcess[str]:
    names = ("TRAINING_DEFAULT_BUDGET_USD", "TRAINING_CHECKPOINT_INTERVAL", "TRAINING_MAX_CONCURRENT_ROLLOUTS")
    code = f"from agentcore_site import settings; print([getattr(settings, name) for name in {names}])"
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | variables, cwd=env.ROOT, capture_output=True, text=True
    )


def test_the_settings_of_training_are_read_from_the_environment() -> None:
    ended = read(TRAINING_DEFAULT_BUDGET_USD="25", TRAINING_CHECKPOINT_INTERVAL="5")
    assert ended.stdout.strip() == "[25.0, 5, 8]", ended.stderr


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TRAINING_DEFAULT_BUDGET_USD", "0", "TRAINING_DEFAULT_BUDGET_USD must be between 0.01 and 1e+09; got 0."),
        ("TRAINING_CHECKPOINT_INTERVAL", "often", "TRAINING_CHECKPOINT_INTERVAL must be a whole number; got 'often'."),
        ("TRAINING_MAX_CONCURRENT_JOBS", "0", "TRAINING_MAX_CONCURRENT_JOBS must be between 1 and 100000; got 0."),
        (
            "TRAINING_BUDGET_USD",
            "5",
            "TRAINING_BUDGET_USD is not a setting (did you mean TRAINING_DEFAULT_BUDGET",
        ),
    ],
)
def test_a_setting_that_can_not_be_used_stops_the_start(name: str, value: str, message: str) -> None:
    ended = read(**{name: value})
    assert ended.returncode != 0 and message in ended.stderr


def test_a_setting_may_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "interval"
    path.write_text("4\n")
    assert read(TRAINING_CHECKPOINT_INTERVAL_FILE=str(path)).stdout.strip() == "[100, 4, 8]"


def test_a_launch_takes_the_defaults_of_the_site_unless_its_configuration_has_others(
    operator: Actor, agent: Agent, settings: Any
) -> None:
    settings.TRAINING_DEFAULT_BUDGET_USD = 2.5
    settings.TRAINING_CHECKPOINT_INTERVAL = 3
    settings.TRAINING_MAX_CONCURRENT_ROLLOUTS = 2
    run = run_start(operator, agent=agent, config={"n_iterations": 1, "checkpoint_interval": 6})
    found = run.configuration
    assert (found.max_budget_usd, found.checkpoint_interval, found.max_concurrent_rollouts) == (2.5, 6, 2)
    assert run.budget_micros == 2_500_000


def test_a_new_organisation_has_the_sites_number_of_jobs(settings: Any) -> None:
    assert OrganizationFactory().max_active_jobs == 200
    settings.JOBS_PER_ORGANIZATION = 7
    assert OrganizationFactory().max_active_jobs == 7
