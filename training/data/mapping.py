"""Columns of a file become queries and what is expected of their answers. Guessed from the forms that datasets have,
and chosen by a person.

Known forms: our own; question and answer in two columns under their usual names; GSM8K (the answer behind "####");
questions with choices (``choices``) and with a passage; conversations (``messages`` of fine-tuning, ShareGPT's
``conversations``, a ``prompt`` of messages), the last answer of which is expected; ``input`` and ``ideal`` of OpenAI's
evals; verl's ``reward_model``; verifiers' ``info``.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentcore_site.lib.text_uploads import refused
from experiences.rollouts.conversations import (
    Content,
    conversation_of,
    conversation_text,
    images_fault,
    images_in,
    images_of,
)
from experiences.rollouts.environments.answers import boxes_in, one_form
from experiences.rollouts.environments.scorers import check_for, scorer_of
from training.data.choices import asked_with_choices, choices_in, first_place
from training.data.tables import RowTable

OURS: Final = ("query", "expected_outcome", "metadata")
QUERIES: Final = (
    *("query", "question", "problem", "prompt", "messages", "conversations", "conversation", "instruction"),
    *("input", "user_input", "task", "text", "user", "item"),
)
ANSWERS: Final = (
    *("expected_outcome", "answer", "final_answer", "expected_answer", "expected_output", "expected", "ideal"),
    *("ground_truth", "reward_model", "reference_answer", "reference", "target", "label", "gold", "solution"),
    *("correct_answer", "best_answer", "gold_answer", "golden_answers", "answer_key", "correct_option"),
    *("ideal_answer", "expected_response", "completion", "output", "response", "chosen", "answers"),
)
PASSAGES: Final = ("passage", "context", "article", "paragraph")  # read with a question (SQuAD, BoolQ, RACE)
CONVERSATIONS: Final = ("messages", "conversations", "conversation", "prompt", "input", "question")
ROLES: Final = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant", "model": "assistant"}
GRADED_AS: Final = {
    "exact": "the same text, apart from its form",
    "math": "numbers and formulas, by their value",
    "numeric": "numbers, within a tolerance",
    "contains": "the expected words occur in the answer",
    "regex": "the answer fits a pattern",
    "json_schema": "JSON that fits a schema",
    "judge": "a language model judges by a rubric, at its price",
}
NOTHING: Final = "nothing: there is no answer to compare with"
MAX_WRONG: Final = 5

_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?(?:[eE][-+]?\d{1,2})?")
_GSM8K: Final = re.compile(r"\n####\s*([^\n]+?)\s*\Z")
_PYTHON: Final = re.compile(r"\s*[{\[]\s*(?:'|None\b|True\b|False\b|\w+\s*:)")
_OBJECT: Final = re.compile(
    r"(?:OrderedDict|defaultdict|Counter|array|tensor|Decimal|Timestamp|np\.\w+|datetime\.\w+)\(.*\)", re.DOTALL
)
_PYTHON_VALUE: Final = "{!r} is a Python value as text, not JSON; write it with json.dumps."
MISSING: Final = frozenset({"null", "NULL", "None", "NaN", "nan", "<NA>"})  # as programs write a cell without a value


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """Columns of the query and of the answer; "" for none. The other columns become metadata."""

    query: str
    answer: str = ""

    @property
    def ours(self) -> bool:
        return self.query == "query" and self.answer in ("", "expected_outcome")


def guessed(columns: Sequence[str], rows: Sequence[Mapping[str, Any]] = ()) -> ColumnMapping | None:
    """The mapping that the names of columns suggest; None: none does."""
    by_name = {_plain_name(name): name for name in reversed(columns)}
    query = next((by_name[name] for name in QUERIES if name in by_name), "")
    if not query:
        return None
    answers = [by_name[name] for name in ANSWERS if name in by_name and by_name[name] != query]
    first = rows[0] if rows else {}
    if not answers and not _conversation(first.get(query)) and len(columns) == 2:
        answers = [name for name in columns if name != query]
    return ColumnMapping(query, answers[0] if answers else "")


def _plain_name(name: str) -> str:
    """A column's name with underscores between its words, also where they are in camel case."""
    return re.sub(r"[\s-]+|(?<=[a-z\d])(?=[A-Z])", "_", name.strip()).casefold()


