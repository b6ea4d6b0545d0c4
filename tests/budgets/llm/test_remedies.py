"""A service's words and the step that follows, as sentences."""

from __future__ import annotations

import pytest

from budgets.llm.errors import BadRequest
from budgets.llm.remedies import advice, with_step


@pytest.mark.parametrize("words", ["451: the answer holds no error message of a model API", "400: suspended.", "No!"])
def test_words_and_step_are_two_sentences(words: str) -> None:
    step = advice(BadRequest(words))
    found = with_step(words, step)
    assert found == f"{words}{'' if words[-1] in '.!' else '.'} {step}" and step.startswith("Test the endpoint:")
    assert with_step(words, "") == words
