"""The simulated model: a world in which advice has a known worth, and a server that is proof against nothing."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from budgets.llm.errors import Permanent
from budgets.llm.types import Message
from experiences.rollouts.collect import RolloutLimits, RolloutPlan, collect
from experiences.rollouts.environments.answers import answer_in
from experiences.rollouts.environments.dataset import dataset_environment
from experiences.rollouts.rewards import rewards
from experiences.rollouts.runtimes.llm import LLMRuntime, Sampling
from experiences.rollouts.types import RolloutKey
from tests.support.llm_client import client, key
from tests.support.llm_server import ModelServer
from tests.support.pace import millions
from tests.support.simulated_habits import FORMS, INJECTIONS, Habits
from tests.support.simulated_model import SimulatedModel, simulated_server
from tests.support.world import Advice, World, sigmoid

SEEDS = range(12)
FORM = 'Think step by step.\n\nWhen you are done, write a last line that begins with "Answer:", followed by the answer.'

Schema = dict[str, Any]
LESSONS: Schema = {
    "type": "object",
    "properties": {
        "summaries": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"attempt": {"type": "integer"}, "summary": {"type": "string", "maxLength": 200}},
                "required": ["attempt", "summary"],
            },
        },
        "lessons": {
            "type": "array",
            "maxItems": 3,
            "items": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "reason": {"type": "string"},
                    "confidence": {"type": "number", "minimum": 0, "maximum": 1},
                    "category": {"enum": ["strategy", "mistake", "format"]},
                },
                "required": ["text", "reason", "confidence", "category"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["summaries", "lessons"],
    "additionalProperties": False,
}
OPERATIONS: Schema = {
    "$defs": {
        "Operation": {
            "type": "object",
            "properties": {
                "operation": {"type": "string", "enum": ["ADD", "UPDATE", "DELETE", "MERGE", "NONE"]},
                "id": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "content": {"type": ["string", "null"]},
                "rationale": {"type": "string"},
            },
            "required": ["operation", "id", "content", "rationale"],
        }
    },
    "type": "object",
    "properties": {"operations": {"type": "array", "items": {"$ref": "#/$defs/Operation"}, "maxItems": 5}},
    "required": ["operations"],
}
TAGS: Schema = {
    "type": "object",
    "properties": {
        "analysis": {"type": "string"},
        "tags": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "tag": {"type": "string", "enum": ["helpful", "harmful", "neutral"]},
                },
                "required": ["id", "tag"],
            },
        },
        "new": {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"when": {"type": "string"}, "do": {"type": "string"}},
                    "required": ["when", "do"],
                },
                {"type": "null"},
            ]
        },
    },
    "required": ["analysis", "tags", "new"],
}


def one_habit(name: str) -> Habits:
    """A model with this one habit, always."""
    changes: dict[str, Any] = {name: 1.0}
    return replace(Habits(), **changes)


def agent_messages(query: str, *advice: str) -> list[dict[str, str]]:
    system = "\n".join(("# What was learned", *advice, FORM) if advice else (FORM,))
    return [{"role": "system", "content": system}, {"role": "user", "content": query}]


def share(world: World, *advice: str, n: int = 1_500, around: Callable[[str], str] = str) -> float:
    """The share of right answers to ``n`` tasks with these lessons in the prompt."""
    model, right = SimulatedModel(world, Habits()), 0
    for row in world.rows(n, 5):
        reply = model(agent_messages(around(row["query"]), *advice))
        right += answer_in(reply).casefold() == str(row["expected_outcome"]["answer"]).casefold()
    return right / n


def tolerance(n: int) -> float:
    return 4 * math.sqrt(0.25 / n)


def reworded(world: World, advice: Sequence[Advice], seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    return [world.lesson(one, rng.choice(world.kinds), rng) for one in advice]


def reflection(world: World, items: Mapping[str, str] | None = None, extra: str = "") -> list[dict[str, str]]:
    """A learner's prompt: a task, two attempts at it that were played, and its earlier lessons."""
    model, (row,) = SimulatedModel(world, Habits()), world.rows(1, 3)
    attempts = [model(agent_messages(row["query"])) for _ in range(2)]
    known = [f"[{name}] {text}" for name, text in (items or {}).items()]
    parts = [
        f"Task: {row['query']}",
        *(f"### Attempt {n}\n{said}" for n, said in enumerate(attempts, 1)),
        "Known lessons:",
        *known,
        extra,
    ]
    return [
        {"role": "system", "content": "Compare the attempts and reply in JSON."},
        {"role": "user", "content": "\n".join(parts)},
    ]


