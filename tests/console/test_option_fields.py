"""Options of rewards and environments as fields of the agent's form."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from experiences.agents.option_fields import OptionInput, option_inputs
from experiences.models import Agent
from experiences.rollouts.environments import environments
from experiences.rollouts.options import Option
from experiences.rollouts.rewards import rewards
from tests.support.pages import html

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
