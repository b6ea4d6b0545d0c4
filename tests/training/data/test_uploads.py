"""Dataset files: a bad line is refused with its number."""

from __future__ import annotations

import gzip
import io
import json
import re
from functools import partial
from typing import Any, Final

import pytest

from agentcore_site.lib.errors import Invalid, TooLarge
from experiences.rollouts.conversations import images_of
from experiences.rollouts.environments.scorers import SCORERS, check_for
from training.data.mapping import GRADED_AS, NOTHING, ColumnMapping
from training.data.uploads import MAX_BYTES, clean_rows, preview, read_rows

GOOD = '{"query": " 2 + 2? ", "expected_outcome": {"answer": "4"}, "metadata": {"source": "x"}}\n'


def test_reader_reads_jsonl_and_trims() -> None:
    rows = read_rows("q.jsonl", (GOOD + "\n" + GOOD.replace("2 + 2", "3 + 1")).encode())
    assert [row["query"] for row in rows] == ["2 + 2?", "3 + 1?"]
    assert rows[0]["expected_outcome"] == {"answer": "4"}


def test_reader_reads_csv_with_answers_or_objects() -> None:
    content = 'query,expected_outcome,source\n"2 + 2?",4,x\n"1, 2?","{""answer"": ""3""}",\n'
    rows = read_rows("q.csv", content.encode("utf-8-sig"))
    assert rows[0] == {
        "query": "2 + 2?",
        "expected_outcome": {"answer": "4"},
        "metadata": {"source": "x"},
    }  # one of the column is no number
    assert rows[1]["expected_outcome"] == {"answer": "3"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.jsonl", GOOD + "{oops", "Line 2 is not JSON"),
        ("q.jsonl", GOOD + "[1]", "Line 2 must be an object"),
        ("q.jsonl", GOOD + '{"query": "   "}', "Row 2"),
        ("q.jsonl", GOOD + '{"query": "x", "colour": 1}', "Row 2: unknown key"),
        ("q.jsonl", "", "At least one query"),
        ("q.csv", "colour,size\na,b\n", "No column is named like a query. Columns: colour, size"),
        ("q.csv", "query,query\na,b\n", "Line 1 must name each column once"),
        ("q.json", '[{"query": "a"}, 3]', "Row 2 must be an object"),
        ("q.json", '[{"query": "a"},\n{"query"]', "Line 2 is not JSON from its character 9"),
        ("q.parquet", "PAR1 and more", "not Parquet that can be read"),
        ("q.xlsx", "PK\x03\x04", "workbook of Excel"),
        ("q.jsonl", '{"query": "n", "expected_outcome": {"answer": null}}', "Row 1: its answer is null"),
        ("q.jsonl", '{"query": "n", "expected_outcome": {"answer": " "}}', "Row 1: its answer is empty"),
        ("q.jsonl", '{"query": "n", "expected_outcome": {"answer": ["a", null]}}', "Row 1: its answer is null"),
        ("q.jsonl", '{"question": "n", "answer": null}', "Row 1: its answer is null"),
        ("q.csv", "query,expected_outcome\na,\n", "Row 1: its answer is empty"),
        ("q.csv", "query,expected_outcome\na,\"{'answer': 4}\"\n", "is a Python value as text"),
        ("q.csv", "query,expected_outcome\na,\"[None, 'x']\"\n", "is a Python value as text"),
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


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "mark and utf-16-be"]
)
@pytest.mark.parametrize("packed", [False, True])
def test_files_of_a_certain_encoding_are_read(encoding: str, packed: bool) -> None:
    def written(text: str) -> bytes:
        content = text.encode(encoding.removeprefix("mark and "))
        content = "\ufeff".encode("utf-16-be") + content if encoding.startswith("mark") else content
        return gzip.compress(content) if packed else content

    wanted = [("Was heißt Café 🧀?", {"answer": "naïve"})]
    table = "query{0}expected_outcome\r\nWas heißt Café 🧀?{0}naïve\r\n"
    for name, text in (
        ("q.csv", table.format(",")),
        ("q.csv", table.format("\t")),  # "Unicode text" of Excel has tabs
        ("q.txt", table.format("\t")),
        ("q.tsv", table.format("\t")),
        ("q.jsonl", json.dumps({"query": wanted[0][0], "expected_outcome": wanted[0][1]}, ensure_ascii=False)),
        ("q.json", json.dumps([{"query": wanted[0][0], "expected_outcome": wanted[0][1]}], ensure_ascii=False)),
    ):
        rows = read_rows(f"{name}.gz" if packed else name, written(text))
        assert [(row["query"], row["expected_outcome"]) for row in rows] == wanted


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_an_encoding_that_is_not_certain_is_refused_with_the_line_and_what_to_do(encoding: str) -> None:
    content = "query,expected_outcome\nWhere?,Café Zoë\n".encode(encoding)
    with pytest.raises(Invalid) as refused:
        read_rows("q.csv", content)
    assert str(refused.value) == (
        'The file is not UTF-8 text (byte 33, line 2). If "Where?,Café Zoë" is right, it is in Windows\' Western'
        ' encoding. Save it as UTF-8 (in Excel "CSV UTF-8", in an editor "Save with encoding").'
    )
    with pytest.raises(Invalid, match=r"^The file is not UTF-8 text \(byte 0, line 1\)\. Save it as UTF-8"):
        read_rows("q.csv", b"\x89\x01\x02\x03")