def wanting(messages: list[dict[str, str]], schema: Schema) -> dict[str, Any]:
    """A request that asks for the schema in words."""
    asked = f"Reply with one JSON object that follows this schema:\n{json.dumps(schema)}"
    return {"model": "small", "messages": [*messages, {"role": "user", "content": asked}]}


# The world


@pytest.mark.parametrize("seed", SEEDS)
def test_each_query_is_found_again_with_its_one_answer(seed: int) -> None:
    world, rng = World(seed), random.Random(seed)
    rows = world.rows(400, 1)
    assert len({row["query"] for row in rows}) == 400 and world.rows(400, 1) == rows != world.rows(400, 2)
    assert 5 <= len(world.kinds) <= 8
    environment = dataset_environment(rows, {})
    for row, scenario in zip(rows, environment.scenarios("all", 400, 0), strict=True):
        (asked,) = world.find(f"Something before. {row['query']} And after.")
        assert (asked.query, asked.answer) == (row["query"], row["expected_outcome"]["answer"])
        assert environment.world.score(str(asked.answer), scenario).success
        assert not environment.world.score(asked.wrong(rng), scenario).success


@pytest.mark.parametrize("seed", SEEDS)
def test_advice_is_understood_in_any_wording_and_is_never_taken_for_another(seed: int) -> None:
    world, rng = World(seed), random.Random(seed)
    wordings: set[str] = set()
    for advice in world.advice:
        for _ in range(12):
            lesson = world.lesson(advice, rng.choice(world.kinds), rng)
            wordings.add(lesson)
            assert world.advice_in(lesson) == {advice} and len(lesson.split()) <= 32
            assert world.advice_of(f"- [a1] PLEASE NOTE: {lesson.upper()}") is advice
            assert world.advice_of(world.paraphrase(advice, rng)) is advice
        assert not world.advice_in(advice.symptom) and not world.advice_in(f"I kept to the hint on {advice.topic}.")
    assert len(wordings) > 8 * len(world.advice)
    assert world.advice_of("When you are done, write a last line. Think step by step.") is None


@pytest.mark.parametrize("seed", SEEDS)
def test_a_world_has_the_documented_ranges(seed: int) -> None:
    world = World(seed)
    assert 5 <= len(world.helpful) <= 8 and 5 <= len(world.harmful) <= 8 and 10 <= len(world.useless) <= 20
    for advice in world.helpful:
        assert 0.4 <= len(advice.logits) / len(world.kinds) <= 0.8
        assert all(0.7 <= effect <= 1.6 for effect in advice.logits.values())
    for kind in world.kinds:
        assert 2 <= len(world.needed(kind)) <= 4 and 0.1 <= sigmoid(kind.base) <= 0.35
    assert all(-1.6 <= effect <= -0.7 for advice in world.harmful for effect in advice.logits.values())
    assert not any(advice.logits for advice in world.useless)


def test_the_true_effect_of_advice_can_be_read() -> None:
    for seed in SEEDS:
        world = World(seed)
        good, bad, idle = (reworded(world, of) for of in (world.helpful, world.harmful, world.useless))
        base = world.success_rate()
        assert world.success_rate(good) > base + 0.4 and world.success_rate(bad) < base / 4
        assert world.success_rate(idle) == pytest.approx(base, abs=0.02)
        assert world.success_rate(good * 2) == pytest.approx(world.success_rate(good), abs=0.02)
        assert world.success_rate(["word " * 4_000]) < base
        null = World.null(seed)
        assert null.success_rate(good) == pytest.approx(null.success_rate(), abs=0.02)
        assert {one.effect for one in null.advice} == {"useless"}


# The agent


