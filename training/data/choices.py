"""Questions with choices as datasets write them: the choices are asked with the question, and the answer is a letter.

Known forms: a list beside the question, with the answer as its place (MMLU, from 0 or from 1), as a label or as text;
``{"text": […], "label": […]}`` (ARC, CommonsenseQA); a column for each choice (``A`` to ``D``, ``option_a``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from experiences.rollouts.environments.answers import comparable

COLUMNS: Final = ("choices", "options", "answer_choices", "endings")
LETTERS: Final = "ABCDEFGHIJ"
_OF_ONE: Final = re.compile(r"(?:option|choice|answer)?[_ ]?([a-j])", re.IGNORECASE)


def choices_in(row: Mapping[str, Any], but_not: Sequence[str] = ()) -> list[tuple[str, str]]:
    """(label, text) of each choice of a row; none where it has no two to ten of them."""
    given = {name.strip().lower(): value for name, value in row.items() if name not in but_not}
    found = next((_listed(given[name]) for name in COLUMNS if name in given), [])
    if not found:
        apart = {match[1].upper(): value for name, value in given.items() if (match := _OF_ONE.fullmatch(name))}
        labels = LETTERS[: len(apart)]
        found = [(one, str(apart[one])) for one in labels if apart.get(one) not in (None, "")]
        found = found if len(found) == len(apart) else []
    return found if 2 <= len(found) <= len(LETTERS) and all(text.strip() for _, text in found) else []


def first_place(answers: Sequence[Any], sizes: Sequence[int]) -> int:
    """The number of the first choice where answers are places: 1 where no answer is 0 and one is the last number."""
    places = [_place(answer) for answer in answers]
    ends = any(place == size for place, size in zip(places, sizes, strict=True))
    return 1 if ends and 0 not in places else 0


def asked_with_choices(
    query: str, choices: Sequence[tuple[str, str]], answer: Any, first: int
) -> tuple[str, dict[str, Any]] | None:
    """The question with its choices, and what is expected: the letter of the right one, or its text. None where the
    answer is none of the choices."""
    at = _right(choices, answer, first)
    if at is None:
        return None
    texts = [text.strip() for _, text in choices]
    if not all(text in query for text in texts):
        query += "\n\n" + "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, texts, strict=False))
    alike = sum(comparable(text) == comparable(texts[at]) for text in texts)
    return query, {"answer": [LETTERS[at], texts[at]] if alike == 1 else [LETTERS[at]]}


def _right(choices: Sequence[tuple[str, str]], answer: Any, first: int) -> int | None:
    said = str(answer).strip() if isinstance(answer, str | int) and not isinstance(answer, bool) else ""
    labels = [label.strip().upper() for label, _ in choices]
    if said.upper() in labels:
        return labels.index(said.upper())
    texts = [comparable(text) for _, text in choices]
    if said and comparable(said) in texts and isinstance(answer, str):
        return texts.index(comparable(said))
    place = _place(answer)
    return place - first if place is not None and 0 <= place - first < len(choices) else None


def _place(answer: Any) -> int | None:
    if isinstance(answer, bool) or not isinstance(answer, int | str):
        return None
    return int(answer) if re.fullmatch(r"\s*\d\s*", str(answer)) else None


def _listed(value: Any) -> list[tuple[str, str]]:
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    if isinstance(value, Mapping):
        texts, labels = value.get("text"), value.get("label")
        if not isinstance(texts, list) or not isinstance(labels, list):
            texts, labels = list(value.values()), list(value)
    else:
        texts = value
        labels = list(LETTERS[: len(value)]) if isinstance(value, list) else []
    if not isinstance(texts, list) or len(texts) != len(labels):
        return []
    return [(str(label), str(text)) for label, text in zip(labels, texts, strict=True)]