def test_limits_on_size_and_number() -> None:
    with pytest.raises(TooLarge, match="MB"):
        read_rows("q.jsonl", b" " * (MAX_BYTES + 1))
    many = "\n".join(json.dumps({"query": f"q{n}", "expected_outcome": {"answer": "1"}}) for n in range(10_001))
    with pytest.raises(TooLarge, match="10,001 queries"):
        read_rows("q.jsonl", many.encode())


def csv_of(*answers: str) -> list[Any]:
    lines = "".join(f"q{n},{answer}\n" for n, answer in enumerate(answers))
    return [
        row["expected_outcome"]["answer"] for row in read_rows("q.csv", f"query,expected_outcome\n{lines}".encode())
    ]


def test_a_column_of_numbers_holds_numbers_and_any_other_holds_text() -> None:
    assert csv_of("18", "2.5", "-3", "1e3") == [18, 2.5, -3, 1000.0]
    assert csv_of("18", "many") == ["18", "many"] and csv_of("007", "008") == ["007", "008"]
    assert csv_of("12345678901234567") == [12345678901234567]


def test_a_line_ends_at_a_line_feed_only() -> None:
    text = '{"query": "first\u2028second", "expected_outcome": {"answer": 1}}\r\n{"query": "nel\u0085here"}\n'
    assert [row["query"] for row in read_rows("q.jsonl", text.encode())] == ["first\u2028second", "nel\u0085here"]
    assert len(read_rows("q.jsonl", b'{"query": "a"}\r{"query": "b"}')) == 2


packed = partial(gzip.compress, mtime=0)  # without the time, which would be in the name of a test

ROWS: Final = [{"query": "a", "expected_outcome": {"answer": 1}}, {"query": "b", "expected_outcome": {"answer": 2}}]


def parquet_of(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow as arrow
    from pyarrow import parquet

    held = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(rows), held)
    return held.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("q.json", json.dumps(ROWS).encode()),
        ("q.jsonl", json.dumps(ROWS, indent=1).encode()),
        ("q.json", json.dumps({"version": 1, "data": ROWS}).encode()),
        ("q.json", "\n".join(map(json.dumps, ROWS)).encode()),
        ("q.jsonl.gz", packed("\n".join(map(json.dumps, ROWS)).encode())),
        ("q", packed(json.dumps(ROWS[0]).encode() + b"\n") + packed(json.dumps(ROWS[1]).encode())),
        ("q.tsv", b"query\texpected_outcome\na\t1\nb\t2\n"),
        ("q.csv.gz", packed(b"query,expected_outcome\na,1\nb,2\n")),
        ("q.csv", b"query;expected_outcome\r\na;1\r\nb;2\r\n"),
        ("q.parquet", parquet_of(ROWS)),
    ],
)
def test_reader_reads_every_form_of_file(name: str, content: bytes) -> None:
    assert [(row["query"], row["expected_outcome"]) for row in read_rows(name, content)] == [
        ("a", {"answer": 1}),
        ("b", {"answer": 2}),
    ]


CHAT: Final = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
SHARED: Final = [
    {"from": "system", "value": "Be brief."},
    {"from": "human", "value": "2 + 2?"},
    {"from": "gpt", "value": "4"},
]