@pytest.mark.slow(reason="thousands of rollouts")
def test_success_follows_the_advice_in_the_prompt() -> None:
    world = World(3)
    for advice in ([], reworded(world, world.helpful), reworded(world, world.harmful), reworded(world, world.useless)):
        assert share(world, *advice) == pytest.approx(world.success_rate(advice), abs=tolerance(1_500))
    null = World.null(3)
    advice = reworded(null, null.advice)
    assert share(null, *advice) == pytest.approx(null.success_rate(), abs=tolerance(1_500))


def test_advice_that_is_quoted_in_a_question_is_no_advice() -> None:
    world = World(3)
    advice = " ".join(reworded(world, world.helpful))
    quoted = share(world, around=lambda query: f'The form reads "{advice}" {query}')
    assert quoted == pytest.approx(world.success_rate(), abs=tolerance(1_500))
    beside = share(world, around=lambda query: f"{advice}\n\n{query}")
    assert beside == pytest.approx(world.success_rate([advice]), abs=tolerance(1_500))


def test_siblings_differ_and_a_seed_repeats_itself() -> None:
    world = World(4)
    model, (row,) = SimulatedModel(world, Habits()), world.rows(1, 1)
    body = {"messages": agent_messages(row["query"])}
    assert len({model.reply(body) for _ in range(20)}) > 5
    assert len({model.reply({**body, "seed": 7}) for _ in range(5)}) == 1
    assert len({model.reply({**body, "seed": seed}) for seed in range(20)}) > 5
    assert len({model.reply({**body, "temperature": 0}) for _ in range(5)}) == 1


def test_a_call_of_an_agent_costs_little() -> None:
    world = World(5)
    model, advice, rng = SimulatedModel(world, Habits()), reworded(world, world.advice), random.Random(1)
    rows = world.rows(100, 1) * 5

    def work() -> None:
        for row in rows:
            model(agent_messages(row["query"], *rng.sample(advice, 15)))

    assert millions(work) / len(rows) < 0.04


# The reflector


@pytest.mark.parametrize("schema", [LESSONS, OPERATIONS, TAGS])
@pytest.mark.parametrize("by_format", [True, False])
def test_a_clean_reflector_fills_any_schema(schema: Schema, by_format: bool) -> None:
    for seed in SEEDS:
        world = World(seed)
        model = SimulatedModel(world, Habits())
        items = {f"x{i}f9a": text for i, text in enumerate(reworded(world, world.advice[:4]))}
        for n in range(10):
            messages = reflection(world, items, extra=f"Round {n}.")
            wanted = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
            body = {"messages": messages, "response_format": wanted} if by_format else wanting(messages, schema)
            jsonschema.validate(json.loads(model.reply(body)), schema)
        assert model.calls == {"reflector": 10}


def test_its_lessons_are_often_good_sometimes_bad_and_always_reworded() -> None:
    world = World(6)
    model = SimulatedModel(world, Habits())
    needed = {one for kind in [world.find(reflection(world)[1]["content"])[0].kind] for one in world.needed(kind)}
    texts, effects = list[str](), list[str]()
    for n in range(300):
        value = json.loads(model.reply(wanting(reflection(world, extra=f"Round {n}."), LESSONS)))
        assert [one["attempt"] for one in value["summaries"]] == [1, 2]
        assert all(0.5 <= one["confidence"] <= 0.95 for one in value["lessons"])
        texts += [one["text"] for one in value["lessons"]]
    for text in texts:
        advice = world.advice_of(text)
        assert advice is not None and text.startswith("When ") and len(text.split()) <= 32
        assert advice.effect != "helpful" or advice in needed
        effects.append(advice.effect)
    shares = [effects.count(effect) / len(effects) for effect in ("helpful", "useless", "harmful")]
    assert shares == pytest.approx([0.5, 0.3, 0.2], abs=0.1)
    assert len(set(texts)) > len(texts) / 3


def test_without_a_schema_the_model_answers_by_an_example() -> None:
    world = World(6)
    model = SimulatedModel(world, Habits())
    example = json.dumps({"summary": "what happened", "lessons": [{"text": "When ..., ...", "confidence": 0.7}]})
    for asked in (f"Reply with JSON only, such as:\n{example}", 'Reply in JSON: {"summary": "...", "lessons": [...]}'):
        messages = [*reflection(world), {"role": "user", "content": asked}]
        result = [json.loads(model.reply({"messages": messages})) for _ in range(20)]
        assert all(set(value) == {"summary", "lessons"} for value in result)
        assert any(world.advice_in(json.dumps(value["lessons"])) for value in result)
    assert model.calls == {"reflector": 40}


