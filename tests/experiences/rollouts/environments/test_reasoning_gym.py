"""The embedded environment: fair splits, honest scoring, rarely solved by chance, always by the right tools."""

from __future__ import annotations

import json
from collections import Counter
from decimal import getcontext
from typing import Any

import pytest

from experiences.rollouts.collect import RolloutLimits, RolloutPlan, collect
from experiences.rollouts.environments import environments
from experiences.rollouts.environments.generators import GeneratedItem, Generators
from experiences.rollouts.environments.reasoning_gym import FAMILIES, SPLITS, ReasoningGymEnvironment
from experiences.rollouts.environments.tool_episode import ToolWorld
from experiences.rollouts.rewards import rewards
from experiences.rollouts.runtimes.action import ActionRuntime
from experiences.rollouts.types import RolloutKey, Scenario, Trajectory
from tests.support.chains import CHAINS, expert
from tests.support.rounds import rounds
from tests.support.waiting import UniformChooser


@pytest.fixture(scope="module")
def environment() -> ReasoningGymEnvironment:
    return environments.get("reasoning_gym")({})  # type: ignore[return-value]


async def played(environment: Any, scenarios: Any, chooser: Any, samples: int, seed: int = 5) -> list[Trajectory]:
    return await collect(
        [(RolloutKey(0, s.index, k), s) for s in scenarios for k in range(samples)],
        RolloutPlan(
            environment=environment,
            runtime=ActionRuntime(chooser),
            reward=rewards.get("shaped")({}),
            seed=seed,
            limits=RolloutLimits(),
        ),
        kept={},
        keep=lambda _: None,
    )


def success_rate(trajectories: list[Trajectory]) -> float:
    assert not [t.error for t in trajectories if t.error]
    return sum(t.success for t in trajectories) / len(trajectories)


def names(environment: Any) -> list[str]:
    return [action.name for action in environment.actions]


def test_environment_has_sixteen_families_two_of_them_chains_and_sixteen_tools(environment: Any) -> None:
    assert len(FAMILIES) == 16
    assert sorted(map(len, CHAINS.values()))[-3:] == [1, 2, 2]
    kinds = Counter(action.kind for action in environment.actions)
    assert kinds == {"tool": 16, "verify": 1, "answer": 1}
    assert environment.lines == ("harder_numbers", "unseen_wording")


# -- scenarios -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_environment_shares_no_item_and_no_text_between_splits(environment: Any, seed: int) -> None:
    sets = {split: environment.scenarios(split, 96, seed) for split in SPLITS}
    for kind in ("item", "text"):
        values = [_item(s) if kind == "item" else s.query for scenarios in sets.values() for s in scenarios]
        assert len(set(values)) == 3 * 96


def _item(scenario: Scenario) -> tuple[Any, ...]:
    return (scenario.expected["generator"], scenario.expected["difficulty"], scenario.expected["item"])


def test_environment_shares_no_text_between_splits_of_different_seeds_either(environment: Any) -> None:
    """So a fresh test under another seed can't contain a question that some run was trained on."""
    trained = {s.query for seed in range(20) for s in environment.scenarios("train", 96, seed)}
    values = {s.query for seed in range(20) for s in environment.scenarios("held_out", 96, seed)}
    selected = {s.query for seed in range(20) for s in environment.scenarios("selection", 48, seed)}
    assert not trained & values and not trained & selected and not values & selected


def test_environment_shares_nothing_with_neighbouring_seeds_where_there_is_enough_to_draw_from(
    environment: Any,
) -> None:
    """reasoning-gym makes item i from Random(seed + i), so its own datasets of seeds 0 and 1 are nearly the same."""
    few = ("prime_factorization", "fraction_simplification", "lcm", "caesar_cipher")

    def texts(seed: int) -> set[str]:
        return {s.query for s in environment.scenarios("train", 160, seed) if s.metadata["family"] not in few}

    assert len(texts(0) & texts(1)) <= 3


@pytest.mark.parametrize("split", [*SPLITS, "harder_numbers", "unseen_wording"])
def test_environment_balances_families_and_is_deterministic(environment: Any, split: str) -> None:
    scenarios = environment.scenarios(split, 100, 3)
    assert [s.index for s in scenarios] == list(range(100))
    assert set(Counter(s.metadata["family"] for s in scenarios).values()) == {6, 7}
    again = environments.get("reasoning_gym")({}).scenarios(split, 100, 3)
    assert list(again) == list(scenarios)
    assert list(environment.scenarios(split, 40, 3)) == list(scenarios[:40])
    assert list(environment.scenarios(split, 40, 4)) != list(scenarios[:40])