@pytest.mark.parametrize(
    ("row", "query", "expected"),
    [
        ({"question": "q", "answer": "4"}, "q", {"answer": "4"}),
        ({"Question": "q", "Answer": 4}, "q", {"answer": 4}),
        ({"prompt": "q", "completion": "4"}, "q", {"answer": "4"}),
        ({"prompt": CHAT[:1], "completion": CHAT[1:]}, "2 + 2?", {"answer": "4"}),
        ({"messages": CHAT}, "2 + 2?", {"answer": "4"}),
        ({"messages": json.dumps(CHAT)}, "2 + 2?", {"answer": "4"}),
        ({"conversations": SHARED}, "System: Be brief.\n\nUser: 2 + 2?", {"answer": "4"}),
        ({"input": CHAT[:1], "ideal": ["4", "four"]}, "2 + 2?", {"answer": ["4", "four"]}),
        ({"instruction": "Add.", "input": "2 + 2", "output": "4"}, "Add.\n\n2 + 2", {"answer": "4"}),
        ({"question": "q", "answer": "9 * 2 = <<9*2=18>>18\n#### 18"}, "q", {"answer": 18}),
        ({"question": "q", "answer": "so\n#### 1,234"}, "q", {"answer": 1234}),
        ({"problem": "q", "solution": "so $\\boxed{\\frac{1}{2}}$."}, "q", {"answer": "\\frac{1}{2}"}),
        ({"prompt": CHAT[:1], "reward_model": {"style": "rule", "ground_truth": "4"}}, "2 + 2?", {"answer": "4"}),
        ({"question": "q", "answer": "4", "info": {"unit": "kg"}, "task": "sums"}, "q", {"answer": "4"}),
        ({"frage": "q", "query": "x", "expected_outcome": {"regex": "4"}}, "x", {"regex": "4"}),
        (
            {"question": "Is it red?", "passage": "A cat.", "answer": False},
            "A cat.\n\nIs it red?",
            {"answer": ["no", "false"]},
        ),
        (
            {"context": "c", "question": "q", "answers": {"text": ["a", "b"], "answer_start": [0]}},
            "c\n\nq",
            {"answer": ["a", "b"]},
        ),
        ({"question": "q", "answer": {"value": "a", "aliases": ["b"], "type": "W"}}, "q", {"answer": ["a", "b"]}),
    ],
)
def test_columns_of_known_forms_are_mapped(row: dict[str, Any], query: str, expected: Any) -> None:
    if "frage" in row:
        with pytest.raises(Invalid, match="unknown key"):
            read_rows("q.jsonl", json.dumps(row).encode())
        row = {name: value for name, value in row.items() if name != "frage"}
    [found] = read_rows("q.jsonl", json.dumps(row).encode())
    assert (found["query"], found["expected_outcome"]) == (query, expected)


PLACES: Final = ["Paris", "Rome", "7"]
SHOWN: Final = "q\n\nA. Paris\nB. Rome\nC. 7"


@pytest.mark.parametrize(
    ("row", "right"),
    [
        ({"question": "q", "choices": PLACES, "answer": 1}, "B"),  # MMLU
        ({"question": "q", "options": PLACES, "answer": "B", "answer_index": 1}, "B"),  # MMLU-Pro
        ({"question": "q", "choices": PLACES, "answer": "Rome"}, "B"),
        ({"question": "q", "choices": PLACES, "answer": "7"}, "C"),
        ({"question": "q", "choices": {"text": PLACES, "label": ["A", "B", "C"]}, "answerKey": "C"}, "C"),  # ARC
        ({"question": "q", "choices": {"text": PLACES, "label": ["1", "2", "3"]}, "answerKey": "2"}, "B"),
        ({"question": "q", "options": {"A": "Paris", "B": "Rome", "C": "7"}, "answer": "A"}, "A"),  # MedQA
        ({"question": "q", "options": json.dumps(PLACES), "answer": "a"}, "A"),
        ({"question": "q", "A": "Paris", "B": "Rome", "C": "7", "answer": "B"}, "B"),
        ({"question": "q", "option_a": "Paris", "option_b": "Rome", "option_c": "7", "answer": 0}, "A"),
    ],
)
def test_choices_are_asked_with_their_question_and_the_answer_is_a_letter_or_its_text(row: Any, right: str) -> None:
    text = PLACES["ABC".index(right)]
    [found] = read_rows("q.jsonl", json.dumps(row).encode())
    assert (found["query"], found["expected_outcome"]) == (SHOWN, {"answer": [right, text]})
    check = check_for(found["expected_outcome"])
    for said in (right, f"({right})", f"Answer: {right}. {text}", text):
        assert check(said).success
    assert not any(check(said).success for said in ("D", "none", "A" if right != "A" else "B"))