def test_operations_name_what_is_there() -> None:
    world = World(7)
    model = SimulatedModel(world, Habits())
    items = dict(zip(("a1f", "b2e", "c3d"), reworded(world, world.advice[:3]), strict=True))
    seen: set[str] = set()
    for n in range(60):
        value = json.loads(model.reply(wanting(reflection(world, items, f"Round {n}."), OPERATIONS)))
        for one in value["operations"]:
            seen.add(one["operation"])
            assert (one["id"] is None) == (one["operation"] == "ADD") and one["id"] in (*items, None)
            if one["operation"] == "UPDATE":
                assert world.advice_of(one["content"]) is world.advice_of(items[one["id"]])
    assert seen == {"ADD", "UPDATE", "DELETE", "MERGE", "NONE"}
    stranger = SimulatedModel(world, Habits(unknown_id=1.0))
    messages = [json.loads(stranger.reply(wanting(reflection(world, items, f"{n}"), OPERATIONS))) for n in range(20)]
    assert not {one["id"] for value in messages for one in value["operations"]} & set(items)


def test_lessons_that_are_given_to_the_model_are_passed_on() -> None:
    world = World(8)
    model, given = SimulatedModel(world, Habits()), reworded(world, world.advice[:6])
    passed = 0
    for n in range(20):
        text = "\n".join(("Map these to operations.", "Candidate lessons:", *(f"- {one}" for one in given), f"({n})"))
        value = json.loads(model.reply(wanting([{"role": "user", "content": text}], OPERATIONS)))
        passed += sum(one["content"] in given for one in value["operations"])
    assert passed > 0.7 * 5 * 20  # the schema has room for five


def test_its_opinions_are_right_a_little_more_often_than_not() -> None:
    world = World(9)
    model = SimulatedModel(world, Habits())
    items = {f"t{i}q": text for i, text in enumerate(reworded(world, world.advice))}
    names = {"helpful": "helpful", "harmful": "harmful", "useless": "neutral"}
    right: list[bool] = []
    for n in range(30):
        value = json.loads(model.reply(wanting(reflection(world, items, f"Round {n}."), TAGS)))
        assert [one["id"] for one in value["tags"]] == list(items)
        for one in value["tags"]:
            advice = world.advice_of(items[one["id"]])
            right.append(advice is not None and names[advice.effect] == one["tag"])
    assert sum(right) / len(right) == pytest.approx(0.6, abs=0.08)


RESEMBLES: dict[str, Callable[[str], bool]] = {
    "fence": lambda said: said.startswith("```") and said.endswith("```"),
    "prose_around": lambda said: not said.startswith("{") and '"lessons"' in said,
    "trailing_comma": lambda said: re.search(r",\s*[}\]]", said) is not None,
    "single_quotes": lambda said: said.startswith("{'"),
    "truncated": lambda said: said.startswith("{") and not said.endswith("}"),
    "wrong_fields": lambda said: set(json.loads(said)).isdisjoint(LESSONS["properties"]),
    "wrong_types": lambda said: not isinstance(json.loads(said)["lessons"], list),
    "empty": lambda said: json.loads(said)["lessons"] == [],
    "plain_prose": lambda said: "{" not in said,
}


def usable(said: str) -> bool:
    try:
        jsonschema.validate(json.loads(said), LESSONS)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


@pytest.mark.parametrize("form", FORMS)
def test_each_bad_habit_spoils_the_form_and_is_repaired_on_being_asked_again(form: str) -> None:
    world = World(10)
    model = SimulatedModel(world, one_habit(form))
    for n in range(20):
        body = wanting(reflection(world, extra=f"Round {n}."), LESSONS)
        reply = model.reply(body)
        assert RESEMBLES[form](reply), reply
        assert usable(reply) == (form == "empty")
        again = [{"role": "assistant", "content": reply}, {"role": "user", "content": "That was not usable. Again."}]
        model.reply({**body, "messages": [*body["messages"], *again]})
    assert model.formed[form] < 20 + 10 and model.formed[""] > 10


