"""Scorers of the dataset environment: is this answer what the row expects?

Each is built from a row's ``expected_outcome`` once, which finds a faulty row before any rollout, and is then a
function of the answer.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from experiences.rollouts.environments.answers import (
    MAX_ANSWER,
    answer_in,
    comparable,
    fences_in,
    one_form,
)
from experiences.rollouts.environments.exact_text import exact
from experiences.rollouts.environments.math_check import same_formula
from experiences.rollouts.environments.number_reading import (
    asks_for_percent,
    reading_of,
    same_reading,
    units_differ,
    without_percent,
)
from experiences.rollouts.environments.safe_regex import SEARCH_SECONDS, compiled
from experiences.rollouts.environments.structured import field_of
from experiences.rollouts.environments.verdicts import MAX_MATCHED, evidence_of, several, target_of, verdict
from experiences.rollouts.json_repairs import json_in_words, repaired
from experiences.rollouts.thoughts import thoughts_ran_out
from experiences.rollouts.types import Outcome

Check = Callable[[str], Outcome]

MAX_RUBRIC = 10_000
NUMBERS: Final = ("exact", "math", "numeric")  # scorers that read numbers
SEVERAL: Final = "it has several JSON objects that differ"
UNFINISHED: Final = "its thoughts ran out before an answer"

_LATEX: Final = re.compile(r"\\[a-zA-Z(\[{]|^\$[^$]+\$$|[\^_]\{")
# Single letters with operators and numbers, or a tuple of numbers: a formula without LaTeX.
_FORMULA: Final = re.compile(
    r"(?=.*[-+*/^=<>≤≥])(?=.*\d)(?=.*[a-zA-Z])(?:[a-zA-Z](?![a-zA-Z])|sqrt|pi|[\d\s+\-*/^=().<>≤≥])+|[(\[{][-+*/\d\s.]+(?:,[-+*/\d\s.]+)+[)\]}]"
)
_SYMBOLIC: Final = re.compile(r"\\|[√π∞]|\bsqrt\b|\bpi\b|[a-zA-Z]\s*[\^(]")
_LETTERS: Final = re.compile(r"-?[a-z](?:(?: ?[+^] ?| - )[a-z])+")  # "n/a" and "a-z" are words
_IN_BASE: Final = re.compile(r"[\dA-F]+_\d{1,2}")
_MATRIX: Final = re.compile(r"\[(\s*\[[^\[\]]+\](?:\s*,\s*\[[^\[\]]+\])*\s*)\]")
_SAME: Final = (  # of two ways to write the same the shorter
    (re.compile(r"\\[dtc]frac"), r"\\frac"),
    (re.compile(r"\\(?:left|right)(?![a-zA-Z])|(?<!\\)\\[,!;: ]"), ""),
    (re.compile(r"(?<=[\w})])\s*\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{[^{}]*\}$"), ""),  # a unit
    (re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"([_^])\{(\w)\}"), r"\1\2"),
    (re.compile(r"\s+"), " "),
)
_EDGES: Final = (r"(?<![^\W_])", r"(?![^\W_])")
_OF_NUMBERS: Final = (r"(?<![\d.,])(?<![^\W_])(?<!\s[-+])(?<!^[-+])", r"(?![^\W_])(?![.,:]\d)")
_UNSPACED: Final = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")


SAME_AS_REFERENCE = (
    "10: the answer says the same as the reference, whole and without errors, in whatever words. 5: about half of it."
    " 0: something else, or nothing."
)


@dataclass(frozen=True, slots=True)
class Rubric:
    """Rubric of a judge. ``threshold`` is the score in [0, 1] from which an answer is a success; the median of
    ``calls`` scores counts; ``model`` is "" for the agent's own. ``shows_reference``, for rubrics that are not a row's
    own: whether the judge sees the expected answer."""

    text: str
    reference: str = ""
    threshold: float = 0.7
    calls: int = 1
    model: str = ""
    shows_reference: bool = True


def reference_in(expected: Mapping[str, Any]) -> str:
    """The answer that is expected, as a judge reads it; "" where there is none."""
    answer = expected.get("answer")
    return " | ".join(map(str, answer)) if isinstance(answer, list) else "" if answer is None else str(answer)


def rubric_for(expected: Mapping[str, Any], scorer: str = "auto") -> Rubric | None:
    """The rubric of a row; None where the answer is checked without a judge.

    Raises:
        ValueError: there is neither a rubric nor a reference. The message is for the row's author.
    """
    if scorer != "judge" and not (scorer == "auto" and expected.get("judge") is not None):
        return None
    target = target_of(expected, "judge", "answer")
    text = expected.get("judge") or SAME_AS_REFERENCE
    if not isinstance(text, str) or len(text) > MAX_RUBRIC:
        raise ValueError(f"its rubric must be text of at most {MAX_RUBRIC:,} characters; got {str(target)[:60]!r}.")
    return Rubric(text, reference_in(expected))


def check_for(
    expected: Mapping[str, Any], scorer: str = "auto", *, case_sensitive: bool = False, query: str = ""
) -> Check:
    """The check that a row asks for. ``scorer`` names one; "auto" goes by the keys of ``expected``: "judge",
    "json_schema", "regex", "contains", else "answer": math if it is a number or LaTeX (numeric beside a "tolerance"),
    exact if it is text. Each check takes the text that a model wrote: ``answer_in`` says what of it is the answer.
    Where the ``query`` asks for a percentage, a number with its sign is that number.

    Raises:
        ValueError: there is nothing to check against, or it is malformed. The message is for the row's author.
    """
    if expected.get("correct") is False:
        raise ValueError("its answer is marked correct: false; give the right answer.")
    chosen = scorer_of(expected) if scorer == "auto" else scorer
    check = SCORERS[chosen](expected, case_sensitive)
    signless = chosen in NUMBERS and asks_for_percent(query)
    in_field = chosen in NUMBERS and not any(text.lstrip().startswith("{") for text in several(expected.get("answer")))

    def checked(text: str) -> Outcome:
        if thoughts_ran_out(text):
            return Outcome(0.0, False, {"scorer": chosen, "answered": False, "why": UNFINISHED})
        answer = answer_in(text)
        answer = field_of(answer) if in_field else answer
        outcome = check(answer)
        if signless and not outcome.success and (number := without_percent(answer)) != answer:
            again = check(number)
            return again if again.success else outcome
        return outcome

    return checked


def scorer_of(expected: Mapping[str, Any]) -> str:
    """The scorer that "auto" takes for a row."""
    for name in ("judge", "json_schema", "regex", "contains"):
        if expected.get(name) is not None:
            return name
    answer = expected.get("answer")
    answers = answer if isinstance(answer, list) and answer else [answer]
    if all(_is_number(one) or (isinstance(one, str) and is_formula(one)) for one in answers):
        return "numeric" if "tolerance" in expected and not isinstance(answer, list) else "math"
    return "exact"


def is_formula(text: str) -> bool:
    """Whether an expected text is LaTeX, or a formula in plain signs."""
    return bool(_LATEX.search(text) or any(form.fullmatch(text) for form in (_FORMULA, _LETTERS, _IN_BASE)))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def math_answer(expected: Mapping[str, Any], case_sensitive: bool) -> Check:
    """The answer has the value of the expected one (or of one of several). Numbers are compared exactly, formulas by
    math-verify. A comparison that takes too long raises."""
    target = target_of(expected, "answer")
    texts = several(target)
    return lambda answer: verdict(any(_same(text, answer) for text in texts), "math", answer, target)


def _same(text: str, answer: str) -> bool:
    """Whether an answer has the value of an expected text."""
    number, found = reading_of(text), reading_of(answer)
    number = number if number is not None and number.alone else None
    wanted, said = _formula(text), _formula(answer)
    if (number is None or "_" in wanted) and wanted.replace(" ", "") == said.replace(" ", ""):
        return True  # "2516_8" is no number with a mark that is not clear
    if _IN_BASE.fullmatch(wanted) and _IN_BASE.fullmatch(said):
        return False  # math-verify leaves bases out
    if number is not None and found is not None and (found.unclear or units_differ(number, found)):
        return False
    if "matrix" in wanted and (rows := _MATRIX.fullmatch(said)) is not None:
        said = _matrix(rows[1])
    if "\\text" in text and comparable(wanted) == comparable(said):
        return True
    if number is not None and found is not None and found.surely:
        return same_reading(number, found)
    if number is not None and found is None and not _SYMBOLIC.search(answer):
        return False
    return same_formula(wanted, said)


def _formula(text: str) -> str:
    """A formula without the marks that change nothing of its value."""
    text = one_form(text[:MAX_ANSWER]).strip().rstrip(".,;:").strip()
    for pattern, by in _SAME:
        text = pattern.sub(by, text)
    inside = text.strip("$ ").removeprefix("\\(").removesuffix("\\)").removeprefix("\\[").removesuffix("\\]").strip()
    return text if "$" in inside or "\\(" in inside else inside


def _matrix(rows: str) -> str:
    """Rows in brackets, as Python and JSON write them, in LaTeX."""
    lines = re.findall(r"\[([^\[\]]+)\]", rows)
    return r"\begin{pmatrix}" + r"\\".join(line.replace(",", "&") for line in lines) + r"\end{pmatrix}"


def numeric(expected: Mapping[str, Any], case_sensitive: bool) -> Check:
    """The answer's last number is the expected one within "tolerance" (absolute; without one whole numbers are equal,
    others within a relative 1e-9). A number that a sign changes, and one of several, is none."""
    wanted = reading_of(str(target_of(expected, "answer")))
    tolerance = expected.get("tolerance", 0.0)
    if wanted is None:
        raise ValueError(f"its answer {expected['answer']!r} is not a number.")
    if not _is_number(tolerance) or not tolerance >= 0:
        raise ValueError(f"its tolerance {tolerance!r} is not a number from 0.")
    shown = int(wanted.value) if wanted.value.denominator == 1 else float(wanted.value)
    allowed = math.inf if math.isinf(tolerance) else Fraction(str(tolerance))

    def check(answer: str) -> Outcome:
        found = reading_of(answer)
        close = found is not None and not (found.unclear or found.touched) and same_reading(wanted, found, allowed)
        return verdict(close, "numeric", answer, shown)

    return check


def contains(expected: Mapping[str, Any], case_sensitive: bool) -> Check:
    """Every expected piece of text occurs in the answer, as whole words."""
    target = target_of(expected, "contains", "answer")
    texts = [comparable(piece, case_sensitive=case_sensitive) for piece in several(target)]
    if not all(texts):
        raise ValueError("one of its pieces of text is empty: every answer would hold it.")
    pieces = [by_words(text) for text in texts]

    def check(answer: str) -> Outcome:
        text = comparable(answer, case_sensitive=case_sensitive)
        return verdict(all(piece.search(text) for piece in pieces), "contains", answer, target)

    return check


def by_words(piece: str) -> re.Pattern[str]:
    """Finds a piece of text that no word or number goes on from. Scripts that write words without spaces between them
    have no such edges."""
    first, last = piece[:1], piece[-1:]
    before = (
        r"(?<![\d.,])(?<![^\W_])(?<!\s[-+])(?<!^[-+])" if first.isdigit() else _EDGES[0] if _has_edge(first) else ""
    )
    after = r"(?![^\W_])(?![.,:]\d)" if last.isdigit() else _EDGES[1] if _has_edge(last) else ""
    return re.compile(before + re.escape(piece) + after)


def _has_edge(character: str) -> bool:
    return character.isalnum() and not _UNSPACED.match(character)


def regex(expected: Mapping[str, Any], case_sensitive: bool) -> Check:
    """The pattern is found in the answer's first 10,000 characters, as they are or without punctuation behind. A search
    that takes too long raises."""
    target = str(target_of(expected, "regex", "answer"))
    found = compiled(target, case_sensitive=case_sensitive)

    def check(answer: str) -> Outcome:
        text = answer[:MAX_MATCHED]
        forms = dict.fromkeys((text, text.rstrip(".。"), one_form(text)))
        return verdict(any(found(form, SEARCH_SECONDS) for form in forms), "regex", answer, target)

    return check


def json_schema(expected: Mapping[str, Any], case_sensitive: bool) -> Check:
    """The answer is JSON that the schema accepts: alone, in a fence, or one object between words. What is no JSON but
    for its punctuation (a comma too many, single quotes) is repaired; that, and words around, is noted. Two objects
    that differ are no answer. A schema may not refer to another document; a check that takes too long raises."""
    from experiences.rollouts.environments.schemas import Schema

    target = target_of(expected, "json_schema")
    schema = Schema(target)

    def check(answer: str) -> Outcome:
        text = answer[:MAX_ANSWER].strip("\ufeff \n\r\t.").removeprefix("json\n")
        found, noted = _values_in(text)
        if len(found) > 1:
            return verdict(False, "json_schema", answer, target, why=SEVERAL)
        right = bool(found) and schema.accepts(found[0])
        return verdict(right, "json_schema", answer, target, **({"repaired": True} if noted and right else {}))

    return check


def _values_in(text: str) -> tuple[list[Any], bool]:
    """(the different JSON values of an answer, whether it had faults or words around): of all of it, else of its
    fences, else of the objects and lists between its words."""
    whole = _value_of(text)
    if whole is not None:
        return [whole[0]], whole[1]
    fenced = [value for value in map(_value_of, fences_in(text)) if value is not None]
    if fenced:
        different = [value for at, value in enumerate(fenced) if value[0] not in [one for one, _ in fenced[:at]]]
        return [value for value, _ in different], any(repair for _, repair in different)
    between, cut = json_in_words(text)
    return [] if cut else between, True


def _value_of(written: str) -> tuple[Any, bool] | None:
    """(the JSON value that a text is, whether it had to be repaired); None: it is no JSON."""
    try:
        return json.loads(written), False
    except (ValueError, RecursionError):
        value = repaired(written)
        return None if value is None else (value, True)


def judge(expected: Mapping[str, Any], case_sensitive: bool) -> Check:
    """A language model's verdict by a rubric. It is asked while the episode goes on (``TextEpisode.say``); what is
    built here answers where there is no model to ask: no verdict, which leaves the trajectory unscored."""
    rubric = rubric_for(expected, "judge")
    assert rubric is not None
    shown, missing = rubric.reference or rubric.text, "no language model was there to judge it"
    return lambda answer: Outcome(0.0, False, evidence_of("judge", answer, shown) | {"judge_error": missing})


SCORERS: Mapping[str, Callable[[Mapping[str, Any], bool], Check]] = {
    "exact": exact,
    "math": math_answer,
    "numeric": numeric,
    "contains": contains,
    "regex": regex,
    "json_schema": json_schema,
    "judge": judge,
}
