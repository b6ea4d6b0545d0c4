"""Worlds on an environment server, over real sockets: a scripted model crafts its way through both dialects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentcore_site.jobs.models import Status
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from budgets.meter_port import FreeMeter
from budgets.services import price_set
from experiences.agents.forms import environment_choices
from experiences.agents.services.agents import agent_create
from experiences.agents.services.endpoints import endpoint_create
from experiences.models import TrajectoryRecord
from experiences.privacy import redaction
from experiences.rollouts.collect import RolloutLimits, RolloutPlan, collect_groups, run_rollout
from experiences.rollouts.environments import environments
from experiences.rollouts.environments.agentgym import AgentGymEnvironment, GymError
from experiences.rollouts.environments.agentgym.episode import action_in
from experiences.rollouts.environments.base import Environment, TextEpisode
from experiences.rollouts.runtimes.action import ActionRuntime
from experiences.rollouts.runtimes.llm import LLMRuntime, Sampling
from experiences.rollouts.types import RolloutKey, Scenario, Trajectory
from tests.experiences.rollouts.runtimes.test_llm import client_of, paid
from tests.support.agentgym_server import GOALS, PLANS, GymServer
from tests.support.llm_server import ModelServer
from tests.support.recipes import installed_from, run_tests_of
from tests.support.running import run_to_end
from training.services.runs import run_start

BOTH = pytest.mark.parametrize("dialect", ["A", "B"])


def gym(server: GymServer | str, **options: Any) -> AgentGymEnvironment:
    url = server if isinstance(server, str) else server.url
    made = environments.get("agentgym")({"base_url": url, "size": 30, "timeout_s": 5, **options})
    assert isinstance(made, AgentGymEnvironment)
    return made


def task(number: int) -> Scenario:
    return Scenario(0, f"Task {number}", {"data_idx": number})


def crafter(messages: list[dict[str, Any]]) -> str:
    """A model that follows the plan for the goal in its prompt, one step a message."""
    goal = messages[1]["content"].split("Goal: craft ")[1].split(".")[0]
    plan = PLANS[goal]
    done = sum(message["role"] == "assistant" for message in messages)
    return f"Thought: next.\nAction: {plan[min(done, len(plan) - 1)]}"


async def played(
    environment: Environment,
    scenario: Scenario,
    *,
    brain: Any = crafter,
    limits: RolloutLimits | None = None,
    philosophy: str = "react",
    check: Any = lambda: None,
) -> Trajectory:
    with ModelServer(brain=brain) as server:
        async with client_of(server, FreeMeter()) as model:
            return await run_rollout(
                scenario,
                RolloutKey(0, 0, 0),
                RolloutPlan(
                    environment=environment,
                    runtime=LLMRuntime(model, Sampling("small"), philosophy=philosophy),
                    reward=paid,
                    seed=1,
                    limits=limits or RolloutLimits(),
                    check=check,
                ),
            )


def started(environment: AgentGymEnvironment, number: int = 0) -> Any:
    return environment.start(task(number), np.random.default_rng(0))


# -- playing -----------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("philosophy", ["react", "cot"])
async def test_world_lets_a_model_craft_its_way_to_success(dialect: str, philosophy: str) -> None:
    with GymServer(dialect) as server:
        result = await played(gym(server, action_format="action_line"), task(1), philosophy=philosophy)
    assert (result.success, result.error, result.truncated) == (True, "", False)
    assert server.steps == PLANS["stick"]
    assert [step.action["parameters"]["text"] for step in result.steps] == PLANS["stick"]
    assert result.outcome == 1.0 and result.evidence["data_idx"] == 1 and result.evidence["done"]
    assert not server.sessions and server.opened == 1


async def test_its_first_message_has_the_instructions_and_the_first_observation() -> None:
    with GymServer() as server:
        episode = started(gym(server, instructions="Speak in commands."))
        assert isinstance(episode, TextEpisode) and not episode.one_answer
        assert server.opened == 0  # nothing is asked before the agent's first message
        opening = await episode.opening()
        assert opening.startswith("Speak in commands.\n\nCrafting commands:") and opening.endswith(
            "Goal: craft oak planks."
        )
        assert await episode.opening() == opening and server.opened == 1
        await episode.close()
        await episode.close()
    assert not server.sessions


async def test_world_does_not_ask_for_a_final_answer_in_a_world_that_answers_back() -> None:
    systems: list[str] = []

    def brain(messages: list[dict[str, Any]]) -> str:
        systems.append(messages[0]["content"])
        return crafter(messages)

    with GymServer() as server:
        await played(gym(server, action_format="action_line"), task(0), brain=brain)
    assert systems and not any("Answer:" in system for system in systems)


@BOTH
async def test_world_asks_for_the_observation_where_a_reset_returns_none(dialect: str) -> None:
    with GymServer(dialect, reset_observes=False) as server:
        episode = started(gym(server), 2)
        assert "Goal: craft crafting table." in await episode.opening()
        await episode.close()


@pytest.mark.parametrize("key", ["session_id", "item_id", "id"])
async def test_world_finds_out_the_name_of_a_task_in_dialect_b(key: str) -> None:
    with GymServer("B", task_key=key) as server:
        environment = gym(server)
        for number in (4, 5):
            episode = started(environment, number)
            await episode.opening()
            await episode.close()
        assert environment.server.reset_key == key
        assert [number for _, number in server.resets] == [4, 5]


async def test_world_resets_by_the_given_name() -> None:
    with GymServer("B", task_key="seed") as server:
        with pytest.raises(GymError, match="422"):
            await (lost := started(gym(server))).opening()
        await lost.close()
        episode = started(gym(server, reset_key="seed"))
        await episode.opening()
        await episode.close()
    assert len(server.resets) == 1 and not server.sessions


@BOTH
async def test_world_gives_every_rollout_of_a_task_a_session_of_its_own(dialect: str) -> None:
    with GymServer(dialect) as server, ModelServer(brain=crafter) as models:
        environment = gym(server, action_format="action_line")
        scenarios = environment.scenarios("train", 2, 7)
        async with client_of(models, FreeMeter()) as model:
            groups = await collect_groups(
                scenarios,
                RolloutPlan(
                    environment=environment,
                    runtime=LLMRuntime(model, Sampling("small")),
                    reward=paid,
                    seed=1,
                    limits=RolloutLimits(concurrency=8),
                ),
                iteration=0,
                group_size=4,
                kept={},
                keep=lambda _: None,
            )
    assert all(one.success for group in groups for one in group.trajectories)
    assert sorted(number for _, number in server.resets) == sorted(
        [scenario.expected["data_idx"] for scenario in scenarios] * 4
    )
    assert len({session for session, _ in server.resets}) == server.opened == 8
    assert not server.sessions


# -- rewards and errors ------------------------------------------------------------------------------------------------


async def test_world_latches_the_success_and_ignores_what_comes_after() -> None:
    with GymServer() as server:
        episode = started(gym(server))
        said = [await episode.say(action) for action in PLANS["oak planks"]]
        assert [one.done for one in said] == [False, True]
        again = await episode.say("get 1 oak log")
        assert again.done and len(server.steps) == 2  # the server would take it, and say done: false
        assert (episode.outcome().score, episode.outcome().success) == (1.0, True)
        await episode.close()


async def test_world_sums_rewards_and_reports_the_share_of_success() -> None:
    with GymServer() as server:
        episode = started(gym(server, success_reward=4))
        for action in PLANS["oak planks"]:
            last = await episode.say(action)
        assert last.done  # the server says so, though the reward is not enough
        outcome = episode.outcome()
        assert (outcome.score, outcome.success) == (0.25, False)
        await episode.close()


async def test_world_reports_an_error_under_http_200_as_a_failed_result() -> None:
    with GymServer() as server:
        episode = started(gym(server))
        await episode.opening()
        reply = await episode.say("explode now")
        assert not reply.done
        assert reply.result == {"success": False, "output": "", "error": "this world can't explode"}
        await episode.close()


async def test_world_does_not_send_a_message_without_an_action() -> None:
    with GymServer() as server:
        episode = started(gym(server, action_format="action_line"))
        reply = await episode.say("I wonder what to do.")
        assert 'after "Action:"' in reply.result["error"] and not reply.done and not server.steps
        await episode.close()


async def test_an_action_is_cleaned_as_agentgyms_own_client_of_textcraft_does() -> None:
    keep = {"action_format": "action_line", "action_keep": "A-Za-z0-9, ", "one_action": True}
    for written in ("get 1 oak log.", '"get 1 oak log"', "[get  1 oak log]\nget 2 sticks"):
        assert (
            gym("http://textcraft.example", **keep).server.action(f"Thought: x.\nAction: {written}") == "get 1 oak log"
        )
        plain = gym("http://textcraft.example", action_format="action_line").server
        assert plain.action(f"Action: {written}") == written
    with GymServer() as server:
        episode = started(gym(server, **keep))
        await episode.opening()
        reply = await episode.say("Action: get 1 oak log\nAction: get 2 sticks")
        assert "only one" in reply.result["error"] and not reply.done and not server.steps
        await episode.close()


@pytest.mark.parametrize("keep", ["^a", "a]+(b", "z-a", "a\\", "x" * 201, 5])
def test_the_pattern_of_actions_has_to_be_a_class_of_characters(keep: Any) -> None:
    with pytest.raises(ValueError, match="action_keep"):
        gym("http://textcraft.example", action_keep=keep)
    assert gym("http://textcraft.example", action_keep=r"a-z\]\[").server.action("click[x]!") == "click[x]"


@pytest.mark.parametrize("fault", ["hang_up", "bad_json", "huge", "nan", "redirect"])
async def test_world_fails_the_rollout_at_the_environment_when_a_step_is_unreadable(fault: str) -> None:
    with GymServer() as server:
        server.will("/step", "", fault)
        result = await played(gym(server, action_format="action_line"), task(1))
        assert result.error.startswith("environment: GymError"), result.error
        assert not result.success and result.outcome == 0 and len(result.steps) == 1
        assert not server.sessions


async def test_world_fails_when_a_step_is_not_answered_in_time() -> None:
    with GymServer() as server:
        server.will("/step", "hang")
        result = await played(gym(server, action_format="action_line", timeout_s=0.3), task(1))
        assert "no answer within 0.3 s" in result.error and not server.sessions


@pytest.mark.parametrize("fault", ["crash", "hang_up", "bad_json", "huge"])
@pytest.mark.parametrize("path", ["/create", "/reset"])
async def test_world_fails_at_the_environment_when_a_session_can_not_be_had(path: str, fault: str) -> None:
    with GymServer() as server:
        server.will(path, fault)
        result = await played(gym(server), task(0))
    assert result.error.startswith("environment: ") and not result.steps
    assert path == "/create" or not server.sessions


async def test_world_survives_a_crash_but_not_three_in_a_row() -> None:
    with GymServer() as server:
        environment = gym(server, action_format="action_line")
        server.will("/step", "crash", "crash")
        goes_on = await played(environment, task(0), brain=lambda messages: "Action: inventory",
                               limits=RolloutLimits(max_steps=4))  # fmt: skip
        server.will("/step", *["crash"] * 3)
        ends = await played(environment, task(0))
        assert not server.sessions
    assert [step.result["success"] for step in goes_on.steps] == [False, False, True, True] and goes_on.truncated
    assert ends.error.startswith("environment: GymError: 3 crashes in a row") and len(ends.steps) == 2


async def test_world_says_so_when_no_server_is_there() -> None:
    with GymServer() as server:
        url = server.url
    result = await played(gym(url), task(0))
    assert "environment: GymError: /create: the environment server can't be used" in result.error


# -- sessions are closed -----------------------------------------------------------------------------------------------


async def test_world_closes_the_session_of_a_rollout_that_ran_out_of_time() -> None:
    with GymServer() as server:
        server.will("/step", "hang")
        limits = RolloutLimits(timeout_seconds=0.5)
        result = await played(gym(server, action_format="action_line"), task(0), limits=limits)
        assert result.error.startswith("timeout") and server.opened == 1 and not server.sessions


@pytest.mark.parametrize("path", ["/create", "/step"])
async def test_world_closes_the_session_of_a_rollout_that_is_cancelled(path: str) -> None:
    with GymServer() as server:
        server.will(path, "slow" if path == "/create" else "hang")
        rollout = asyncio.create_task(played(gym(server, action_format="action_line"), task(0)))
        await asyncio.to_thread(server.arrived.wait, 5)
        rollout.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rollout
        assert server.opened == 1 and not server.sessions


async def test_world_closes_the_session_also_when_the_closing_is_cancelled() -> None:
    with GymServer() as server:
        episode = started(gym(server))
        await episode.opening()
        closing = asyncio.create_task(episode.close())
        await asyncio.sleep(0)  # it has begun, and nothing was sent yet
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        deadline = time.monotonic() + 5
        while server.sessions and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        assert not server.sessions


async def test_world_closes_the_session_of_a_rollout_that_a_person_stops() -> None:
    def stop() -> None:
        if server.steps:
            raise KeyError("paused")

    with GymServer() as server:
        with pytest.raises(KeyError, match="paused"):
            await played(gym(server, action_format="action_line"), task(1), check=stop)
        assert server.opened == 1 and not server.sessions


async def test_world_closes_the_session_when_the_model_fails() -> None:
    def broken(_: Any) -> str:
        return ""

    with GymServer() as server:
        result = await played(gym(server), task(0), brain=broken)
        assert result.error.startswith("model:") and server.opened == 1 and not server.sessions


async def test_world_lets_a_rollout_end_when_closing_fails() -> None:
    with GymServer() as server:
        server.will("/close", "crash")
        result = await played(gym(server, action_format="action_line"), task(0))
    assert result.success


# -- scenarios and options ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_world_splits_tasks_without_overlap(seed: int) -> None:
    environment = gym("http://gym.test", size=50)
    splits = {name: environment.scenarios(name, n, seed) for name, n in
              (("train", 25), ("selection", 5), ("held_out", 20))}  # fmt: skip
    numbers = [scenario.expected["data_idx"] for part in splits.values() for scenario in part]
    assert sorted(numbers) == list(range(50))
    assert len({scenario.query for part in splits.values() for scenario in part}) == 50
    assert [scenario.index for scenario in splits["train"]] == list(range(25))
    assert environment.scenarios("train", 25, seed) == splits["train"]
    assert environment.scenarios("train", 10, seed) == splits["train"][:10]


def test_world_shuffles_by_seed() -> None:
    environment = gym("http://gym.test", size=500)
    orders: set[Sequence[int]] = {
        tuple(scenario.expected["data_idx"] for scenario in environment.scenarios("train", 200, seed))
        for seed in range(3)
    }
    assert len(orders) == 3


def test_world_names_tasks_so_that_nothing_of_them_is_redacted() -> None:
    for number in range(40):
        environment = gym(f"http://10.1.{number}.7:36001", size=1_000_000)
        for scenario in environment.scenarios("held_out", 5, number):
            assert redaction.redact(scenario.query) == scenario.query


@pytest.mark.parametrize(
    ("split", "n", "said"),
    [("train", 16, "pool.train"), ("held_out", 13, "has 12"), ("all", 1, "no split"), ("train", 0, "at least 1")],
)
def test_world_refuses_tasks_that_are_not_there(split: str, n: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        gym("http://gym.test").scenarios(split, n, 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "size"),
        ({"size": 30}, "base_url"),
        ({"size": 9, "base_url": "http://a"}, "size"),
        ({"size": 30.0, "base_url": "http://a"}, "size"),
        ({"size": 30, "base_url": "ftp://a"}, "base_url"),
        ({"size": 30, "base_url": "http://"}, "base_url"),
        ({"size": 30, "base_url": "http://a:port"}, "base_url"),
        ({"size": 30, "base_url": "http://me:secret@a"}, "no user or password"),
        ({"size": 30, "base_url": "http://a/?x=1"}, "no query"),
        ({"size": 30, "base_url": "http://a", "dialect": "C"}, "dialect"),
        ({"size": 30, "base_url": "http://a", "success_reward": 0}, "success_reward"),
        ({"size": 30, "base_url": "http://a", "timeout_s": 0}, "timeout_s"),
        ({"size": 30, "base_url": "http://a", "reset_key": 3}, "reset_key"),
        ({"size": 30, "base_url": "http://a", "verify": False}, "no option 'verify'"),
    ],
)
def test_world_refuses_wrong_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        environments.get("agentgym")(options)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Thought: wood.\nAction: get 1 oak log", "get 1 oak log"),
        ("Thought: wood. Action: get 1 oak log", "get 1 oak log"),
        ("Action: a\nAction: b", "b"),
        ("**Action:** inventory", "inventory"),
        ("Action: `inventory`", "inventory"),
        ("Action:\n```\nSELECT 1;\nSELECT 2;\n```", "SELECT 1;\nSELECT 2;"),
        ("Action: inventory\nObservation: I have 64 diamonds", "inventory"),
        ("Action:   ", ""),
        ("Reaction: none", ""),
        ("just talk", ""),
    ],
)
def test_world_reads_the_action_of_a_message(text: str, action: str) -> None:
    assert action_in(text) == action


async def test_world_can_not_be_played_by_choosing_actions() -> None:
    class Chooser:
        version = "v"

        def choose(self, *_: Any, **__: Any) -> tuple[int, float]:
            raise AssertionError

    with GymServer() as server:
        rollout = await run_rollout(
            task(0),
            RolloutKey(0, 0, 0),
            RolloutPlan(
                environment=gym(server),
                runtime=ActionRuntime(Chooser()),
                reward=paid,
                seed=1,
                limits=RolloutLimits(),
            ),
        )
        assert "give the agent a language model" in rollout.error and server.opened == 0


@pytest.mark.django_db
@pytest.mark.parametrize(("runtime", "url"), [("action", ""), ("http", "http://agent.test/rollout")])
def test_world_is_refused_for_an_agent_that_can_not_talk(adam: Any, runtime: str, url: str) -> None:
    options = {"base_url": "http://gym.test", "size": 30}
    with pytest.raises(Invalid, match="conversation in text") as refused:
        agent_create(
            adam, name="Crafter", runtime=runtime, url=url, environment="agentgym", environment_options=options
        )
    assert set(refused.value.fields or {}) == {"runtime"}


def test_every_goal_of_the_test_world_has_a_plan() -> None:
    assert set(PLANS) == set(GOALS)


@pytest.mark.django_db(transaction=True)
def test_a_job_trains_in_agentgym_and_leaves_no_session_open(adam: Any) -> None:
    actor = Actor(adam)
    with GymServer("B") as server, ModelServer(brain=crafter) as models:
        price_set(
            actor,
            model="small",
            organization=adam.memberships.get().organization,
            input_micros=1000,
            output_micros=1000,
        )
        endpoint = endpoint_create(actor, name="local", base_url=models.base_url, model="small", api_key="sk-test-123")
        options = {"base_url": server.url, "size": 30, "action_format": "action_line"}
        agent = agent_create(
            actor,
            name="Crafter",
            runtime="llm",
            philosophy="react",
            environment="agentgym",
            environment_options=options | {"pool": {"train": 4, "selection": 2, "held_out": 4}},
            endpoint=endpoint,
            max_tokens=60,
        )
        config = {"n_iterations": 2, "batch_size": 2, "n_trajectories_per_query": 2, "eval_samples": 1,
                  "eval_interval": 2, "max_budget_usd": 0.5, "max_steps": 6, "seed": 3,
                  "context": {"accept_weak_gate": True}}  # fmt: skip
        job = run_to_end(run_start(actor, agent=agent, config=config).job)
        assert (job.status, job.error) == (Status.COMPLETED, "")
        assert server.opened >= 8 and not server.sessions
    kept = TrajectoryRecord.objects.filter(job_id=job.id, purpose="training")
    assert kept.count() == 8 and kept.filter(success=True).count() == 8


# -- the recipe --------------------------------------------------------------------------------------------------------


@pytest.fixture
def higher_lower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of docs/how-to/add-an-environment.md as installed packages."""
    installed_from("add-an-environment", tmp_path, monkeypatch, environments, "backwards", "backwards")
    installed_from("add-an-environment", tmp_path, monkeypatch, environments, "higher_lower", "factory")


def test_the_recipe_of_an_environment_works_word_for_word(higher_lower: None) -> None:
    assert run_tests_of("add-an-environment") == 3
    assert ("backwards", "Words backwards: Write a word backwards; for language models.") in environment_choices()
    assert ("higher_lower", "Higher or lower: Find a number by guesses; for language models.") in environment_choices()


async def test_an_agent_that_chooses_actions_is_refused_since_a_world_is_a_conversation(higher_lower: None) -> None:
    world = environments.get("higher_lower")({})
    rollout = await run_rollout(
        world.scenarios("train", 1, 0)[0],
        RolloutKey(0, 0, 0),
        RolloutPlan(
            environment=world,
            runtime=ActionRuntime(None),
            reward=paid,
            seed=1,
            limits=RolloutLimits(),
        ),
    )
    assert rollout.error == "environment: this environment is a conversation in text: give the agent a language model"
