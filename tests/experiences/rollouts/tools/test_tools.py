"""The Python tools: each does its work on real texts, refuses what is not its kind, and never raises."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import getcontext
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiences.rollouts.environments.generators import HARDER, GeneratedItem, Generators
from experiences.rollouts.environments.paraphrases import N_TRAINED, N_UNSEEN, TEMPLATES, reworded
from experiences.rollouts.tools import BUILT_IN, TRAPS, FunctionTool, ToolResult, toolbox, tools
from tests.support.chains import CHAINS
from tests.support.pace import millions

GENERATORS = Generators()
STRICT, GREEDY = toolbox(traps="none"), toolbox(traps="all")
NAMES = [tool.name for tool in GREEDY]


def run(tool: str, text: str, last: str = "", box: Any = STRICT) -> ToolResult:
    return box.run(NAMES.index(tool), text, last)


def output(tool: str, text: str, last: str = "", box: Any = STRICT) -> str:
    result = run(tool, text, last, box)
    assert result.ok, result.error
    return result.output


def chain_output(family: str, text: str, box: Any) -> str:
    last = ""
    for tool in CHAINS[family]:
        last = output(tool, text, last, box)
    return last


def entries(family: str, difficulty: str, n: int) -> list[Mapping[str, Any]]:
    found = []
    for number in range(900_000_000, 900_000_000 + 2 * n):
        entry = GENERATORS.entry(GeneratedItem(family, difficulty, number))
        if entry["answer"] and entry["metadata"].get("source_repr") != "":
            found.append(entry)
    return found[:n]


def score(family: str, difficulty: str, answer: str, entry: Mapping[str, Any]) -> float:
    dataset, _ = GENERATORS._dataset(GeneratedItem(family, difficulty, 0))
    return float(dataset.score_answer(answer, entry))


def test_toolbox_has_at_least_sixteen_different_tools_with_descriptions() -> None:
    assert len(BUILT_IN) >= 16
    assert len({tool.name for tool in BUILT_IN}) == len(BUILT_IN)
    assert all(tool.description for tool in BUILT_IN)
    assert set(NAMES) <= set(tools.names())


@pytest.mark.parametrize("box", [STRICT, GREEDY], ids=["strict", "greedy"])
@pytest.mark.parametrize("difficulty", ["default", "harder"])
@pytest.mark.parametrize("family", CHAINS)
def test_chain_solves_its_family(family: str, difficulty: str, box: Any) -> None:
    items = entries(family, difficulty, 100)
    solved = sum(score(family, difficulty, chain_output(family, e["question"], box), e) >= 0.99 for e in items)
    assert solved >= (99 if family == "caesar_cipher" else 100)


def test_toolbox_has_tools_that_fit_no_family_and_nearly_always_say_so() -> None:
    distractors = set(NAMES) - {tool for chain in CHAINS.values() for tool in chain}
    assert distractors == {"roman_numeral", "convert_units", "percentage", "time_between"}
    texts = [entry["question"] for family in CHAINS for entry in entries(family, "default", 40)]
    for tool in distractors:
        assert sum(run(tool, text).ok for text in texts) / len(texts) < 0.02


@pytest.mark.parametrize("variant", range(N_TRAINED + N_UNSEEN))
@pytest.mark.parametrize("family", CHAINS)
def test_chain_reads_every_wording(family: str, variant: int) -> None:
    for entry in entries(family, "default", 40):
        text = reworded(family, entry["question"], entry["metadata"], variant)
        assert text != entry["question"]
        answer = chain_output(family, text, STRICT)
        assert score(family, "default", answer, entry) >= 0.99, (text, answer, entry["answer"])


def test_templates_word_every_family_in_five_different_ways() -> None:
    assert set(TEMPLATES) == set(HARDER) == set(CHAINS)
    assert all(len(set(wordings)) == N_TRAINED + N_UNSEEN for wordings in TEMPLATES.values())


@pytest.mark.parametrize("family", CHAINS)
def test_chain_is_not_solved_by_one_tool_alone(family: str) -> None:
    """Two families need two tools; the others are no chains in disguise."""
    items = entries(family, "default", 40)
    alone = 0
    for name in NAMES:
        results = [run(name, entry["question"], "", GREEDY) for entry in items]
        alone = max(alone, sum(r.ok and _scored(family, r.output, e) for r, e in zip(results, items, strict=True)))
    if len(CHAINS[family]) == 2:
        assert alone <= 4  # a bitwise item is now and then a lone number, or a tool hits by chance
    else:
        assert alone >= 39


def _scored(family: str, answer: str, entry: Mapping[str, Any]) -> bool:
    try:
        return score(family, "default", answer, entry) >= 0.99
    except ValueError:  # prime_factorization's verifier, on an answer in words
        return False


def test_traps_answer_almost_anything() -> None:
    texts = [entry["question"] for family in CHAINS for entry in entries(family, "default", 10)]
    share = {
        level: {
            tool: sum(run(tool, text, "", toolbox(traps=level)).ok for text in texts) / len(texts) for tool in NAMES
        }
        for level in TRAPS
    }
    assert min(share["all"][tool] for tool in ("reverse_letters", "gcd")) > 0.6
    for tool in TRAPS["all"]:
        assert share["none"][tool] < 0.3
        assert share["all"][tool] > 2 * share["none"][tool]


@pytest.mark.parametrize(
    ("tool", "text", "expected"),
    [
        ("int_calc", "What is 12 - 3 * 2 = ?", "6"),
        ("int_calc", "((46525 * 57213) >> 1)", "1330917412"),
        ("int_calc", "7 / 2 + 1", "4.5"),
        ("int_calc", "4.4439 + 1.2537", "4440"),  # a natural trap: it sees integers only
        ("int_calc", "Compute 10 - -3 now", "13"),
        ("dec_calc", "4.5 + 1.25 - 0.05 =", "5.70"),
        ("dec_calc", "12345678901234567890.1 + 0.00000000001", "12345678901234567890.10000000001"),
        ("gcd", "the numbers 12, 18 and 30", "6"),
        ("lcm", "the numbers 4, 6", "12"),
        ("factor", "Factorise 1001.", "7 × 11 × 13"),
        ("factor", "Factorise 97.", "97"),
        ("reduce_fraction", r"$\dfrac{10}{4}$", "5/2"),
        ("reduce_fraction", "8/4", "2/1"),
        ("convert_base", "Write the base-7 number 624 in hexadecimal.", "138"),
        ("convert_base", "the hexadecimal number ff to base-36", "73"),
        ("convert_base", "convert the base-9 number  to binary", "0"),
        ("numerals", "Reply with (ex., -0x3): ((0x10 + 0xff) << 0x1)", "((16 + 255) << 1)"),
        ("animals", "3 praying mantiss, 1 elephant and 2 butterflies", "3*6 + 1*4 + 2*6"),
        ("reverse_letters", "Backward, please: lemon", "nomel"),
        ("count_letter", 'How often is "é" in "Été dernier"?', "2"),
        ("sort_words", "in ascending or descending order. Now in descending order: b, a, C", "b, a, C"),
        ("sort_numbers", "Sort in descending order: 1.5, -2, 10\nuse ['-69', '-13']", "['10', '1.5', '-2']"),
        ("calendar", "Is 1900 a leap year?", "No"),
        ("calendar", "What day of the week was March 13, 2024?", "Wednesday"),
        ("calendar", "If today is Friday, March 1, 2024, which weekday was it 2 days ago?", "Wednesday"),
        ("calendar", "the last Tuesday of July 2022", "26"),
        ("calendar", "How many business days from Friday, July 1, 2022 to Monday, July 4, 2022?", "2"),
        ("solve_linear", "Solve for j: 33 - 38*j = -1107", "30"),
        ("solve_linear", "Solve: 3*(x + 1) = 2*x + 1/2", "-5/2"),
        ("shift_decoder", "Spell backward: ruralite", "EHENYVGR"),  # a natural trap: it decodes any lone word
        ("sort_words", 'Count "w" in "out into the hall"', "hall, into, out, the"),  # another one
        ("roman_numeral", "The year MCMXCIV, in figures", "1994"),
        ("convert_units", "How much is 5 km in miles?", "3.10686 miles"),
        ("convert_units", "Express 90 minutes in hours", "1.5 hours"),
        ("percentage", "What is 15 % of 80?", "12"),
        ("percentage", "2.5 percent of 1000", "25"),
        ("time_between", "from 22:40 to 1:05", "2:25"),
        ("shift_decoder", "Read: WKLV LV D VHFUHW PHVVDJH IRU BRX", "THIS IS A SECRET MESSAGE FOR YOU"),
    ],
)
def test_tool_does_its_work(tool: str, text: str, expected: str) -> None:
    assert output(tool, text) == expected


def test_calendar_repairs_a_year_that_contradicts_its_weekday() -> None:
    text = "How many business days are there from Friday, December 30, 2022 to Monday, January 2, 2022 (inclusive)?"
    assert output("calendar", text) == "2"


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("int_calc", "nothing to compute, only 5"),
        ("int_calc", "5 / 0"),
        ("int_calc", "1 << 100000"),
        ("int_calc", "(" * 200 + "1 + 1" + ")" * 200),
        ("dec_calc", "3 + 4"),
        ("gcd", "12 and, beside it, 18, 7.5"),
        ("lcm", "no numbers"),
        ("factor", "12 and 13"),
        ("factor", "100000000000000000"),
        ("reduce_fraction", "on 10/28/2022"),
        ("reduce_fraction", "3/0"),
        ("convert_base", "the base-40 number 12 to binary"),
        ("convert_base", "the binary number 123 to base-5"),
        ("numerals", "7 + 8"),
        ("animals", "3 unicorns"),
        ("reverse_letters", "no colon here"),
        ("count_letter", 'in "text" alone'),
        ("sort_words", "Sort: 1, 2, 3"),
        ("sort_numbers", "Sort: b, a"),
        ("calendar", "on February 30, 2022"),
        ("calendar", "soon"),
        ("solve_linear", "880 - 617 ="),
        ("solve_linear", "x + y = 3"),
        ("solve_linear", "x*x = 9"),
        ("solve_linear", "x + 1 = x + 2"),
        ("shift_decoder", "GCD of some numbers"),
        ("roman_numeral", "IIII and I are none of two signs"),
        ("convert_units", "5 km in kg"),
        ("percentage", "15 percent"),
        ("time_between", "at 9:40"),
    ],
)
def test_tool_refuses_what_is_not_its_kind_and_says_why(tool: str, text: str) -> None:
    result = run(tool, text)
    assert (result.ok, result.output) == (False, "")
    assert result.error


def test_tool_works_on_the_last_result_where_a_chain_needs_that_result() -> None:
    result = run("int_calc", "How many legs have 13 cats, 2 ants?", "13*4 + 2*6")
    assert result == ToolResult(True, "64", read_last=True)
    assert run("int_calc", "What is 1 + 1?", "64") == ToolResult(True, "2")  # 64 is no expression
    assert run("gcd", "of 4, 6", "9, 27").output == "2"


_ODD_TEXT = st.text(st.sampled_from(list("0123456789abcxyzABC+-*/<>()=.,:;\"'{}\\$%× \n")), max_size=300)


@settings(max_examples=150, deadline=None)
@given(text=st.one_of(_ODD_TEXT, st.text(max_size=100)), last=_ODD_TEXT)
def test_tool_never_raises_and_always_says_something(text: str, last: str) -> None:
    for box in (STRICT, GREEDY):
        for index in range(len(box)):
            result = box[index].run(text, last)
            assert result.ok != bool(result.error)
            assert isinstance(result.output, str)


@pytest.mark.parametrize(
    "text",
    ["1" * 19_000, "1 " * 9_000, "a" * 19_000, "(" * 19_000, "1+" * 9_000, "x=" * 9_000, "A " * 9_000, "1, " * 6_000,
     '"' * 19_000, "0x" * 9_000, ": a," * 4_000, "2 ants " * 2_500, "March 1, 2022 " * 1_300, "9" * 30_000],
)  # fmt: skip
def test_tool_cannot_be_made_to_work_for_long(text: str) -> None:
    for index in range(len(GREEDY)):
        for box in (STRICT, GREEDY):
            assert millions(partial(box[index].run, text, text)) < 40, (NAMES[index], text[:20])


def test_tool_leaves_the_decimal_context_of_the_thread_alone() -> None:
    before = getcontext().copy()
    output("dec_calc", "1.5 + 2.25")
    run("dec_calc", "1.5 / 0")
    after = getcontext()
    assert (after.prec, after.flags, after.traps) == (before.prec, before.flags, before.traps)


def test_toolbox_turns_a_plugin_that_raises_into_a_failed_result() -> None:
    class Broken:
        name, description = "broken", "always raises"

        def run(self, text: str, last: str) -> ToolResult:
            raise RuntimeError("no connection")

    from experiences.rollouts.tools import Toolbox

    assert Toolbox([Broken()]).run(0, "text", "") == ToolResult(False, "", "RuntimeError: no connection")


def test_toolbox_remembers_results_without_ever_growing_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    from experiences.rollouts.tools import Toolbox

    calls: list[str] = []

    def shout(text: str) -> str:
        calls.append(text)
        return text.upper()

    monkeypatch.setattr(Toolbox, "REMEMBERED", 10)
    box = Toolbox([FunctionTool("shout", "", shout)])
    assert [box.run(0, "a", last).output for last in ("", "x", "y")] == ["A"] * 3
    assert calls == ["a"]  # a tool that does not read the last result has one result for a text
    for i in range(100):
        box.run(0, str(i), "")
    assert len(box._results) <= 10


def test_toolbox_refuses_unknown_trap_levels_and_doubled_tools() -> None:
    with pytest.raises(ValueError, match="traps must be one of none, three, all"):
        toolbox(traps="some")
    with pytest.raises(ValueError, match="no two of the same name"):
        toolbox(["gcd", "gcd"])
    with pytest.raises(LookupError, match="no tool named 'hammer'"):
        toolbox(["hammer"])
    assert [tool.name for tool in toolbox(["gcd", "lcm"])] == ["gcd", "lcm"]