def test_environment_keeps_the_extra_lines_apart_from_what_is_trained_on(environment: Any) -> None:
    trained = {s.query for seed in range(5) for s in environment.scenarios("train", 96, seed)}
    for line in environment.lines:
        assert not trained & {s.query for seed in range(5) for s in environment.scenarios(line, 96, seed)}


def test_environment_asks_the_same_held_out_items_in_unseen_words(environment: Any) -> None:
    held_out, reworded = (environment.scenarios(line, 96, 2) for line in ("held_out", "unseen_wording"))
    assert [_item(s) for s in held_out] == [_item(s) for s in reworded]
    assert not {s.query for s in held_out} & {s.query for s in reworded}
    assert {s.metadata["wording"] for s in reworded} == {"variant 4", "variant 5"}


def test_environment_mixes_wordings_but_never_trains_on_the_unseen_ones() -> None:
    environment = environments.get("reasoning_gym")({"wording": "mixed"})
    counts = Counter(s.metadata["wording"] for s in environment.scenarios("train", 320, 1))
    assert set(counts) == {"original", "variant 1", "variant 2", "variant 3"}
    assert min(counts.values()) > 40


def test_environment_makes_harder_numbers_harder(environment: Any) -> None:
    def longest(split: str) -> int:
        texts = [s.query for s in environment.scenarios(split, 160, 1) if s.metadata["family"] == "chain_sum"]
        return max(len(word) for text in texts for word in text.split() if word.isdigit())

    assert longest("held_out") <= 4 < longest("harder_numbers") <= 8


def test_environment_gives_the_agent_nothing_but_text_last_result_and_history(environment: Any) -> None:
    [scenario] = environment.scenarios("train", 1, 0)
    import numpy as np

    observation = environment.start(scenario, np.random.default_rng(0)).observe()
    assert observation._fields == ("query", "last", "done", "mask")
    assert (observation.query, observation.last, observation.done) == (scenario.query, "", ())
    assert scenario.metadata["family"] not in scenario.query
    assert scenario.expected["answer"] not in observation.last


def test_environment_can_be_stored_as_json_and_scored_by_another_process() -> None:
    first, second = (environments.get("reasoning_gym")({}) for _ in range(2))
    for scenario in first.scenarios("held_out", 64, 9):
        stored = json.loads(json.dumps({"expected": dict(scenario.expected), "metadata": dict(scenario.metadata)}))
        again = Scenario(scenario.index, scenario.query, stored["expected"], stored["metadata"])
        outcome = second.world.score(str(scenario.expected["answer"]), again)
        assert outcome.success, scenario


