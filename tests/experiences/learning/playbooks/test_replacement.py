"""The item of a full playbook that makes room, and when a new one has no place. No database."""

from __future__ import annotations

import random
from itertools import count
from typing import Any

import pytest

from experiences.learning.playbooks.curator import CuratorRules, curate
from experiences.learning.playbooks.deltas import Delta, State
from experiences.learning.playbooks.effects import ItemEffect, Outcomes
from experiences.learning.playbooks.effects_by_words import DrawnExecution, Expected, expected_effects, words_of
from experiences.learning.playbooks.items import PlaybookItem
from experiences.learning.playbooks.replacement import curate_replacing, no_room, places, weakest_of
from tests.support.playbooks import TEXTS

HELPS = ItemEffect(Outcomes(900, 720), Outcomes(100, 50))
BELOW = ItemEffect(Outcomes(900, 600), Outcomes(100, 68))
ABOVE = ItemEffect(Outcomes(900, 600), Outcomes(100, 62))
UNTRIED = ItemEffect(Outcomes(9, 6), Outcomes(1, 0))
NEW = Delta("add", 0.8, "learnings", "Weekend orders are packed on Monday morning.")


def book(n: int = 4) -> list[PlaybookItem]:
    return [PlaybookItem(f"s{i + 1}", "strategies", TEXTS[i], 0.8, usage=90, helpful=60, harmful=30) for i in range(n)]


def replaced(effects: dict[str, ItemEffect], delta: Delta = NEW, most: int = 4) -> Any:
    numbers = count(5)
    rules = CuratorRules(min_confidence=0.0, review_floor=0.0, max_sections=most, guarded=False)
    return curate_replacing(book(), delta, rules, lambda: f"s{next(numbers)}", effects)


def test_an_added_item_takes_the_place_of_the_weakest_by_measured_effect() -> None:
    result = replaced({"s1": HELPS, "s2": ABOVE, "s3": BELOW, "s4": HELPS})
    assert [one.id for one in result.sections] == ["s1", "s2", "s4", "s5"]
    gone = result.changes[-1]
    assert (gone.section, gone.action, gone.delta) == ("s3", "pruned", 0)
    assert gone.reason == (
        "it made room for s5: it adds -1.3 points of success, the least of all"
        " (66.7% of 900 executions with it succeeded, 68.0% of 100 without it)"
    )


def test_without_measured_effects_the_least_trusted_makes_room_and_the_reason_says_so() -> None:
    result = replaced({})
    assert len(result.sections) == 4 and "the least trust" in result.changes[-1].reason


def test_where_there_is_room_or_the_text_is_there_already_none_makes_room() -> None:
    assert len(replaced({}, most=5).sections) == 5
    twin = replaced({}, Delta("add", 0.8, "strategies", TEXTS[0]))
    assert twin.verdicts[0].state == State.MERGED and len(twin.sections) == 4


def test_an_item_that_is_measured_to_help_makes_no_room() -> None:
    effects = {item.id: HELPS for item in book()}
    assert weakest_of(book(), effects) is None and weakest_of([], {}) is None
    assert len(replaced(effects).sections) == 5  # one too many: its caller refuses


def test_the_estimate_by_words_ranks_before_the_plain_difference() -> None:
    worse = ItemEffect(ABOVE.included, ABOVE.left_out, expected=Expected(-0.03, 0.01))
    result = replaced({"s1": HELPS, "s2": worse, "s3": BELOW, "s4": HELPS})
    assert result.changes[-1].section == "s2" and "by the words of their inputs" in result.changes[-1].reason
    above = CuratorRules(max_sections=4)
    kept = curate(book(), [NEW], above, lambda: "s5", {"s2": worse, "s3": BELOW})
    assert [change.section for change in kept.changes if change.action == "pruned"] == ["s2"]


