"""The worlds of ``make bench ARGS=worlds``: what is drawn is as it is said, and the truth about it is computed."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from scipy import stats

from tests.performance.worlds import SIZES, Task, measured, parser, reachable, tasks
from tests.performance.worlds_summary import clopper_pearson, summary
from tests.support.simulated_habits import Habits
from tests.support.simulated_model import SimulatedModel
from tests.support.world import tokens_in
from tests.support.world_outside import OutsideG, OutsideV, OutsideW, OutsideWorld
from tests.support.world_second import SecondWorld, at_least
from tests.support.world_topics import TOPICS
from tests.support.world_truth import attainable
from tests.support.world_varied import ONE_IN, VariedWorld, Wording

SERVERS = pytest.mark.parametrize("world_of", [VariedWorld, SecondWorld])


@SERVERS
@pytest.mark.parametrize("seed", range(5))
def test_helpful_advice_touches_one_query_in_so_many(world_of: type[VariedWorld], seed: int) -> None:
    world = world_of(seed)
    asked = [found for row in world.rows(160, seed) for found in world.find(row["query"])]
    assert len(asked) == 160
    for one in world.helpful:
        touched = sum(one.logits.get(query.kind.name, 0) > 0 for query in asked)
        assert touched / 160 == pytest.approx(1 / ONE_IN[seed], rel=0.8 if world.variation.wording == "hidden" else 0)


@SERVERS
def test_queries_of_all_wordings_are_found_with_their_answers(world_of: type[VariedWorld]) -> None:
    for seed in range(20):
        world = world_of(seed)
        for row in world.rows(20, seed):
            (found,) = world.find(f"Task: {row['query']}")
            assert (found.query, found.answer) == (row["query"], row["expected_outcome"]["answer"])


def test_a_paraphrased_lesson_shares_no_word_with_the_topic_of_its_query() -> None:
    for topic in TOPICS:
        asked, taught = ({word for text in texts for word in text.split()} for texts in (topic.asked, topic.taught))
        assert not asked & taught and not taught & set(topic.name.split())


def test_lessons_name_the_topic_where_the_wording_says_so() -> None:
    values: dict[Wording, set[bool]] = {}
    for seed in range(20):
        world, rng = VariedWorld(seed), random.Random(seed)
        lessons = [world.lesson(world.helpful[0], kind, rng) for kind in world.kinds]
        values[world.variation.wording] = {any(topic.name in one for topic in world.topics) for one in lessons}
    assert values == {"named": {True}, "hidden": {True}, "paraphrased": {False}, "absent": {False}}


@SERVERS
def test_the_possible_gain_is_highest_with_a_context_of_each_query(world_of: type[VariedWorld]) -> None:
    for seed in range(10):
        world = world_of(seed)
        result = attainable(world, [row["query"] for row in world.rows(30, seed)])
        assert result.base <= result.fixed <= result.best + 1e-9
        if world.variation.wording == "hidden":
            assert reachable(world, result) == result.fixed_gain


def test_nothing_can_be_gained_where_no_advice_has_any_effect() -> None:
    world = VariedWorld(3, null=True)
    result = attainable(world, [row["query"] for row in world.rows(30, 3)])
    assert result.gain == result.fixed_gain == 0 and not world.helpful and not world.harmful


@SERVERS
def test_the_model_notes_the_true_probability_of_success_with_its_context(world_of: type[VariedWorld]) -> None:
    world = world_of(2)
    model, advice = SimulatedModel(world, Habits()), world.helpful[0]
    kind = next(one for one in world.kinds if advice.logits.get(one.name, 0) > 0)
    asked, system = world.task(kind, random.Random(1)), world.lesson(advice, kind, random.Random(2))
    messages = [{"role": "system", "content": system}, {"role": "user", "content": asked.query}]
    with model.truth() as noted:
        for seed in range(1_000):
            model.reply({"messages": messages, "seed": seed})
    (chances,) = noted.values()
    assert set(chances) == {world.chance(asked, (advice,), tokens_in(system))}
    answers = [model.reply({"messages": messages, "seed": n}).splitlines()[-1] for n in range(1_000)]
    right = sum(str(asked.answer) in answer for answer in answers)
    assert model.noted is None and right / 1_000 == pytest.approx(chances[0], abs=0.06)


def test_in_the_second_world_effects_do_not_add_up_and_length_costs() -> None:
    assert at_least(1, [0.5, 0.4]) == pytest.approx(0.7) and at_least(2, [0.5, 0.4]) == pytest.approx(0.2)
    world = SecondWorld(0)
    asked = world.find(world.rows(1, 0)[0]["query"])[0]
    few, many = (world.chance(asked, world.needed(asked.kind), tokens) for tokens in (50, 1_500))
    assert few > many > world.chance(asked, (), 50)


def test_a_repeating_reflector_answers_with_the_shown_text() -> None:
    world = VariedWorld(5)
    lesson = world.lesson(world.helpful[0], world.kinds[0], random.Random(1))
    schema = {"type": "object", "properties": {"lessons": {"type": "array", "items": {"type": "string"}}}}
    body = {
        "messages": [{"role": "user", "content": f"Known lessons:\n[G1] {lesson}\nWhat else? Answer in JSON."}],
        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
    }
    replies = [SimulatedModel(world, Habits(repeating=1.0), seed=seed).reply(body) for seed in range(20)]
    assert sum(lesson in one for one in replies) > 10


@pytest.mark.parametrize(("x", "n"), [(0, 200), (5, 200), (36, 40), (40, 40)])
def test_the_interval_of_a_share_is_the_exact_one(x: int, n: int) -> None:
    known = stats.binomtest(x, n).proportion_ci(0.95, "exact")
    assert clopper_pearson(x, n) == pytest.approx((known.low, known.high), abs=1e-9)


def test_the_sizes_share_their_worlds_and_a_gain_is_attainable_at_each_size() -> None:
    given = parser(None, "").parse_args(["--queries", "0", "--worlds", "3"])
    chosen = list(tasks(given))
    assert [one.queries for one in chosen] == [size for size in SIZES for _ in range(3)]
    for one in chosen:
        assert one.seed < 10 and attainable(one.world(), [row["query"] for row in one.rows(one.world())]).gain > 0.15


def test_a_short_run_reports_the_delivered_share_of_the_possible_gain() -> None:
    one = measured(Task(seed=5, queries=30, server="first", null=False, config={"n_iterations": 2}))
    assert one["held_out"] == 6 and one["calls"]["agent"] > 2 * 10 * 4 and one["attainable"] > 0.2
    assert one["shipped"] or one["delivered"] == 0
    assert "30" in summary([one, {**one, "null": True}, {"error": "x"}])


def test_the_bench_needs_no_django() -> None:
    code = "import sys, tests.performance.worlds; sys.exit('django' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


OUTSIDE = pytest.mark.parametrize("world_of", [OutsideWorld, OutsideV, OutsideW, OutsideG])


@OUTSIDE
def test_lessons_of_outside_worlds_have_one_clear_condition(world_of: type[OutsideWorld]) -> None:
    world, rng = world_of(9001), random.Random(1)
    assert [len(some) for some in (world.helpful, world.useless, world.harmful)] == [16, 24, 8]
    asked = [found for row in world.rows(64, 9001) for found in world.find(f"Task: {row['query']}")]
    assert len(asked) == 64
    for one in (*world.helpful, *world.harmful):
        touched = sum(query.kind.name in one.logits for query in asked)
        assert touched == (64 if world_of is OutsideG else 8)
    for query in asked:
        proposed = world.proposed("helpful", query.kind)
        assert len(proposed) == 2 and all(query.kind.name in one.logits for one in proposed)
        lesson = world.lesson(proposed[0], query.kind, rng)
        assert world.advice_of(lesson) is proposed[0] and query.kind.name in lesson
        assert (query.kind.name in query.query.lower()) == (world_of is not OutsideW)


def test_outside_worlds_differ_in_form_and_are_worth_learning_in() -> None:
    plain, varied = ([row["query"] for row in world(9002).rows(48, 1)] for world in (OutsideWorld, OutsideV))
    assert len({query.split()[0] for query in plain}) == 1 < len({query.split()[0] for query in varied})
    for world_of in (OutsideWorld, OutsideG):
        world = world_of(9002)
        found = attainable(world, [row["query"] for row in world.rows(8, 2)], fixed=False)
        assert 0.3 < found.gain < 0.7
    null = OutsideWorld(9002, null=True)
    assert not null.helpful and not null.harmful
