"""Dataset files: a bad line is refused with its number."""

from __future__ import annotations

import json

import pytest

from agentcore_site.lib.errors import Invalid, TooLarge
from training.data.uploads import MAX_BYTES, read_rows

GOOD = '{"query": " 2 + 2? ", "expected_outcome": {"answer": "4"}, "metadata": {"source": "x"}}\n'


def test_reader_reads_jsonl_and_trims() -> None:
    rows = read_rows("q.jsonl", (GOOD + "\n" + GOOD.replace("2 + 2", "3 + 1")).encode())
    assert [row["query"] for row in rows] == ["2 + 2?", "3 + 1?"]
    assert rows[0]["expected_outcome"] == {"answer": "4"}


def test_reader_reads_csv_with_answers_or_objects() -> None:
    content = 'query,expected_outcome,source\n"2 + 2?",4,x\n"1, 2?","{""answer"": ""3""}",\n'
    rows = read_rows("q.csv", content.encode("utf-8-sig"))
    assert rows[0] == {"query": "2 + 2?", "expected_outcome": {"answer": "4"}, "metadata": {"source": "x"}}
    assert rows[1]["expected_outcome"] == {"answer": "3"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.jsonl", GOOD + "{oops", "Line 2 is not JSON"),
        ("q.jsonl", GOOD + "[1]", "Line 2 must be an object"),
        ("q.jsonl", GOOD + '{"query": "   "}', "Row 2"),
        ("q.jsonl", GOOD + '{"query": "x", "colour": 1}', "Row 2: unknown key"),
        ("q.jsonl", "", "At least one query"),
        ("q.csv", "question,answer\na,b\n", "Line 1 must name the columns"),
        ("q.csv", "query,expected_outcome\na,b,c\n", "Line 2 has another number of columns"),
        ("q.csv", "query,expected_outcome\na\n", "Line 2 has another number of columns"),
    ],
)
def test_a_bad_line_is_named(name: str, content: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        read_rows(name, content.encode())


def test_a_file_that_is_no_text_is_refused() -> None:
    with pytest.raises(Invalid, match="not UTF-8"):
        read_rows("q.jsonl", b"\xff\xfe\x00")


def test_limits_on_size_and_number() -> None:
    with pytest.raises(TooLarge, match="MB"):
        read_rows("q.jsonl", b" " * (MAX_BYTES + 1))
    many = "\n".join(json.dumps({"query": f"q{n}", "expected_outcome": {"answer": "1"}}) for n in range(10_001))
    with pytest.raises(TooLarge, match="10,001 queries"):
        read_rows("q.jsonl", many.encode())