def mapped(table: RowTable, mapping: ColumnMapping) -> list[dict[str, Any]]:
    """Rows of a dataset.

    Raises:
        Invalid: a column is missing, or rows can never be right; the first of them are named.
    """
    for name in (mapping.query, mapping.answer):
        if name and name not in table.columns:
            raise refused(f"There is no column {name!r}. Columns: {', '.join(table.columns)[:300]}.")
    numbers = table.flat and bool(mapping.answer) and _all_numbers([row.get(mapping.answer) for row in table.rows])
    offered = [choices_in(row, (mapping.query, mapping.answer)) for row in table.rows]
    first = first_place([row.get(mapping.answer) for row in table.rows], [len(choices) for choices in offered])
    rows, wrong = [], []
    for number, (row, choices) in enumerate(zip(table.rows, offered, strict=True), start=1):
        try:
            answer = row.get(mapping.answer)
            if table.flat and isinstance(answer, str) and answer.strip() in MISSING:
                missing, meant = answer.strip(), json.dumps({"answer": answer.strip()})
                raise ValueError(f"its answer {missing!r} is how programs write a missing one; if meant: {meant}.")
            rows.append(_row(row, mapping, numbers, choices, first))
        except ValueError as error:
            wrong.append(f"Row {number}: {error}")
    if wrong:
        more = f" {len(wrong) - MAX_WRONG:,} more rows are wrong." if len(wrong) > MAX_WRONG else ""
        raise refused(" ".join(wrong[:MAX_WRONG]) + more)
    return rows


