"""Tools of agents with a language model: a calculator that is right or gives a reason, and strict tools."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgets.llm.types import ToolSpec
from experiences.rollouts.tools import ToolResult, toolbox, tools
from experiences.rollouts.tools.base import ToolError
from experiences.rollouts.tools.calculator import calculator
from experiences.rollouts.tools.llm_tools import offered, offers
from experiences.rollouts.tools.threads import ToolThreads
from experiences.rollouts.tools.toolset import TextTool, Toolset, python_tools
from tests.support.pace import millions


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4.5 + 1.2", "5.7"),
        ("3 * 4", "12"),
        ("2**10", "1024"),
        ("2^10 - 2**3**2", "512"),
        ("1,234,567.89 + 1", "1234568.89"),
        ("max(1,234)", "234"),
        ("-2**2", "-4"),
        ("2 * -3 - -1", "-5"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("0.1 + 0.2", "0.3"),
        ("1/3", "0.33333333333333333333"),
        ("10/4", "2.5"),
        ("(1 + 2) * (3 + 4)", "21"),
        ("sqrt(16) + sqrt(2.25)", "5.5"),
        ("sqrt(2)", "1.4142135623730950488"),
        ("8 ** (1/3)", "2"),
        ("cbrt(-27)", "-3"),
        ("factorial(20)", "2432902008176640000"),
        ("gcd(12, 18) + lcm(4, 6)", "18"),
        ("round(2.5) + round(-2.675, 2)", "0.32"),
        ("floor(-1.5) + ceil(1.5) + abs(-2)", "2"),
        ("log10(1000) + log2(8) + ln(e)", "7"),
        ("sin(pi/2) + cos(0)", "2"),
        ("1e3 + 1.5E-1", "1000.15"),
        ("100 * (1 + 0.05/365) ** 3650", "164.86648137654718302"),
        ("3 × 4 ÷ 2 − 1", "5"),
    ],
)
def test_the_calculator_is_right(text: str, value: str) -> None:
    assert calculator(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "what is 2 + 2",
        "1 + ",
        "(1 + 2",
        "1 2",
        "1,23",
        "0,123",
        "1..2",
        "1/0",
        "5 % 0",
        "0 ** -1",
        "ln(-1)",
        "sqrt(-1)",
        "factorial(1001)",
        "factorial(2.5)",
        "9**9**9",
        "exp(100000)",
        "1e99999",
        "__import__('os')",
        "open",
        "sqrt",
        "sqrt()",
        "sqrt(1, 2)",
        "15% of 80",
        "(" * 100 + "1" + ")" * 100,
        "1+" * 5_000 + "1",
    ],
)
def test_the_calculator_gives_a_reason_for_a_failure(text: str) -> None:
    with pytest.raises(ToolError) as said:
        calculator(text)
    assert str(said.value)


@settings(max_examples=300, deadline=None)
@given(pieces=st.lists(st.sampled_from([*"0123456789.,+-*/%^() e×", "**", "sqrt(", "ln(", "exp(", "factorial("])))
def test_the_calculator_never_fails_otherwise_and_never_takes_long(pieces: list[str]) -> None:
    text = "".join(pieces)

    def work() -> None:
        try:
            assert calculator(text)
        except ToolError as error:
            assert str(error)

    assert millions(work) < 20


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gcd", "The meeting is at 12, room 18"),
        ("factor", "There are 12 rooms and 5 floors"),
        ("reverse_letters", "tell me a story"),
        ("dec_calc", "add 1.5 and 2"),
        ("int_calc", "room 3 - 4"),
        ("roman_numeral", "MCMMCM"),
    ],
)
async def test_no_tool_answers_what_was_not_asked(name: str, text: str) -> None:
    result = await Toolset(python_tools([name])).call(name, {"text": text})
    assert (result.ok, result.output) == (False, "") and result.error


async def test_the_old_calculators_names_calculate_and_are_not_offered_any_more() -> None:
    toolset = Toolset(python_tools(["int_calc", "dec_calc"]))
    assert [spec.name for spec in toolset.specs] == ["int_calc", "dec_calc"]
    assert (await toolset.call("int_calc", {"text": "4.5 + 1.2"})).output == "5.7"
    assert (await toolset.call("dec_calc", {"text": "3 * 4"})).output == "12"
    names = [name for name, _ in offers()]
    assert "calculator" in names and not {"int_calc", "dec_calc", "shift_decoder"} & set(names)


def test_the_embedded_environment_keeps_its_traps() -> None:
    assert "calculator" not in [tool.name for tool in toolbox(traps="all")]
    assert tools.get("dec_calc") is not offered("dec_calc")
    assert tools.get("gcd").run("at 12, room 18", "").output == "6"


def test_a_roman_numeral_behind_something_that_is_none_is_still_read() -> None:
    assert tools.get("roman_numeral").run("MCMMCM, or MCMXCIV", "") == ToolResult(True, "1994")


# -- tools that hang --------------------------------------------------------------------------------------------------


class Hangs:
    description = "never comes back"

    def __init__(self, name: str = "hangs") -> None:
        self.name, self.free, self.ended = name, threading.Event(), False

    def run(self, text: str, last: str) -> ToolResult:
        self.free.wait(60)
        self.ended = True
        return ToolResult(True, "at last")


class Instant:
    name, description = "instant", "comes back at once"

    def run(self, text: str, last: str) -> ToolResult:
        return ToolResult(True, text)


async def test_tools_that_hang_hold_up_no_other_and_are_refused_when_too_many_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = ToolThreads(max_hanging=4)
    monkeypatch.setattr("experiences.rollouts.tools.toolset.threads", own)
    hanging = Hangs()
    toolset = Toolset([TextTool(hanging), TextTool(Instant())], timeout_s=0.2)
    late = await asyncio.gather(*(toolset.call("hangs", {"text": ""}) for _ in range(40)))
    assert {result.error for result in late} == {"timeout: no result within 0.2 s"}
    assert (await toolset.call("instant", {"text": "x"})).output == "x"
    refused = await toolset.call("hangs", {"text": ""})
    assert refused.error == "not called: 40 earlier calls of it are still hanging"
    hanging.free.set()
    for _ in range(200):
        if (await toolset.call("hangs", {"text": ""})).ok:
            break
        await asyncio.sleep(0.01)
    else:
        raise AssertionError("it is not called again after those that hung came back")


def test_a_tool_that_hangs_does_not_keep_the_loop_from_closing() -> None:
    hanging = [Hangs(f"hangs_{n}") for n in range(12)]

    async def work() -> list[ToolResult]:
        toolset = Toolset([TextTool(tool) for tool in hanging], timeout_s=0.1)
        return await asyncio.gather(*(toolset.call(tool.name, {"text": ""}) for tool in hanging))

    found = asyncio.run(work())
    assert not any(result.ok for result in found) and not any(tool.ended for tool in hanging)
    for tool in hanging:
        tool.free.set()


async def test_any_exception_of_a_tool_is_a_failed_result() -> None:
    class Raises:
        name, description = "raises", ""
        error: BaseException = ValueError("no")

        def run(self, text: str, last: str) -> ToolResult:
            raise self.error

    tool = Raises()
    toolset = Toolset([TextTool(tool)])
    for error in (ValueError("no"), StopIteration(), SystemExit(3), KeyboardInterrupt()):
        tool.error = error
        assert not (await toolset.call("raises", {"text": ""})).ok


def test_a_tool_with_named_arguments_is_no_tool_of_the_embedded_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    class Named:
        spec = ToolSpec("named", "takes two", {"type": "object"})

        async def run(self, arguments: Any) -> ToolResult:
            return ToolResult(True, str(arguments["a"] + arguments["b"]))

    monkeypatch.setitem(tools._items, "named", Named())
    assert ("named", "takes two") in list(offers())
    result = asyncio.run(Toolset(python_tools(["named"])).call("named", {"a": 1, "b": 2}))
    assert result.output == "3"
    with pytest.raises(ValueError, match="has named arguments"):
        toolbox(["named"])
