"""Answers as objects: the ladder of forms, one repair, and everything unusable counted with its reason."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel, Field

from budgets.llm.errors import BadRequest, Malformed, RateLimited
from budgets.llm.types import Message
from budgets.meter_port import BudgetRefused
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.structured_output import REPAIRED, ModelAnswer, UnusableAnswer, digest, read
from tests.support.scripted_model import PAID, Question, ScriptedModel, asker_of

RUNGS = ("json_schema", "json_object", "text")

ASKED = (Message("system", "Answer in JSON."), Message("user", "What is it?"))


class Thing(BaseModel):
    """The schema of these tests."""

    name: str = Field(max_length=200)
    count: int = 0


GOOD = json.dumps({"name": "a lamp", "count": 2})


def form_of(question: Question) -> str:
    return "text" if question.response_format is None else question.response_format["type"]


def refusing(*forms: str) -> ScriptedModel:
    """An endpoint that does not know these forms."""

    def say(question: Question) -> str | Exception:
        return BadRequest(f"no {form_of(question)}", status=400) if form_of(question) in forms else GOOD

    return ScriptedModel(say)


# -- the ladder --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lowest", range(3))
async def test_asker_asks_as_strictly_as_the_endpoint_can_and_remembers_how(lowest: int) -> None:
    model = refusing(*RUNGS[:lowest])
    asker, kept = asker_of(model)
    for number in range(3):
        assert await asker.ask(Thing, ASKED, key=f"q/{number}", stage="q") == Thing(name="a lamp", count=2)
    assert [form_of(one) for one in model.asked] == [*RUNGS[:lowest], *[RUNGS[lowest]] * 3]
    assert all(one.usable and not one.repaired for one in kept)
    schema = json.dumps(Thing.model_json_schema())
    assert all((schema in one.text) == (form_of(one) != "json_schema") for one in model.asked)
    assert len({one.key for one in model.asked}) == len(model.asked)


async def test_a_question_that_is_refused_in_every_form_is_counted_and_the_next_begins_at_the_top() -> None:
    model = refusing(*RUNGS)
    asker, kept = asker_of(model)
    assert await asker.ask(Thing, ASKED, key="q/1", stage="q") is None
    assert not kept[0].usable and "no text" in kept[0].reason and kept[0].reply is None
    model.say = lambda _: GOOD
    assert await asker.ask(Thing, ASKED, key="q/2", stage="q") is not None
    assert form_of(model.asked[-1]) == "json_schema"


async def test_questions_that_are_asked_at_once_climb_down_together() -> None:
    asker, kept = asker_of(refusing("json_schema"))
    result = await asyncio.gather(*(asker.ask(Thing, ASKED, key=f"q/{n}", stage="q") for n in range(16)))
    assert all(result) and all(one.usable for one in kept)


# -- repair ------------------------------------------------------------------------------------------------------------


async def test_an_answer_that_can_not_be_used_is_mended_once() -> None:
    model = ScriptedModel(lambda q: GOOD if q.is_repair else '{"name": 3}')
    asker, kept = asker_of(model)
    assert await asker.ask(Thing, ASKED, key="q/1", stage="q", iteration=4) == Thing(name="a lamp", count=2)
    (one,) = kept
    assert (one.usable, one.repaired, one.calls, one.cost_micros) == (True, True, 2, 2 * PAID)
    assert (one.key, one.stage, one.iteration, one.reason) == ("q/1", "q", 4, "")
    assert one.reply == {"name": "a lamp", "count": 2}
    assert "name: Input should be a valid string" in model.asked[1].text and '{"name": 3}' in model.asked[1].text


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "it is empty"),
        ("I would rather not.", "no JSON object"),
        ('{"name": "a lamp", "count": "many"}', "count: "),
        ('{"count": 1}', "name: Field required"),
        ('{"name": "a lamp"} or rather {"name": "a chair"}', "several objects"),
    ],
)
async def test_an_answer_beyond_repair_is_refused_and_counted_with_its_reason(said: str, why: str) -> None:
    model = ScriptedModel(lambda _: said)
    asker, kept = asker_of(model)
    assert await asker.ask(Thing, ASKED, key="q/1", stage="q") is None
    (one,) = kept
    assert (one.usable, one.reply, one.calls, one.repaired) == (False, None, 2, True)
    assert why in one.reason and len(model.asked) == 2


async def test_a_complaint_goes_to_the_author_once_and_then_to_the_caller() -> None:
    def complaint(thing: Thing) -> str:
        return "" if thing.count > 5 else "it is too few"

    for mended, count in (('{"name": "a lamp", "count": 9}', 9), ("nothing more to say", 2), (GOOD, 2)):
        model = ScriptedModel(lambda q, mended=mended: mended if q.is_repair else GOOD)
        asker, kept = asker_of(model)
        result = await asker.ask(Thing, ASKED, key="q/1", stage="q", complaint=complaint)
        assert result is not None and result.count == count
        assert "it is too few" in model.asked[1].text and len(model.asked) == 2
        assert kept[0].usable and kept[0].repaired


@pytest.mark.parametrize(("first", "usable"), [(GOOD, True), ("I would rather not.", False)])
async def test_a_repair_that_the_model_refuses_takes_nothing_of_the_first_answer(first: str, usable: bool) -> None:
    """A longer question may be too long for the model, or against its rules."""
    model = ScriptedModel(lambda q: BadRequest("too long", status=400) if q.is_repair else first)
    asker, kept = asker_of(model)
    result = await asker.ask(Thing, ASKED, key="q/1", stage="q", complaint=lambda one: "it is too dear")
    assert (result is not None) == usable
    (one,) = kept
    assert (one.usable, one.repaired, one.calls, one.cost_micros) == (usable, True, 2, PAID)
    assert "the model refused the repair: too long" in one.reason and ("no JSON object" in one.reason) != usable


async def test_an_answer_that_broke_on_its_way_is_paid_for_and_asked_for_once_more() -> None:
    broken = Malformed("a cut stream")
    broken.spent_micros = 5
    model = ScriptedModel(lambda q: broken if q.number == 0 else GOOD)
    asker, kept = asker_of(model)
    assert await asker.ask(Thing, ASKED, key="q/1", stage="q") is not None
    assert (kept[0].calls, kept[0].cost_micros) == (2, 5 + PAID)


# -- what was answered before ------------------------------------------------------------------------------------------


async def test_an_answered_question_is_never_asked_again() -> None:
    first = ScriptedModel(lambda q: "no" if q.key.startswith("run/q/2") else GOOD)
    asker, kept = asker_of(first)
    for number in (1, 2):
        await asker.ask(Thing, ASKED, key=f"q/{number}", stage="q")
    stored = {(one.key, one.asked): ModelAnswer(**json.loads(json.dumps(one.as_dict()))) for one in kept}
    again = ScriptedModel(lambda _: RuntimeError("asked again"))
    asker, kept = asker_of(again, recall=lambda key, asked: stored.get((key, asked)))
    assert await asker.ask(Thing, ASKED, key="q/1", stage="q") == Thing(name="a lamp", count=2)
    assert await asker.ask(Thing, ASKED, key="q/2", stage="q") is None
    assert again.asked == kept == []
    with pytest.raises(RuntimeError, match="asked again"):  # the same key, but another question
        await asker.ask(Thing, [*ASKED, Message("user", "Really?")], key="q/1", stage="q")


async def test_no_money_and_no_service_stop_the_work_and_count_as_no_answer() -> None:
    for error in (BudgetRefused("job", 10, 10, 0, 1), RateLimited("later", status=429)):
        model = ScriptedModel(lambda _, error=error: error)
        asker, kept = asker_of(model)
        with pytest.raises(Halted):
            await asker.ask(Thing, ASKED, key="q/1", stage="q")
        assert kept == []


@pytest.mark.parametrize(("first", "usable"), [(GOOD, True), ("no", False)])
async def test_an_answer_that_no_money_was_left_to_mend_is_not_paid_for_again(first: str, usable: bool) -> None:
    model = ScriptedModel(lambda q: BudgetRefused("job", 10, 10, 0, 1) if q.is_repair else first)
    asker, kept = asker_of(model)
    with pytest.raises(Halted):
        await asker.ask(Thing, ASKED, key="q/1", stage="q", complaint=lambda _: "it is too short")
    (one,) = kept
    assert (one.usable, one.calls, one.cost_micros, one.repaired) == (usable, 1, PAID, False)
    assert bool(one.reason) is not usable
    again, _ = asker_of(ScriptedModel(lambda _: RuntimeError("asked again")), recall=lambda *_: one)
    result = await again.ask(Thing, ASKED, key="q/1", stage="q")
    assert (result is not None) is usable


async def test_an_interruption_is_asked_for_before_money_is_spent() -> None:
    def check() -> None:
        raise KeyError("paused")

    model = ScriptedModel(lambda _: GOOD)
    asker, _ = asker_of(model, check=check)
    with pytest.raises(KeyError):
        await asker.ask(Thing, ASKED, key="q/1", stage="q")
    assert model.asked == []


async def test_personal_data_in_an_answer_is_neither_used_nor_kept() -> None:
    model = ScriptedModel(lambda _: json.dumps({"name": "write to jane.doe@example.com about it"}))
    asker, kept = asker_of(model)
    result = await asker.ask(Thing, ASKED, key="q/1", stage="q")
    assert result is not None and "jane.doe" not in result.name and result.name.startswith("write to ")
    assert kept[0].reply == result.model_dump()


@pytest.mark.parametrize("before", ["", "x " * 115])
async def test_the_reason_of_a_refusal_is_kept_without_personal_data(before: str) -> None:
    model = ScriptedModel(lambda _: BadRequest(f"{before}the key of jane.doe@example-mail.org expired", status=400))
    asker, kept = asker_of(model)
    assert await asker.ask(Thing, ASKED, key="q/1", stage="q") is None
    assert "the key of" in kept[0].reason and "jane" not in kept[0].reason and len(kept[0].reason) <= 300


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"Sure {{briefly}}: {GOOD} I hope this helps.",
        f"{GOOD}\n\nThat is: {GOOD}",
        '{"name": "a lamp", "count": 2, "more": {"name": "a chair"}}',
    ],
)
def test_one_object_is_read_from_any_surrounding_text(text: str) -> None:
    assert read(Thing, text) == Thing(name="a lamp", count=2)


@pytest.mark.parametrize(
    "text", ["[1, 2]", '{"name": "a la', "{" * 5_000, '{"name": ' * 3_000, "\x00", '{"name": NaN}']
)
def test_an_answer_of_another_shape_is_refused_without_a_crash(text: str) -> None:
    with pytest.raises(UnusableAnswer):
        read(Thing, text)


def test_a_question_is_known_by_its_roles_and_words() -> None:
    assert digest(ASKED) == digest(list(ASKED))
    others: list[Any] = [ASKED[:1], ASKED[::-1], (ASKED[0], Message("system", "What is it?"))]
    assert digest(ASKED) not in {digest(one) for one in others}


# -- thoughts, and JSON with faults ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '<think>First {"name": "a chair"}.</think>' + GOOD,
        'perhaps {"name": "a chair"}?</think>\n```json\n' + GOOD + "\n```",
        '{"name": "a lamp", "count": 2,}',
        "```json\n{'name': 'a lamp', 'count': 2}\n```",
        'Here: {"name": "a lamp", // what it is\n "count": 2}',
    ],
)
def test_object_is_read_behind_thoughts_and_with_faults_of_punctuation(text: str) -> None:
    assert read(Thing, text) == Thing(name="a lamp", count=2)


@pytest.mark.parametrize("text", ['<think>{"name": "a lamp"}', '{"name": "a lamp", "count":', "{'name': 3}", "{,}"])
def test_thoughts_alone_and_json_that_was_cut_are_no_object(text: str) -> None:
    with pytest.raises(UnusableAnswer):
        read(Thing, text)


@pytest.mark.parametrize(("said", "reason"), [(GOOD, ""), (GOOD[:-1] + ",}", REPAIRED)])
async def test_answer_whose_json_was_repaired_says_so_and_is_not_asked_for_again(said: str, reason: str) -> None:
    asker, kept = asker_of(ScriptedModel(lambda _: said))
    assert await asker.ask(Thing, ASKED, key="q", stage="q") == Thing(name="a lamp", count=2)
    assert [(one.usable, one.reason, one.calls) for one in kept] == [(True, reason, 1)]