def graded_by(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    """(scorer, its way of comparing, number of rows), most first."""
    counts = Counter(scorer_of(row["expected_outcome"]) if row.get("expected_outcome") else NOTHING for row in rows)
    return [(name, GRADED_AS.get(name, ""), n) for name, n in counts.most_common()]


def conversations_in(rows: Sequence[Mapping[str, Any]]) -> int:
    """Rows whose query is said message by message."""
    return sum(conversation_of(str(row.get("query")), row.get("metadata") or {}) is not None for row in rows)


def images_asked(rows: Sequence[Mapping[str, Any]]) -> int:
    """Images in all queries."""
    return sum(len(images_of(str(row.get("query")), row.get("metadata") or {})) for row in rows)


def never_right(row: Mapping[str, Any]) -> str:
    """The reason why no answer to a row can be right, as a sentence; "" without one."""
    metadata = row.get("metadata") or {}
    if conversation_of(row["query"], metadata) and (fault := images_fault(row["query"], metadata["messages"])):
        return fault
    expected = row.get("expected_outcome")
    if not isinstance(expected, Mapping):
        return ""
    if "answer" in expected and not any(expected.get(name) for name in ("judge", "json_schema", "regex", "contains")):
        answer = expected["answer"]
        for one in answer if isinstance(answer, list) and answer else [answer]:
            if one is None:
                return "its answer is null; give the right answer, or leave the row out."
            if one in ([], {}) or (isinstance(one, str) and not one_form(one).strip()):
                return "its answer is empty; give the right answer, or leave the row out."
            if isinstance(one, dict | list):
                return (
                    "its answer is an object or a list within a list, which no text equals; give json_schema instead."
                )
            if isinstance(one, str) and one.lstrip().startswith("{") and _is_python(one):
                return _PYTHON_VALUE.format(one[:40])
    if expected:
        try:
            check_for(expected)
        except ValueError as error:
            return str(error)
    return ""


def written_by_python(row: Mapping[str, Any]) -> str:
    """The reason why a cell of a table is no JSON though it looks like it, as a sentence; "" without one. In other
    files such a text is an answer: some services write lists so."""
    for one in (row.get("expected_outcome") or {}).values():
        if isinstance(one, str) and _is_python(one):
            return _PYTHON_VALUE.format(one[:40])
    return ""


def _row(
    row: Mapping[str, Any], mapping: ColumnMapping, numbers: bool, choices: Sequence[tuple[str, str]], first: int
) -> dict[str, Any]:
    """``choices`` are those of the question, and ``first`` is the number of the first one.

    Raises:
        ValueError: it has no query, or its images can't be asked.
    """
    query, further = row.get(mapping.query), {}
    messages = _conversation(query)
    answer: Any = row.get(mapping.answer) if mapping.answer else None
    if messages is not None:
        if not mapping.answer and messages[-1]["role"] == "assistant":
            answer = messages[-1]["content"]
            messages = messages[:-1]
        query = conversation_text(messages)
        if fault := images_fault(query, messages):
            raise ValueError(fault)
        further = {"messages": messages} if len(messages) > 1 or any(images_in(messages)) else {}
    if not isinstance(query, str) or not query.strip():
        raise ValueError(f"column {mapping.query!r} has no text.")
    context = row.get("input")
    if mapping.query == "instruction" and isinstance(context, str) and context.strip() and mapping.answer != "input":
        query = f"{query}\n\n{context}"
    asked = asked_with_choices(query, choices, answer, first) if choices and messages is None else None
    query = query if asked is None else asked[0]
    if _plain_name(mapping.query) == "question" and messages is None:
        passage = next((text for name in PASSAGES if isinstance(text := row.get(name), str) and text.strip()), "")
        query = query if passage in query or mapping.answer in PASSAGES else f"{passage}\n\n{query}"
    metadata = row.get("metadata") if isinstance(row.get("metadata"), Mapping) else {}
    left = {
        name: value
        for name, value in row.items()
        if name not in (mapping.query, mapping.answer, "metadata") and value not in (None, "")
    }
    found: dict[str, Any] = {"query": query, "metadata": {**left, **(metadata or {}), **further}}
    if mapping.answer or answer is not None:
        found["expected_outcome"] = _expected(answer, numbers) if asked is None else asked[1]
    return found


def _expected(value: Any, numbers: bool) -> dict[str, Any]:
    """The expectation of a cell."""
    if isinstance(value, str):
        value = _cell(value, numbers)
    if isinstance(value, bool):  # BoolQ
        return {"answer": ["yes", "true"] if value else ["no", "false"]}
    if isinstance(value, Mapping):
        if isinstance(value.get("aliases"), list) and "value" in value:  # TriviaQA
            return {"answer": [value["value"], *value["aliases"]]}
        if "ground_truth" in value:  # verl's reward_model
            return {"answer": _final(value["ground_truth"])}
        if isinstance(value.get("text"), list):  # SQuAD's answers
            return {"answer": value["text"]}
        return dict(value)
    if (messages := _conversation(value)) is not None:
        value = messages[-1]["content"]
    return {"answer": _final(value)}


def _cell(text: str, numbers: bool) -> Any:
    """A cell of text: an object of JSON, a number where all of the column are, else the text."""
    if numbers and _NUMBER.fullmatch(text.strip()):
        return json.loads(text)
    if text.lstrip()[:1] in ("{", "["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return found if isinstance(found, dict | list) else text
    return text


def _final(value: Any) -> Any:
    """The answer of a worked solution: behind "####" (GSM8K), or in the box of its end (MATH); a number as a number."""
    if not isinstance(value, str):
        return value
    found = _GSM8K.search(f"\n{value}")
    if found is not None:
        number = found[1].replace(",", "").replace("$", "")
        return json.loads(number) if _NUMBER.fullmatch(number) else found[1]
    boxed = boxes_in(value) if "\\boxed" in value else None
    return value if boxed is None else boxed


def _all_numbers(cells: Sequence[Any]) -> bool:
    """Whether all cells with text are numbers. A number with zeros before it is a name."""
    texts = [cell.strip() for cell in cells if isinstance(cell, str) and cell.strip()]
    return bool(texts) and all(_NUMBER.fullmatch(text) for text in texts)


def _is_python(text: str) -> bool:
    if _OBJECT.fullmatch(text.strip()):
        return True
    if not _PYTHON.match(text) or len(text) > 10_000:
        return False
    try:
        json.loads(text)
        return False
    except (ValueError, RecursionError):
        pass
    try:
        return isinstance(ast.literal_eval(text.strip()), dict | list)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return False


def _conversation(value: Any) -> list[dict[str, Any]] | None:
    """The messages of a conversation, ours or ShareGPT's, also as JSON in a text; None: it is none."""
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if isinstance(value, Mapping):
        value = value.get("messages") or value.get("input")
    if not isinstance(value, list) or not value or not all(isinstance(one, Mapping) for one in value):
        return None
    messages = []
    for one in value:
        role, content = one.get("role") or one.get("from"), one.get("content", one.get("value"))
        if not isinstance(role, str) or not isinstance(content, str | list | type(None)):
            return None
        messages.append({"role": ROLES.get(role, role), "content": _content(content)})
    return messages


def _content(content: Any) -> Content:
    """A message's content: a text, or with images the parts of a chat completion. Raises ValueError."""
    if not isinstance(content, list):
        return content or ""
    parts = [part for one in content for part in _parts(one)]
    if any(images_in([{"content": parts}])):
        return parts
    return "\n".join(part["text"] for part in parts)


def _parts(part: Any) -> list[dict[str, Any]]:
    """A part of a content as chat completions have it: OpenAI's own, Responses', Anthropic's; none of an empty text.
    Raises ValueError: neither text nor an image with an address."""
    if not isinstance(part, Mapping):
        return [{"type": "text", "text": str(part)}] if part not in (None, "") else []
    kind, image = str(part.get("type") or ""), part.get("image_url")
    if kind == "image" or image is not None:
        source = image if image is not None else part.get("source") or part.get("image") or part.get("url")
        given = source if isinstance(source, Mapping) else {"url": source}
        if given.get("type") == "base64":
            given = {"url": f"data:{given.get('media_type')};base64,{given.get('data')}"}
        if not isinstance(given.get("url"), str) or not given["url"]:
            raise ValueError("an image of its conversation has no address; give it as image_url.")
        detail = given.get("detail") or part.get("detail")
        return [{"type": "image_url", "image_url": {"url": given["url"]} | ({"detail": detail} if detail else {})}]
    text = part.get("text")
    if isinstance(text, str):
        return [{"type": "text", "text": text}] if text else []
    if kind and not part.keys() & {"text", "refusal"}:
        raise ValueError(f"a part of kind {kind[:40]!r} can't be asked; a message has texts and images by address.")
    return []