def test_places_of_choices_are_counted_from_one_where_the_whole_file_does() -> None:
    def rights(*answers: Any) -> list[str]:
        rows = [{"question": f"q{at}", "choices": PLACES, "answer": one} for at, one in enumerate(answers)]
        return [row["expected_outcome"]["answer"][0] for row in read_rows("q.jsonl", json.dumps(rows).encode())]

    assert rights(1, 2, 3) == ["A", "B", "C"] and rights(0, 1, 2) == ["A", "B", "C"] and rights(1, 2) == ["B", "C"]
    csv = b"question,A,B,answer\nq0,x,y,B\nq1,x,y,A\n"
    assert [row["expected_outcome"] for row in read_rows("q.csv", csv)] == [
        {"answer": ["B", "y"]},
        {"answer": ["A", "x"]},
    ]


@pytest.mark.parametrize(
    "row",
    [
        {"question": "q", "choices": PLACES, "answer": "Lyon"},
        {"question": "q", "choices": PLACES, "answer": 9},
        {"question": "q", "choices": ["one"], "answer": "Lyon"},
        {"question": "q", "options": {"a": 1}, "answer": "Lyon"},
        {"question": "q", "A": "x", "C": "y", "answer": "Lyon"},
        {"question": "q", "choices": ["x", " "], "answer": "Lyon"},
        {"question": "q", "choices": "[broken", "answer": "Lyon"},
        {"question": "q", "choices": 3, "answer": "Lyon"},
        {"question": "q", "choices": {"text": ["a"], "label": ["A", "B"]}, "answer": "Lyon"},
    ],
)
def test_an_answer_that_is_none_of_the_choices_is_left_as_it_is(row: dict[str, Any]) -> None:
    [found] = read_rows("q.jsonl", json.dumps(row).encode())
    assert (found["query"], found["expected_outcome"]) == ("q", {"answer": row["answer"]})


def test_choices_that_the_question_names_are_not_named_again_and_equal_texts_count_by_letter() -> None:
    row = {"question": "Paris or Rome?", "choices": ["Paris", "Rome"], "answer": 0}
    assert read_rows("q.jsonl", json.dumps(row).encode())[0]["query"] == "Paris or Rome?"
    row = {"question": "q", "choices": ["x", "X"], "answer": 1}
    assert read_rows("q.jsonl", json.dumps(row).encode())[0]["expected_outcome"] == {"answer": ["B"]}


def test_other_columns_become_metadata_and_a_mapping_is_chosen() -> None:
    content = b"id,Frage,Loesung\n1,What is it?,4\n"
    mapping = ColumnMapping("Frage", "Loesung")
    [row] = read_rows("q.csv", content, mapping)
    assert row == {"query": "What is it?", "expected_outcome": {"answer": 4}, "metadata": {"id": "1"}}
    with pytest.raises(Invalid, match="There is no column 'Antwort'"):
        read_rows("q.csv", content, ColumnMapping("Frage", "Antwort"))


