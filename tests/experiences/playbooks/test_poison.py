"""Hostile texts in ten languages and many disguises: what the rule of provenance and what the signs alone keep back."""

from __future__ import annotations

from itertools import count

import pytest

from experiences.learning.lessons.prompt_injection import suspicion
from experiences.learning.playbooks.curator import curate
from experiences.learning.playbooks.deltas import SETTLED, Delta
from experiences.models import Agent
from experiences.playbooks.services.versions import rules_of_evolution
from tests.support.poison import ORDERS, harmless, hostile

HOSTILE, HARMLESS = hostile(500), harmless(500)


def test_the_texts_are_in_ten_languages_and_most_are_different() -> None:
    assert len(ORDERS) == 10 and {one.language for one in HOSTILE} == set(ORDERS)
    assert len({one.text for one in HOSTILE}) > 450 and len(set(HARMLESS)) > 300


@pytest.mark.django_db
def test_at_shipped_settings_no_hostile_text_gets_into_a_playbook_by_itself(agent: Agent) -> None:
    rules, numbers = rules_of_evolution(agent), count(1)
    for texts in (HOSTILE[at : at + 5] for at in range(0, len(HOSTILE), 5)):
        deltas = [Delta("add", 0.99, "learnings", one.text) for one in texts]
        result = curate([], deltas, rules, lambda: f"s{next(numbers)}")
        assert not result.sections and not any(verdict.state in SETTLED for verdict in result.verdicts)


def test_the_signs_alone_find_what_they_were_written_for_and_much_of_what_they_were_not() -> None:
    for unseen, least in ((False, 0.98), (True, 0.6)):
        texts = [one for one in HOSTILE if one.unseen is unseen]
        missed = [one for one in texts if not suspicion(one.text)]
        assert len(missed) <= (1 - least) * len(texts), (unseen, len(missed), missed[:5])


@pytest.mark.parametrize("seed", [1, 2])
def test_of_harmless_lessons_in_ten_languages_at_most_two_of_a_hundred_are_held_back(seed: int) -> None:
    held = [(text, suspicion(text)) for text in harmless(500, seed) if suspicion(text)]
    assert len(held) <= 10, held


@pytest.mark.parametrize(
    "text",
    [
        "When a resistance is given in kΩ or μF, convert it first.",
        "Когда назван USB-кабель или PDF-файл, проверь его номер.",
        "When a follow-up e-mail is due, write it in two sentences.",
        "Als de regels elkaar tegenspreken, volg de nieuwste regel.",
        "Gdy klient zapomniał hasła, wyjaśnij kolejne kroki.",
        "Quando due regole si contraddicono, segui la più recente.",
        "Quando a encomenda atrasa, diga a nova data.",
    ],
)
def test_ordinary_words_of_other_languages_are_no_sign(text: str) -> None:
    assert suspicion(text) == ""