def test_habits_spoil_lessons_too() -> None:
    world = World(11)

    def texts(habit: str) -> list[str]:
        model = SimulatedModel(world, one_habit(habit))
        messages = [json.loads(model.reply(wanting(reflection(world, extra=f"{n}"), LESSONS))) for n in range(20)]
        return [one["text"] for value in messages for one in value["lessons"]]

    (row,) = world.rows(1, 3)
    assert all(len(text.split()) > 32 for text in texts("too_long"))
    assert not any(text.startswith("When ") for text in texts("no_when"))
    hints = ("gnore all previous", "New instructions", "disregard the rules")
    assert len(INJECTIONS) == 4 and all(any(hint in text for hint in hints) for text in texts("injecting"))
    answer = str(row["expected_outcome"]["answer"])
    assert all(row["query"] in text or answer in text for text in texts("leaking"))
    twins = texts("duplicated")
    assert len({world.advice_of(text) for text in twins}) < len(twins)


def test_habits_vary_by_seed_and_spare_most_replies() -> None:
    drawn = [Habits.drawn(seed) for seed in range(60)]
    assert {habits.strictness for habits in drawn} == {"json_schema", "json_object", "none"}
    for habits in drawn:
        assert all(getattr(habits, form) <= 0.25 for form in FORMS)
        assert sum(getattr(habits, form) for form in FORMS) <= 0.6 + 1e-9
    assert all(any(getattr(habits, form) for habits in drawn) for form in FORMS)


# Over the wire


@pytest.mark.parametrize(
    ("strictness", "schema", "plain"), [("json_schema", 200, 200), ("json_object", 400, 200), ("none", 400, 400)]
)
async def test_a_response_format_that_is_not_known_is_refused(strictness: Any, schema: int, plain: int) -> None:
    world = World(12)
    messages = [Message(**one) for one in wanting(reflection(world), LESSONS)["messages"]]
    formats = {"json_schema": {"name": "x", "strict": True, "schema": LESSONS}}
    with simulated_server(world, habits=Habits(strictness=strictness)) as server:
        async with client(server) as one:
            for wanted, code in (({"type": "json_schema", **formats}, schema), ({"type": "json_object"}, plain)):
                result = one.complete(messages, max_tokens=4_000, key=key(), response_format=wanted)
                if code == 400:
                    with pytest.raises(Permanent, match="response_format"):
                        await result
                else:
                    jsonschema.validate(json.loads((await result).text), LESSONS)
            bare = await one.complete(messages, max_tokens=4_000, key=key())
    jsonschema.validate(json.loads(bare.text), LESSONS)
    calls = server.brain.calls  # type: ignore[attr-defined]
    assert calls["refused"] == [schema, plain].count(400) and calls["reflector"] == 3 - calls["refused"]


async def played(server: ModelServer, world: World, context: str, n: int, philosophy: str = "cot") -> float:
    environment = dataset_environment(world.rows(n, 9), {})
    async with client(server) as model:
        trajectories = await collect(
            [(RolloutKey(1, s.index, 0), s) for s in environment.scenarios("all", n, 0)],
            RolloutPlan(
                environment=environment,
                runtime=LLMRuntime(model, Sampling("small", max_tokens=512), philosophy=philosophy, context=context),
                reward=rewards.get("outcome")({}),
                seed=1,
                limits=RolloutLimits(concurrency=16),
            ),
            kept={},
            keep=lambda _: None,
        )
    assert not any(one.error for one in trajectories) and all(one.tokens > 0 for one in trajectories)
    return sum(one.success for one in trajectories) / n


async def test_rollouts_succeed_as_often_as_the_world_says() -> None:
    world = World(13)
    good = "\n".join(f"- {one}" for one in reworded(world, world.helpful))
    bad = "\n".join(f"- {one}" for one in reworded(world, world.harmful[:2]))
    with simulated_server(world, habits=Habits()) as server:
        for context in ("", good, bad):
            expected = world.success_rate([context])
            assert await played(server, world, context, 240) == pytest.approx(expected, abs=tolerance(240))
        assert server.brain.calls["agent"] == 3 * 240  # type: ignore[attr-defined]
        assert await played(server, world, good, 24, "multi_agent") > world.success_rate() + 0.2