PNG = "data:image/png;base64,iVBORw0KGgo="
ADDRESS = "https://example.org/a.png"
FORMS = {
    "a chat completion's": {"type": "image_url", "image_url": {"url": ADDRESS, "detail": None}},
    "its address as text": {"type": "image_url", "image_url": ADDRESS},
    "a response's": {"type": "input_image", "image_url": ADDRESS},
    "Anthropic's by address": {"type": "image", "source": {"type": "url", "url": ADDRESS}},
    "Anthropic's inline": {
        "type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    },
    "transformers'": {"type": "image", "image": ADDRESS},
}  # fmt: skip


@pytest.mark.parametrize("image", FORMS.values(), ids=FORMS)
def test_images_of_a_conversation_are_kept_as_parts_and_shown_by_their_addresses(image: dict[str, Any]) -> None:
    row = {
        "messages": [
            {"role": "system", "content": "Look."},
            {"role": "user", "content": [image, {"type": "text", "text": "What?"}]},
            {"role": "assistant", "content": "A cat."},
        ]
    }
    [found] = read_rows("q.jsonl", json.dumps(row).encode())
    url = PNG if "source" in image and image["source"]["type"] == "base64" else ADDRESS
    shown = "data:image/png;base64, 12 characters, sha256 " if url == PNG else ADDRESS
    assert found["query"].startswith(f"System: Look.\n\nUser: Image: {shown}") and found["query"].endswith("\nWhat?")
    assert "iVBOR" not in found["query"]
    part = {"type": "image_url", "image_url": {"url": url}}
    assert found["metadata"]["messages"][1] == {
        "role": "user", "content": [part, {"type": "text", "text": "What?"}]
    }  # fmt: skip
    assert images_of(found["query"], found["metadata"]) == [url]
    assert found["expected_outcome"] == {"answer": "A cat."}


def test_a_single_message_with_an_image_is_a_conversation_and_the_preview_counts_images() -> None:
    content = [
        {"type": "text", "text": "What?"},
        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": ADDRESS}},
    ]
    rows = [{"messages": [{"role": "user", "content": content}], "answer": "a cat"}]
    found = preview("q.json", json.dumps(rows).encode())
    assert (found.conversations, found.images, found.fault) == (1, 2, "")
    assert found.rows[0]["metadata"]["messages"] == [{"role": "user", "content": content}]
    again = clean_rows(found.rows)
    assert again == found.rows


def shown(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


IMAGES_REFUSED = {
    "another scheme": ([shown("file:///etc/passwd")], "an image's address is http"),
    "ftp": ([shown("ftp://example.org/a.png")], "an image's address is http"),
    "script": ([shown("javascript:alert(1)")], "an image's address is http"),
    "no scheme": ([shown("a.png")], "an image's address is http"),
    "a password": ([shown("https://u:p@example.org/a.png")], "a password"),
    "a space": ([shown("https://example.org/a b.png")], "without spaces"),
    "a long address": ([shown(f"https://a.org/{'x' * 2_000}")], "2,000 is the most"),
    "no picture": ([shown("data:text/html;base64,AAAA")], "data:image/<png"),
    "a drawing with scripts": ([shown("data:image/svg+xml;base64,AAAA")], "data:image/<png"),
    "no base64": ([shown("data:image/png,AAAA")], "data:image/<png"),
    "broken base64": ([shown("data:image/png;base64,AAA")], "data:image/<png"),
    "a large one": ([shown(f"data:image/png;base64,{'A' * 2**22}")], "4,194,304 is the most"),
    "no address": ([{"type": "image"}], "has no address"),
    "an id of a file": ([{"type": "input_image", "file_id": "file-1"}], "can't be asked"),
    "a sound": ([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}], "kind 'input_audio'"),
    "too many": ([shown(ADDRESS)] * 21, "21 images; 20 is the most"),
}


@pytest.mark.parametrize(("content", "reason"), IMAGES_REFUSED.values(), ids=IMAGES_REFUSED)
def test_images_that_no_model_could_be_asked_with_are_refused(content: list[Any], reason: str) -> None:
    row = {"messages": [{"role": "user", "content": [{"type": "text", "text": "What?"}, *content]}], "answer": "a"}
    with pytest.raises(Invalid, match=f"Row 1: .*{re.escape(reason)}"):
        read_rows("q.json", json.dumps([row]).encode())


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([{"role": "system", "content": [shown(ADDRESS)]}, {"role": "user", "content": "a"}], "not the user"),
        (
            [
                {"role": "user", "content": [shown(ADDRESS)]},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
                {"role": "user", "content": "And?"},
            ],
            "a call of a tool",
        ),
        (
            [{"role": "user", "content": [shown(ADDRESS)]}, {"role": "tool", "content": "4"}],
            "its last message is not the user's",
        ),
    ],
)
def test_images_beside_what_is_not_sent_as_messages_are_refused(messages: list[Any], reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        read_rows("q.json", json.dumps([{"messages": messages, "answer": "a"}]).encode())


def test_rows_of_our_own_form_are_refused_for_images_too() -> None:
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]
    row = {"query": "Image: file:///etc/passwd", "expected_outcome": {"answer": 1}, "metadata": {"messages": messages}}
    with pytest.raises(Invalid, match="Row 1: an image's address"):
        clean_rows([row])


def test_preview_says_how_many_queries_are_conversations() -> None:
    turns = [("human", "a?"), ("gpt", "b"), ("human", "c?"), ("gpt", "d")]
    row = {"conversations": [{"from": who, "value": text} for who, text in turns]}
    one = {"conversations": row["conversations"][2:]}
    found = preview("q.json", json.dumps([row, one]).encode())
    assert (found.conversations, [row["expected_outcome"] for row in found.rows]) == (1, [{"answer": "d"}] * 2)