def test_environment_fills_up_from_other_families_where_one_has_no_more_questions() -> None:
    environment = environments.get("reasoning_gym")({"families": ["prime_factorization", "gcd"]})
    scenarios = environment.scenarios("selection", 500, 0)
    counts = Counter(s.metadata["family"] for s in scenarios)
    assert counts["prime_factorization"] < 250 < counts["gcd"]
    assert len({s.query for s in scenarios}) == 500
    alone = environments.get("reasoning_gym")({"families": ["prime_factorization"]})
    with pytest.raises(ValueError, match=r"only \d+ different questions for 'selection'; 500 were asked for"):
        alone.scenarios("selection", 500, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": []}, "has no option 'family'. Known: .*families"),
        ({"families": ["gdc"]}, "no generator 'gdc'. Known: .*gcd"),
        ({"families": "gcd"}, "families must be a list"),
        ({"families": []}, "families must be a list"),
        ({"wording": "strange"}, "wording must be one of original, mixed"),
        ({"traps": "many"}, "traps must be one of three, all, none"),
        ({"timeout_rate": 0.9}, "timeout_rate must be a number from 0 to 0.5"),
        ({"timeout_rate": True}, "timeout_rate must be a number"),
    ],
)
def test_environment_refuses_wrong_options_and_says_what_is_right(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        environments.get("reasoning_gym")(options)


def test_environment_refuses_unknown_splits_and_sizes(environment: Any) -> None:
    with pytest.raises(ValueError, match=r"no split 'test'\. Known: train, selection, held_out, harder_numbers"):
        environment.scenarios("test", 10, 0)
    with pytest.raises(ValueError, match="at least 1; got 0"):
        environment.scenarios("train", 0, 0)


def test_environment_offers_any_generator_of_reasoning_gym() -> None:
    environment = environments.get("reasoning_gym")({"families": ["basic_arithmetic", "gcd", "family_relationships"]})
    scenarios = environment.scenarios("train", 30, 1)
    assert set(Counter(s.metadata["family"] for s in scenarios).values()) == {10}
    assert {s.metadata["family"] for s in environment.scenarios("unseen_wording", 10, 1)} == {"gcd"}
    assert all(environment.world.score(s.expected["answer"], s).success for s in scenarios)
    assert environments.get("reasoning_gym")({"families": ["family_relationships"]}).lines == ()


def test_environment_does_not_let_a_generator_change_the_threads_decimal_precision() -> None:
    """One item of decimal_arithmetic sets the precision of the thread from 28 to 12: fatal beside money."""
    before = getcontext().prec
    environment = environments.get("reasoning_gym")({"families": ["decimal_arithmetic", "decimal_chain_sum"]})
    for scenario in environment.scenarios("train", 20, 1):
        environment.world.score(scenario.expected["answer"], scenario)
    assert getcontext().prec == before


def test_leak_of_decimal_precision_would_be_noticed() -> None:
    """The leak is real: without protection the precision does change (else the test above proves nothing)."""
    from decimal import localcontext

    import reasoning_gym

    with localcontext() as context:
        before = context.prec
        reasoning_gym.create_dataset("decimal_arithmetic", seed=1, size=1)[0]
        assert context.prec < before


# -- scoring ---------------------------------------------------------------------------------------------------


def test_environment_scores_and_counts_an_exception_of_a_verifier_as_zero() -> None:
    environment = environments.get("reasoning_gym")({"families": ["prime_factorization"]})
    world: ToolWorld = environment.world  # type: ignore[attr-defined]
    [scenario] = environment.scenarios("train", 1, 1)
    outcome = world.score("two times three", scenario)
    assert (outcome.score, outcome.success, world.scorer_errors) == (0.0, False, 1)
    assert outcome.evidence["scorer_error"].startswith("ValueError")


def test_environment_calls_part_credit_no_success(environment: Any) -> None:
    scenario = next(s for s in environment.scenarios("train", 64, 1) if s.metadata["family"] == "chain_sum")
    outcome = environment.world.score(f"perhaps {scenario.expected['answer']}", scenario)
    assert 0 < outcome.score < 0.99 and not outcome.success


@pytest.mark.parametrize("family", FAMILIES)
def test_environment_makes_an_item_from_its_number_alone(family: str) -> None:
    """Items are remembered by number, so the dataset they are made with must not matter."""
    import reasoning_gym

    theirs = reasoning_gym.create_dataset(family, seed=123_456_700, size=100)[89]
    ours = Generators().entry(GeneratedItem(family, "default", 123_456_789))
    assert (ours["question"], ours["answer"]) == (theirs["question"], theirs["answer"])


# -- how hard it is --------------------------------------------------------------------------------------------


@pytest.mark.slow(reason="4,800 episodes")
@pytest.mark.rounds
async def test_environment_is_rarely_solved_untrained(environment: Any) -> None:
    """Four samples each, uniform choice: .13 with a standard error of .005 for 1,200 items; the promise is less than
    .15."""
    items, error = rounds((300, 0.01), (1200, 0.005))
    trajectories = await played(environment, environment.scenarios("held_out", items, 21), UniformChooser(), 4)
    assert 0.13 - 6 * error < success_rate(trajectories) < 0.13 + 3 * error


async def test_environment_is_always_solved_by_the_right_tools_with_verifying(environment: Any) -> None:
    for line in ("held_out", *environment.lines):
        scenarios = environment.scenarios(line, 400, 22)
        trajectories = await played(environment, scenarios, expert(names(environment), scenarios, verifies=True), 1)
        assert success_rate(trajectories) > 0.98
        assert max(len(t.steps) for t in trajectories) <= 20


async def test_environment_makes_verifying_worth_its_price(environment: Any) -> None:
    scenarios = environment.scenarios("held_out", 800, 23)
    rates, steps = {}, {}
    for verifies in (False, True):
        chooser = expert(names(environment), scenarios, verifies=verifies)
        trajectories = await played(environment, scenarios, chooser, 1)
        rates[verifies] = success_rate(trajectories)
        steps[verifies] = sum(len(t.steps) for t in trajectories) / len(trajectories)
    assert 0.90 < rates[False] < 0.96 and rates[True] > rates[False] + 0.03
    assert 2.0 < steps[False] < 2.5 and 3.3 < steps[True] < 3.8


async def test_the_same_seed_has_the_same_faults_with_any_policy(environment: Any) -> None:
    """Paired comparisons need it: the first tool call of two different policies fails for both or for neither."""
    scenarios = environment.scenarios("held_out", 300, 24)
    tools = names(environment)

    def first_fails(chooser: Any, trajectories: list[Trajectory]) -> list[bool]:
        return [t.steps[0].result["error"].startswith("timeout") for t in trajectories]

    right = await played(environment, scenarios, expert(tools, scenarios, verifies=True), 1)
    uniform = await played(environment, scenarios, UniformChooser(), 1)
    assert first_fails(None, right) == first_fails(None, uniform)
    assert 3 < sum(first_fails(None, right)) < 30