@pytest.mark.parametrize(
    ("effects", "most", "why"),
    [
        ({}, 4, ""),  # nothing is left out of contexts: nothing is known of any item
        ({"s1": UNTRIED, "s2": HELPS, "s3": HELPS, "s4": ABOVE}, 5, ""),  # there is room
        ({"s1": UNTRIED, "s2": HELPS, "s3": HELPS, "s4": BELOW}, 4, ""),  # s4 makes room
        ({"s1": UNTRIED, "s2": HELPS, "s3": HELPS, "s4": ABOVE}, 4, "or more by what is measured, and 1 is not"),
        ({"s1": UNTRIED, "s2": UNTRIED}, 4, "more by what is measured, and 4 are not measured yet"),
    ],
)  # fmt: skip
def test_a_new_item_has_no_place_where_none_is_measured_to_be_weak(effects: Any, most: int, why: str) -> None:
    found = no_room(book(), effects, most)
    assert (why in found) if why else (found == "")


def test_effects_of_items_for_one_kind_of_input_are_found_by_its_word() -> None:
    """Four kinds of requests; three items help with one of them each, three harm, and one does nothing."""
    kinds = ["freight", "payroll", "customs", "tenancy"]
    items = {f"s{n}": f"For {kinds[n % 4]} cases do step {n}." for n in range(7)}
    adds = dict(zip(items, (0.3, 0.3, 0.3, -0.3, -0.3, -0.3, 0.0), strict=True))
    rng, trials = random.Random(5), []
    for n in range(1_000):
        included = frozenset(item for item in items if rng.random() >= 0.1)
        effect = sum(adds[item] for item in included if f" {kinds[n % 4]} " in items[item])
        words = words_of([f"A {kinds[n % 4]} question, number {n % 7}"])
        trials.append(DrawnExecution(words, rng.random() < 0.5 + effect, 0.1, frozenset(items), included))
    found = expected_effects(trials, items)
    good, bad = [found[f"s{n}"].mean for n in range(3)], [found[f"s{n}"].mean for n in range(3, 6)]
    assert min(good) > max(bad) and all(one.deviation > 0 for one in found.values())
    fresh = expected_effects(trials, items | {"s9": "Nobody was offered this one."})["s9"]
    assert abs(fresh.mean) < 1e-9 and fresh.deviation > max(one.deviation for one in found.values())


def test_without_executions_or_words_that_differ_one_effect_or_none_is_left() -> None:
    assert expected_effects([], {"s1": "x"}) == {}
    offered = frozenset({"s1"})
    with_it, without = (
        DrawnExecution(frozenset(), True, 0.5, offered, offered),
        DrawnExecution(frozenset(), False, 0.5, offered, frozenset()),
    )
    assert expected_effects([with_it, without] * 40, {"s1": "Do it."})["s1"].mean > 0.5


def test_an_item_that_is_not_measured_yet_goes_before_one_that_adds_something() -> None:
    result = replaced({"s1": HELPS, "s2": ABOVE, "s3": UNTRIED, "s4": HELPS})
    assert result.changes[-1].section == "s3" and "the least trust" in result.changes[-1].reason
    measured = replaced({"s1": HELPS, "s2": ABOVE, "s3": HELPS, "s4": HELPS})
    assert measured.changes[-1].section == "s2" and "it adds +4.7 points" in measured.changes[-1].reason


def test_an_estimate_that_is_in_doubt_makes_no_item_weak() -> None:
    sure, unsure = (ItemEffect(ABOVE.included, ABOVE.left_out, expected=Expected(-0.005, by)) for by in (0.01, 0.05))
    assert sure.weak and not unsure.weak and BELOW.weak and not ABOVE.weak and not UNTRIED.weak


def test_a_full_playbook_takes_as_many_new_items_as_it_has_weak_ones() -> None:
    effects = {"s1": HELPS, "s2": ABOVE, "s3": BELOW, "s4": HELPS}
    assert places(book(), effects, 4) == 1 and places(book(), effects, 6) == 3 and places(book(), {}, 4) is None
    others = [NEW, Delta("add", 0.9, "strategies", TEXTS[0]), Delta("add", 0.9, "learnings", TEXTS[8])]
    numbers = count(5)
    for held, state in (("", State.APPLIED), ("it was learned from executions", State.QUARANTINED)):
        rules = CuratorRules(max_sections=4, places=1, held=held)
        result = curate(book(), others, rules, lambda: f"s{next(numbers)}", effects)
        states = [verdict.state for verdict in result.verdicts]
        assert (states[0], states[2]) == (state, State.REJECTED) and states[1] != State.REJECTED
        assert "make room for 1 new ones at a time" in result.verdicts[2].reason
