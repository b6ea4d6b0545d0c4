"""The effect of each item of a playbook: items are left out of contexts by chance, and harmful ones are removed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from agentcore_site.jobs.models import Status
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.services import api_key_create
from experiences.agents.services.agents import agent_create, agent_update
from experiences.learning.playbooks.confidence_sequence import confidence_sequence
from experiences.learning.playbooks.curator import CuratorRules, curate
from experiences.learning.playbooks.deltas import Delta, State
from experiences.learning.playbooks.effects import FEWEST, ItemEffect, Outcomes, newcombe
from experiences.learning.playbooks.items import PlaybookItem
from experiences.learning.playbooks.leave_out import Draw, draw, draw_of
from experiences.models import Agent, Evolution, ExecutionTrace, Playbook, PlaybookChange
from experiences.playbooks import item_effects
from experiences.playbooks.ace.context_cache import Caller, served
from experiences.playbooks.item_effects import effects_of
from experiences.playbooks.selectors import compiled, sections_of
from experiences.playbooks.services.executions import NewTrace, traces_record
from experiences.playbooks.services.playbooks import playbook_create, playbook_edit
from tests.experiences.playbooks.test_ace import Service, problem
from tests.support.llm_server import ModelServer
from tests.support.pages import html
from tests.support.playbooks import PRICE, TEXTS, deployed, model_agent, suggesting
from tests.support.rounds import rounds
from tests.support.running import run_to_end

ITEMS = [{"category": "learnings", "content": text} for text in TEXTS[:4]]
HELPS = ItemEffect(Outcomes(900, 720), Outcomes(100, 50))
HARMS = ItemEffect(Outcomes(900, 450), Outcomes(100, 80))


@pytest.fixture
def clerk(operator: Actor) -> Agent:
    """A new agent as people make it: at shipped settings."""
    return agent_create(operator, name="Clerk", environment="reasoning_gym")


@pytest.fixture
def playbook(operator: Actor, clerk: Agent) -> Playbook:
    return deployed(operator, playbook_create(operator, agent=clerk, initial_sections=ITEMS))


@pytest.fixture
def service(olivia: Any) -> Service:
    return Service(api_key_create(Actor(olivia), name="service", scopes=["service:internal"])[1])


def lived(actor: Actor, playbook: Playbook, n: int, success: Any, *, seed: int = 1, **more: Any) -> None:
    """``n`` executions, each with a context of its own; ``success`` maps the items in the context to the outcome."""
    deployed(actor, playbook)
    rng, found, rows = random.Random(seed), compiled(actor, playbook.agent_id), []
    for _ in range(n):
        drawn = draw(found.version, found.items, found.rate, rng.random)
        included = [one for one in found.items if one not in drawn.left_out]
        ended = bool(success(included, rng))
        rows.append(NewTrace(playbook.agent, {}, {}, 5.0, ended, context_id=drawn.id, **more))
    for at in range(0, n, 500):
        traces_record(actor, rows[at : at + 500])


def harmful_first(included: list[str], rng: random.Random) -> bool:
    return rng.random() < (0.5 if "s1" in included else 0.95)


# -- drawing -----------------------------------------------------------------------------------------------------------


def test_each_item_is_left_out_of_a_tenth_of_the_contexts_independently() -> None:
    rng, ids = random.Random(7), [f"s{n}" for n in range(20)]
    drawn = [draw(3, ids, 0.1, rng.random) for _ in range(10_000)]
    left = Counter(one for each in drawn for one in each.left_out)
    assert set(left) == set(ids) and all(850 < n < 1_150 for n in left.values())
    both = sum({"s1", "s2"} <= set(one.left_out) for one in drawn)
    assert 60 < both < 150  # independent of each other: a hundred expected


def test_the_name_of_a_context_encodes_its_draw() -> None:
    for one in (Draw(1), Draw(12, 0.1, ("s3", "s17")), Draw(9, 0.25, ()), draw(4, ["s1"], 0.12345)):
        assert draw_of(one.id) == one, one.id


@pytest.mark.parametrize(
    "id",
    ["", "0", "-1", "x", "1~", "1~0.1", "1~0.1~s1", "1~0.9~s1.", "1~0.1~s1.s1.", "1~0.0~", "9" * 11, "1~1e-9~", "1 "],
)
def test_a_name_that_no_context_has_is_refused(id: str) -> None:
    with pytest.raises(ValueError, match="no context"):
        draw_of(id)


# -- intervals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "low", "high"),
    [  # Newcombe 1998, table II, method 10
        ((70, 56), (80, 48), 0.0524, 0.3339),
        ((10, 9), (10, 3), 0.1705, 0.8090),
        ((10, 10), (20, 0), 0.6791, 1.0),
    ],
)
def test_the_interval_is_the_published_one(one: Any, other: Any, low: float, high: float) -> None:
    assert newcombe(Outcomes(*one), Outcomes(*other)) == (pytest.approx(low, abs=2e-4), pytest.approx(high, abs=2e-4))


@pytest.mark.parametrize(("with_it", "without"), [(0.5, 0.5), (0.9, 0.8), (0.98, 0.99)])
def test_intervals_hold_the_true_difference_in_95_of_100(with_it: float, without: float) -> None:
    rng, held = random.Random(3), 0
    for _ in range(1_000):
        included = Outcomes(450, sum(rng.random() < with_it for _ in range(450)))
        left = Outcomes(50, sum(rng.random() < without for _ in range(50)))
        low, high = newcombe(included, left)
        held += low <= with_it - without <= high
    assert 925 <= held <= 990


def executions_until_harm(with_it: float, without: float, seed: int, n: int = 5_000) -> int | None:
    """Executions after which an item is found to do harm, tested every ten of them; None if it never is."""
    rng, ended = random.Random(seed), [[0, 0], [0, 0]]  # (executions, successes) with it, without it
    for number in range(1, n + 1):
        lacks = rng.random() < 0.1
        ended[lacks][0] += 1
        ended[lacks][1] += rng.random() < (without if lacks else with_it)
        if number % 10 == 0 and ItemEffect(Outcomes(*ended[0]), Outcomes(*ended[1])).harms:
            return number
    return None


@pytest.mark.rounds
def test_of_items_that_do_nothing_hardly_any_is_ever_found_to_do_harm() -> None:
    found = [executions_until_harm(0.6, 0.6, seed, 2_500) for seed in range(rounds(10, 30))]
    assert sum(one is not None for one in found) <= 1  # of 30, five with an interval for one analysis


def test_an_item_that_does_much_harm_is_found_soon() -> None:
    found = [executions_until_harm(0.4, 0.6, seed) for seed in range(9)]
    assert all(found) and sorted(one for one in found if one)[4] < 1_000


def test_a_sequence_is_wider_than_an_interval_and_both_hold_the_difference() -> None:
    for included, left in (((900, 450), (100, 80)), ((900, 900), (100, 100)), ((45, 0), (20, 0)), ((2, 1), (3, 3))):
        one = ItemEffect(Outcomes(*included), Outcomes(*left))
        low, high = one.sequence
        assert -1 <= low <= one.difference <= high <= 1
        mirrored = ItemEffect(Outcomes(included[0], included[0] - included[1]), Outcomes(left[0], left[0] - left[1]))
        assert mirrored.sequence == (pytest.approx(-high), pytest.approx(-low))
    low, high = HARMS.sequence
    assert low < HARMS.low and HARMS.high < high < 0
    assert ItemEffect(Outcomes(9, 9), Outcomes()).sequence == (-1.0, 1.0)
    with pytest.raises(ValueError, match="no shares"):
        confidence_sequence(3, 2, 0, 0)


@pytest.mark.parametrize(("with_it", "without"), [(0.6, 0.7), (0.9, 0.8), (0.5, 0.5)])
def test_a_sequence_holds_the_true_difference_at_every_analysis_of_95_in_100(with_it: float, without: float) -> None:
    rng, missed = random.Random(4), 0
    for _ in range(60):
        included, left = Outcomes(), Outcomes()
        for _ in range(12):
            included = Outcomes(included.n + 90, included.good + sum(rng.random() < with_it for _ in range(90)))
            left = Outcomes(left.n + 10, left.good + sum(rng.random() < without for _ in range(10)))
            low, high = ItemEffect(included, left).sequence
            if not low <= with_it - without <= high:
                missed += 1
                break
    assert missed <= 4


def test_one_context_for_many_executions_does_not_make_harm_of_nothing() -> None:
    """A service that asks for a context now and then lacks an item in runs of executions."""
    rng, harmed = random.Random(5), 0
    for _ in range(20):
        ended = [[0, 0], [0, 0]]
        for _ in range(100):
            lacks = rng.random() < 0.1
            ended[lacks][0] += 25
            ended[lacks][1] += sum(rng.random() < 0.9 for _ in range(25))
            if ItemEffect(Outcomes(*ended[0]), Outcomes(*ended[1])).harms:
                harmed += 1
                break
    assert harmed <= 1


def test_few_executions_decide_nothing() -> None:
    few = ItemEffect(Outcomes(900, 0), Outcomes(FEWEST - 1, FEWEST - 1))
    assert few.high < 0 and few.sequence[1] < 0 and not few.harms and not few.known


# -- the curator -------------------------------------------------------------------------------------------------------


def book(n: int = 10) -> list[PlaybookItem]:
    return [PlaybookItem(f"s{i + 1}", "strategies", TEXTS[i], 0.8, usage=90, helpful=60, harmful=30) for i in range(n)]


def curated(sections: list[PlaybookItem], *deltas: Delta, effects: Any, **rules: Any) -> Any:
    numbers = count(len(sections) + 1)
    return curate(sections, deltas, CuratorRules(**rules), lambda: f"s{next(numbers)}", effects)


def test_an_item_measured_as_harmful_is_removed_with_its_figures_despite_good_counts() -> None:
    sections = book()
    sections[3] = PlaybookItem("s4", "strategies", TEXTS[3], 0.99, usage=900, helpful=890, harmful=10)
    result = curated(sections, effects={"s4": HARMS, "s5": HELPS})
    assert "s4" not in [one.id for one in result.sections] and len(result.sections) == 9
    (change,) = result.changes
    assert (change.section, change.action) == ("s4", "pruned")
    assert "50.0% of 900 executions with it succeeded and 80.0% of 100 without it" in change.reason


def test_bad_counts_alone_take_nothing_out_where_the_effect_is_known_to_be_good() -> None:
    sections = [*book(9), PlaybookItem("s10", "strategies", TEXTS[9], 0.5, usage=900, helpful=10, harmful=890)]
    new = Delta("add", 0.9, "learnings", "Weekend orders are packed on Monday morning.")
    result = curated(sections, new, effects={"s10": HELPS}, max_sections=10)
    assert "s10" in [one.id for one in result.sections] and len(result.sections) == 10
    without = curated(sections, new, effects={}, max_sections=10)
    assert "s10" not in [one.id for one in without.sections]


def test_over_the_limit_those_that_were_better_left_out_go_first() -> None:
    below = ItemEffect(Outcomes(900, 600), Outcomes(100, 68))
    sections = book()
    sections[6] = PlaybookItem("s7", "strategies", TEXTS[6], 0.9, usage=900, helpful=880, harmful=20)
    new = Delta("add", 0.9, "learnings", "Weekend orders are packed on Monday morning.")
    result = curated(sections, new, effects={"s7": below}, max_sections=10)
    assert [change.section for change in result.changes if change.action == "pruned"] == ["s7"]


def test_at_most_a_fifth_goes_at_once_and_a_text_that_is_new_was_never_tried() -> None:
    result = curated(book(), effects={one.id: HARMS for one in book()})
    assert len(result.sections) == 8
    better = Delta("update", 0.9, None, "Ask for the order number when a customer gives none at all.", "s2")
    kept = curated(book(), better, effects={"s2": HARMS})
    assert [change.action for change in kept.changes] == ["updated"]


def test_a_suggestion_to_keep_what_does_harm_is_refused_with_the_figures() -> None:
    result = curated(book(), Delta("add", 0.9, "strategies", TEXTS[0]), effects={"s1": HARMS})
    assert result.verdicts[0].state == State.REJECTED and "measured to do harm" in result.verdicts[0].reason
    assert "s1" not in [one.id for one in result.sections]


# -- contexts ----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_new_agents_contexts_lack_items_by_chance_and_say_which(service: Service, playbook: Playbook) -> None:
    path = f"playbooks/{playbook.agent_id}/context"
    bodies = [service.send("get", path).json() for _ in range(60)]
    for body in bodies:
        drawn = draw_of(body["context_id"])
        assert (drawn.version, drawn.rate) == (1, 0.1)
        assert set(body["included"]) | set(drawn.left_out) == {"s1", "s2", "s3", "s4"}
        assert body["section_count"] == len(body["included"])
        assert all((f"[{one}]" in body["context"]) == (one in body["included"]) for one in ("s1", "s2", "s3", "s4"))
    assert len({body["context_id"] for body in bodies}) > 1


@pytest.mark.django_db
def test_the_context_from_memory_is_drawn_again_for_each_request(
    operator: Actor, olivia: Any, playbook: Playbook
) -> None:
    caller = Caller(Actor(olivia, scopes=frozenset({"service:internal"})), ())
    remembered = served(caller, str(playbook.agent_id))
    assert remembered is not None and remembered.same is None
    tags = Counter(remembered.sent().etag for _ in range(2_000))
    whole = next(tag for tag, _ in tags.most_common(1))
    assert whole.endswith('-1~0.1~"') and 0.6 < tags[whole] / 2_000 < 0.71  # .9 to the fourth
    agent_update(operator, playbook.agent, leave_out_rate=0)
    same = served(caller, str(playbook.agent_id))
    assert same is not None and same.same is not None and {same.sent().etag for _ in range(50)} == {same.same.etag}


@pytest.mark.django_db
def test_a_tag_holds_for_the_context_that_was_drawn_and_no_other(service: Service, playbook: Playbook) -> None:
    path = f"playbooks/{playbook.agent_id}/context"
    first = service.send("get", path)
    for _ in range(30):
        again = service.send("get", path, If_None_Match=first["ETag"])
        assert (again.status_code == 304) == (again["ETag"] == first["ETag"])
        if again.status_code == 200:
            assert again.json()["context_id"] != first.json()["context_id"]


@pytest.mark.django_db
@pytest.mark.parametrize("rate", [-0.1, 0.6, float("nan")])
def test_a_rate_out_of_range_is_refused(operator: Actor, clerk: Agent, rate: float) -> None:
    with pytest.raises(Invalid, match=r"between 0 and 0\.5"):
        agent_update(operator, clerk, leave_out_rate=rate)


# -- executions --------------------------------------------------------------------------------------------------------


def sent(playbook: Playbook, **values: Any) -> dict[str, Any]:
    return {"agent_id": str(playbook.agent_id), "duration_ms": 5, "success": True} | values


@pytest.mark.django_db
def test_served_and_used_items_are_kept_with_an_execution(service: Service, playbook: Playbook) -> None:
    body = service.send("get", f"playbooks/{playbook.agent_id}/context").json()
    used = body["included"][:1]
    assert service.send("post", "traces", sent(playbook, context_id=body["context_id"], used=used)).status_code == 201
    row = ExecutionTrace.objects.get()
    assert (row.context_version, row.leave_out_rate, row.used) == (1, 0.1, used)
    assert {*row.left_out, *body["included"]} == {"s1", "s2", "s3", "s4"}
    one = "1~0.1~s2."
    service.send("post", "traces", {"traces": [sent(playbook, context_id=one), sent(playbook, context_id=one)]})
    counts = {one.id: one.usage for one in sections_of(playbook)}
    assert counts["s1"] - counts["s2"] == 2 + (1 if "s1" in body["included"] else 0) - (
        1 if "s2" in body["included"] else 0
    )


@pytest.mark.django_db
def test_a_version_alone_credits_no_item_where_items_are_left_out(
    service: Service, operator: Actor, playbook: Playbook
) -> None:
    assert service.send("post", "traces", sent(playbook, context_version=1)).status_code == 201
    assert [one.usage for one in sections_of(playbook)] == [0, 0, 0, 0]
    agent_update(operator, playbook.agent, leave_out_rate=0)
    assert service.send("post", "traces", sent(playbook, context_version=1)).status_code == 201
    assert [one.usage for one in sections_of(playbook)] == [1, 1, 1, 1]
    assert ExecutionTrace.objects.filter(left_out=None, leave_out_rate=None).count() == 2


@pytest.mark.django_db
@pytest.mark.parametrize(
    "wrong",
    [
        {"context_id": "1~0.1~s9."},
        {"context_id": "7"},
        {"context_id": "1~2~"},
        {"context_id": "x" * 3_000},
        {"context_id": "1", "context_version": 2},
        {"context_id": "1~0.1~s2.", "used": ["s2"]},
        {"context_id": "1", "used": ["s9"]},
        {"used": ["s1"]},
        {"context_id": "1", "used": "s1"},
        {"context_id": "1", "used": ["s1"] * 201},
    ],
)
def test_an_item_that_was_never_served_is_refused(service: Service, playbook: Playbook, wrong: dict[str, Any]) -> None:
    problem(service.send("post", "traces", sent(playbook, **wrong)), 400)
    problem(service.send("post", "traces", {"traces": [sent(playbook), sent(playbook, **wrong)]}), 400)
    assert not ExecutionTrace.objects.exists()


# -- effects -----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_effect_of_each_item_is_measured_and_shown_everywhere(
    operator: Actor, olivia: Any, playbook: Playbook
) -> None:
    lived(operator, playbook, 600, harmful_first, used=[])
    effects = effects_of(playbook)
    assert set(effects) == {"s1", "s2", "s3", "s4"}
    assert all(one.included.n + one.left_out.n == 600 and 30 < one.left_out.n < 90 for one in effects.values())
    assert effects["s1"].harms and effects["s1"].difference < -0.3
    assert not any(effects[other].harms or effects[other].helps for other in ("s2", "s3", "s4"))
    assert (effects["s2"].used, effects["s2"].reporting) == (0, effects["s2"].included.n)
    browser = Client()
    browser.force_login(olivia)
    shown = browser.get(f"/api/v1/playbooks/{playbook.agent.slug}").json()["sections"][0]["effect"]
    assert shown["difference"] == pytest.approx(effects["s1"].difference) and shown["known"] is True
    assert (shown["low"], shown["high"]) == effects["s1"].interval
    assert (shown["sequence_low"], shown["sequence_high"]) == effects["s1"].sequence
    page = html(browser.get(f"/agents/{playbook.agent_id}/playbook/"))
    assert "0 measured to help, 1 to do harm, 3 not decided yet" in page and "it does harm" in page
    item = html(browser.get(f"/agents/{playbook.agent_id}/playbook/items/s1/"))
    assert "without it by chance" in item and "0 of" in item


@pytest.mark.django_db
def test_effects_begin_again_with_another_text_and_with_another_rate(operator: Actor, playbook: Playbook) -> None:
    lived(operator, playbook, 100, harmful_first)
    playbook_edit(operator, playbook, type="update", target="s1", content="Say first what is in stock.")
    effects = effects_of(playbook)
    assert effects["s1"].included.n == 0 and effects["s2"].included.n > 50
    lived(operator, playbook, 50, harmful_first)
    effects = effects_of(playbook)
    assert effects["s1"].included.n + effects["s1"].left_out.n == 50
    assert effects["s2"].included.n + effects["s2"].left_out.n == 150
    agent_update(operator, playbook.agent, leave_out_rate=0.2)
    playbook.refresh_from_db()
    assert all(one.included.n == 0 for one in effects_of(playbook).values())
    agent_update(operator, playbook.agent, leave_out_rate=0)
    playbook.refresh_from_db()
    assert effects_of(playbook) == {}


@pytest.mark.django_db
def test_the_newest_executions_are_counted_and_no_more_than_so_many(
    operator: Actor, playbook: Playbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_effects, "MOST", 40)
    for _ in range(6):
        lived(operator, playbook, 10, harmful_first)
    one = effects_of(playbook)["s1"]
    assert 40 <= one.included.n + one.left_out.n < 60


@pytest.mark.django_db
def test_an_execution_that_is_recorded_while_effects_are_counted_spoils_none(
    operator: Actor, playbook: Playbook
) -> None:
    lived(operator, playbook, 4, lambda included, rng: True, seed=2)
    counted = 0

    def meanwhile(execute: Any, sql: str, *given: Any) -> Any:
        nonlocal counted
        result = execute(sql, *given)
        counted += "COUNT(" in sql
        if counted == 1 and "COUNT(" in sql:
            counted += 1
            traces_record(operator, [NewTrace(playbook.agent, {}, {}, 5.0, False, context_id="1~0.1~s1.")])
        return result

    with connection.execute_wrapper(meanwhile):
        one = effects_of(playbook)["s1"]
    assert one.included.good <= one.included.n and -1 <= one.low <= one.sequence_high <= 1


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(brain=lambda _: suggesting(), prices={"small": PRICE}) as running:
        yield running


@pytest.mark.django_db(transaction=True)
def test_an_evolution_takes_out_what_does_harm_and_writes_down_why(
    operator: Actor, adam: Any, olivia: Any, model: ModelServer
) -> None:
    agent = model_agent(Actor(adam), model)
    agent_update(operator, agent, evolves=True)
    playbook = playbook_create(operator, agent=agent, initial_sections=ITEMS)
    lived(operator, playbook, 400, harmful_first)  # enough to queue an evolution
    job = run_to_end(Evolution.objects.get().job)
    assert job.status == Status.COMPLETED, job.error
    playbook.refresh_from_db()
    assert [one.id for one in sections_of(playbook)] == ["s2", "s3", "s4"] and "[s1]" not in playbook.context
    line = PlaybookChange.objects.get(playbook=playbook, handle="s1", action="pruned")
    assert "measured to do harm" in line.reason and "executions with it" in line.reason
    browser = Client()
    browser.force_login(olivia)
    assert "measured to do harm" in html(browser.get(f"/agents/{agent.pk}/playbook/items/s1/"))