NEVER_RIGHT = {
    "null": {"answer": None},
    "a list of null": {"answer": ["a", None]},
    "no width": {"answer": "\u200b"},
    "an object": {"answer": {"value": None}},
    "lists": {"answer": [["a"]]},
    "a Python dict": {"answer": "{'a': 1}"},
    "no pieces": {"contains": []},
    "an empty piece": {"contains": ["a", ""]},
    "no pattern": {"regex": ""},
    "half a pattern": {"regex": "("},
    "no schema": {"json_schema": None},
    "no schema of JSON": {"json_schema": {"type": "nonsense"}},
    "no rubric": {"judge": ""},
    "another key": {"answr": 1},
    "a wrong answer": {"answer": 1, "correct": False},
    "a tolerance of words": {"answer": 1, "tolerance": "little"},
}


@pytest.mark.parametrize("expected", NEVER_RIGHT.values(), ids=NEVER_RIGHT)
def test_what_a_launch_would_refuse_is_refused_at_upload(expected: dict[str, Any]) -> None:
    row = json.dumps({"query": "a", "expected_outcome": expected})
    with pytest.raises(Invalid, match="Row 2: "):
        read_rows("q.jsonl", f"{GOOD}{row}\n".encode())


@pytest.mark.parametrize("cell", ["null", "None", "NaN", "<NA>", "array([1])", "OrderedDict([('a', 1)])"])
def test_a_cell_that_a_program_left_without_an_answer_is_refused(cell: str) -> None:
    with pytest.raises(Invalid, match=r"Row 1: .*(missing|Python value)"):
        read_rows("q.csv", f'query,expected_outcome\na,"{cell}"\n'.encode())
    [meant] = read_rows("q.csv", b'query,expected_outcome\na,"{""answer"": ""None""}"\n')
    assert meant["expected_outcome"] == {"answer": "None"}


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("q.json", '{"query": "a",\n "expected_outcome": {"answer": 1}}', [("a", 1)]),
        ("q.json", '{"question": "a",\n "answer": 1}', [("a", 1)]),
        ("q.json", '{"messages": [{"role": "user", "content": "a"}],\n "answer": 1}', [("a", 1)]),
        ("q.json", '{"question": ["a", "b"], "answer": [1, 2]}', [("a", 1), ("b", 2)]),
        ("q.json", '{"version": 1, "data": [{"question": "a", "answer": 1}]}', [("a", 1)]),
        ("q.csv", "input,expectedOutput,metadata\na,1,{}\n", [("a", 1)]),
        ("q.jsonl", '{"question": "a", "answers": {"text": ["b", "c"], "answer_start": [1, 2]}}', [("a", ["b", "c"])]),
    ],
)
def test_files_of_one_object_of_columns_and_of_other_tools_are_read(name: str, text: str, rows: list[Any]) -> None:
    found = read_rows(name, text.encode())
    assert [(row["query"], row["expected_outcome"]["answer"]) for row in found] == rows


def test_preview_says_columns_rows_and_graders_or_the_fault() -> None:
    found = preview("q.csv", b"question,answer\na,1\nb,2\n")
    assert (found.columns, found.mapping, found.size) == (
        ["question", "answer"],
        ColumnMapping("question", "answer"),
        2,
    )
    assert (
        found.graders == [("math", GRADED_AS["math"], 2)]
        and found.rows[0]["expected_outcome"] == {"answer": 1}
        and not found.fault
    )
    assert "No column is named" in preview("q.csv", b"a,b\n1,2\n").fault
    assert preview("q.jsonl", b'{"query": "a"}').graders == [(NOTHING, "", 1)]
    assert set(GRADED_AS) == set(SCORERS)


def test_what_unpacks_to_too_much_is_refused() -> None:
    with pytest.raises(TooLarge, match="unpacks to more than 64 MB"):
        read_rows("q.jsonl.gz", gzip.compress(b" " * (MAX_BYTES + 1)))
    with pytest.raises(Invalid, match="cut off"):
        read_rows("q.jsonl.gz", gzip.compress(GOOD.encode() * 100)[:-20])
    with pytest.raises(TooLarge, match="unpacks to more than 64 MB"):
        read_rows("q.parquet", parquet_of([{"query": "x" * 1_000_000, "n": n} for n in range(80)]))
