"""Options of rewards and environments as fields of the forms of agents and launches."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from agentcore_site.jobs.models import Job, Status
from experiences.agents.option_fields import OptionInput, option_inputs
from experiences.models import Agent
from experiences.rollouts.environments import environments
from experiences.rollouts.options import Option
from experiences.rollouts.rewards import rewards
from tests.support.pages import html
from training.models import TrainingRun

PLUGINS = [(registry, name) for registry in (rewards, environments) for name in registry.names()]


def form_of(agent: Agent, **more: Any) -> dict[str, Any]:
    kept = {"name": agent.name, "slug": agent.slug, "runtime": agent.runtime, "environment": "reasoning_gym"}
    return kept | {"philosophy": agent.philosophy, "environment_options.shown": "reasoning_gym"} | more


@pytest.mark.parametrize(("registry", "name"), PLUGINS)
def test_each_default_is_what_its_input_holds(registry: Any, name: str) -> None:
    for one in option_inputs(registry, name):
        default = one.option.choices[0] if one.option.choices else one.option.default
        if default not in (None, "", (), {}):
            read = one.value(one.text(default))
            assert one.shows(default) and read == (list(default) if one.kind == "names" else default), one.name


@pytest.mark.parametrize(
    ("option", "typed", "value"),
    [
        (Option("", 3, 1, 9), "4", 4),
        (Option("", 0.5, 0, 1), "0.25", 0.25),
        (Option("", 3, 1, 9), "many", "many"),  # the service refuses it
        (Option("", True), "false", False),
        (Option("", choices=("a", "b")), "b", "b"),
        (Option("", {}), '{"a": 1}', {"a": 1}),
        (Option("", {}), "a = 1", "a = 1"),
        (Option("", ("x",)), " gcd, lcm ,", ["gcd", "lcm"]),
        (Option("", ""), "a text, with 1 comma", "a text, with 1 comma"),
    ],
)
def test_what_is_typed_becomes_a_value_of_the_options_kind(option: Option, typed: str, value: Any) -> None:
    read = OptionInput("some", option).value(typed)
    assert read == value and type(read) is type(value)


@pytest.mark.django_db
def test_an_agents_options_are_typed_in_fields_and_come_back_in_them(console: Client, agent: Agent) -> None:
    typed = {
        "reward": "composite",
        "reward_options.shown": "composite",
        "reward_options.formulas": "feedback_loop",
        "reward_options.window": "500",
        "reward_options.completion": "",
        "environment_options.families": "gcd, lcm",
        "environment_options.pool.train": "50",
        "environment_options.traps": "",
    }
    answer = console.post(f"/agents/{agent.pk}/edit/", form_of(agent, **typed))
    assert answer.status_code == 302, html(answer)
    agent.refresh_from_db()
    assert agent.reward_options == {"formulas": "feedback_loop", "window": 500}
    assert agent.environment_options == {"families": ["gcd", "lcm"], "pool": {"train": 50}}
    page = html(console.get(f"/agents/{agent.pk}/edit/"))
    for name, value in (("reward_options.window", "500"), ("environment_options.pool.train", "50")):
        assert re.search(rf'name="{re.escape(name)}"[^>]*\svalue="{value}"', page), name
    assert page.count('.as_json"') == 2 and "checked" not in page.split('name="reward_options.as_json"')[1][:20]


@pytest.mark.django_db
def test_a_wrong_value_stays_typed_and_its_reason_is_shown(console: Client, agent: Agent) -> None:
    page = html(
        console.post(f"/agents/{agent.pk}/edit/", form_of(agent, **{"environment_options.timeout_rate": "often"}))
    )
    assert 'value="often"' in page and "must be a number from 0 to 0.5" in page


@pytest.mark.django_db
def test_json_counts_where_it_is_chosen_and_is_open_where_fields_cannot_hold_the_options(
    console: Client, agent: Agent
) -> None:
    chosen = {"environment_options.as_json": "on", "environment_options": '{"families": ["gcd"]}'}
    ignored = {"environment_options.families": "lcm"}
    assert console.post(f"/agents/{agent.pk}/edit/", form_of(agent, **chosen, **ignored)).status_code == 302
    agent.refresh_from_db()
    assert agent.environment_options == {"families": ["gcd"]}
    Agent.objects.filter(pk=agent.pk).update(environment_options={"families": {"of": "another release"}})
    page = html(console.get(f"/agents/{agent.pk}/edit/"))
    assert "<details open>" in page and "another release" in page


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("reward=judge", "reward_options.rubric"),
        ("environment=workbench", "environment_options.families"),
        ("reward=", "reward_options.as_json"),
        ("environment=no", "environment_options.as_json"),
    ],
)
def test_fields_follow_the_choice(console: Client, query: str, shown: str) -> None:
    assert f'name="{shown}"' in html(console.get(f"/agents/options/?{query}"))


def launched(console: Client, agent: Agent, **typed: str) -> dict[str, Any]:
    """The configuration of a job that the launch form started."""
    answer = console.post("/launch/", {"agent": str(agent.pk), "n_iterations": "2", **typed})
    assert answer.status_code == 302, html(answer)
    config = TrainingRun.objects.latest("job__created_at").configuration.as_dict()
    Job.objects.update(status=Status.CANCELLED)
    return config


@pytest.mark.django_db
def test_a_launch_shows_the_options_of_its_reward_and_takes_what_is_typed(console: Client, agent: Agent) -> None:
    Agent.objects.filter(pk=agent.pk).update(reward="composite", reward_options={"window": 500})
    page = html(console.get(f"/launch/?agent={agent.pk}"))
    assert "Options of composite" in page and re.search(r'name="reward_options.window"[^>]*\svalue="500"', page)
    shown = {"reward_options.shown": "composite", "reward_options.window": "500"}
    assert launched(console, agent, **shown)["reward_options"] == {"window": 500}  # the agent's own
    more = launched(console, agent, **shown, **{"reward_options.formulas": "feedback_loop"})
    assert more["reward_options"] == {"window": 500, "formulas": "feedback_loop"}
    none = {"reward_options.shown": "composite"}
    assert launched(console, agent, **none)["reward_options"] == {}
    page = html(console.post("/launch/", {"agent": str(agent.pk), "n_iterations": "many", **none}))
    assert re.search(r'name="reward_options.window"[^>]*\svalue=""', page)  # emptied stays empty


@pytest.mark.django_db
def test_options_of_another_reward_are_left_behind_and_a_wrong_one_stays_typed(console: Client, agent: Agent) -> None:
    left = {"reward": "judge", "reward_options.shown": "composite", "reward_options.window": "500"}
    page = html(console.post("/launch/settings/", {"agent": str(agent.pk), **left}))
    assert "Options of judge" in page and 'name="reward_options.rubric"' in page and "500" not in page
    wrong = {"reward": "composite", "reward_options.shown": "composite", "reward_options.window": "often"}
    answer = console.post("/launch/", {"agent": str(agent.pk), **wrong})
    assert answer.status_code == 400 and re.search(r'name="reward_options.window"[^>]*\svalue="often"', html(answer))
