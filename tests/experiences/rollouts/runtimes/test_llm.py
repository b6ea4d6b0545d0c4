"""Agents whose decisions are a model's messages, over a real socket: philosophies, tools, bad answers, no money."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from typing import Any

import pytest

from budgets.llm.client import MeteredChatClient
from budgets.llm.retry import RetryPolicy
from budgets.llm.types import Endpoint
from budgets.meter_port import BudgetRefused, CallKey, FreeMeter, MeterFailure
from budgets.pricing import Price
from experiences.rollouts.collect import RolloutLimits, RolloutPlan, collect, run_rollout
from experiences.rollouts.conversations import conversation_text
from experiences.rollouts.environments.answers import answer_in
from experiences.rollouts.environments.dataset import dataset_environment
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.runtimes.llm import LLMRuntime, Sampling
from experiences.rollouts.runtimes.llm.prompts import INSTRUCTIONS, USED, Instructions
from experiences.rollouts.tools.base import FunctionTool
from experiences.rollouts.tools.toolset import TextTool, Toolset, python_tools
from experiences.rollouts.types import RolloutKey, Trajectory
from tests.support.llm_server import ModelServer, act

ROWS = [{"query": "What is 17 * 23?", "expected_outcome": {"answer": 391}}]


class Prices:
    def price(self, model: str) -> Price:
        return Price(model, 150_000, 600_000)


class Purse(FreeMeter):
    """Refuses once ``left`` micro-dollars are held or spent."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    async def reserve(self, call: CallKey, amount: int) -> None:
        if self.spent_micros + self.reserved_micros + amount > self.left:
            raise BudgetRefused("job", self.left, self.spent_micros, self.reserved_micros, amount)
        await super().reserve(call, amount)


def calculating(messages: list[dict[str, Any]]) -> str | dict[str, Any]:
    """A brain that reaches for the calculator, then answers with what it said."""
    last = messages[-1]
    system = messages[0]["content"]
    if "Make a plan" in system:
        return "1. Multiply."
    if "Check the proposed answer" in system:
        return "VERDICT: right" if "391" in last["content"] else "VERDICT: wrong. It is 391."
    if "Write the final answer" in system:
        return f"Answer: {re.findall(r'[0-9]+', last['content'])[-1]}"
    if last["role"] == "tool":
        return f"The tool says so.\nAnswer: {last['content']}"
    if "found this wrong" in last["content"]:
        return "Answer: 391"
    function = {"name": "int_calc", "arguments": '{"text": "17 * 23"}'}
    return {
        "role": "assistant",
        "content": "Let me calculate.",
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }


async def rolled(
    server: ModelServer,
    *,
    meter: Any = None,
    limits: RolloutLimits | None = None,
    retries: int = 0,
    timeout_s: float = 5.0,
    options: dict[str, Any] | None = None,
    rows: list[dict[str, Any]] = ROWS,
    **runtime: Any,
) -> Trajectory:
    environment = dataset_environment(rows, options or {})
    scenario = environment.scenarios("all", 1, 0)[0]
    async with client_of(server, meter or FreeMeter(), retries, timeout_s) as model:
        return await run_rollout(
            scenario,
            RolloutKey(3, 0, 1),
            RolloutPlan(
                environment=environment,
                runtime=LLMRuntime(
                    model,
                    Sampling("small"),
                    **{"toolset": Toolset(python_tools(["int_calc"])), "key_prefix": "j"} | runtime,
                ),
                reward=paid,
                seed=1,
                limits=limits or RolloutLimits(),
                model="small",
            ),
        )


def client_of(server: ModelServer, meter: Any, retries: int = 0, timeout_s: float = 5.0) -> MeteredChatClient:
    retry = RetryPolicy(max_retries=retries, total_s=5)
    return MeteredChatClient(Endpoint(server.base_url, "small", timeout_s=timeout_s), meter, Prices(), retry=retry)


def paid(trajectory: Trajectory) -> Any:
    from experiences.rollouts.rewards import rewards

    return rewards.get("outcome")({})(trajectory)


async def test_react_calls_a_tool_reads_its_result_and_answers() -> None:
    meter = FreeMeter()
    with ModelServer(brain=calculating) as server:
        result = await rolled(server, meter=meter, system="You are careful.")
    assert (result.success, result.error, result.truncated) == (True, "", False)
    first, last = result.steps
    assert first.action == {
        "type": "tool",
        "tool": "int_calc",
        "parameters": {"text": "17 * 23"},
        "text": "Let me calculate.",
    }
    assert first.result["output"] == "391"
    assert last.action["type"] == "answer" and last.result["output"] == "391"
    assert (first.call, last.call) == ({"temperature": 0.7, "max_tokens": 1024}, {})
    assert list(meter.bills) == ["j/3/0/1/1/1", "j/3/0/1/2/1"]
    assert result.cost_micros == meter.spent_micros > 0 and result.tokens > 0
    assert server.requests[0].body["messages"][0]["content"].startswith("You are careful.")


@pytest.mark.parametrize(
    ("written", "graded", "right"),
    [
        ("391", "391", True),
        ("<think>17 * 23 is 391.</think>\n**391**", "391", True),
        ("I multiply.\nAnswer: 391", "I multiply.\nAnswer: 391", False),
        ("It is \\boxed{391}, since 17 * 23 = 391", "It is \\boxed{391}, since 17 * 23 = 391", False),
    ],
)
async def test_chat_is_prompt_context_and_query_alone_and_the_whole_answer_is_graded(
    written: str, graded: str, right: bool
) -> None:
    for prompt, context in (("You are careful.", "Multiply twice."), ("", "")):
        with ModelServer(brain=lambda _: written) as server:
            result = await rolled(
                server, philosophy="chat", system=prompt, context=context, options={"scorer": "exact"}
            )
            [call] = server.requests
        system = [{"role": "system", "content": f"{prompt}\n\n{context}"}] if prompt else []
        assert call.body["messages"] == [*system, {"role": "user", "content": ROWS[0]["query"]}]
        assert "tools" not in call.body
        assert (result.success, result.steps[-1].result["output"]) == (right, graded)


@pytest.mark.parametrize("philosophy", sorted(USED))
async def test_a_release_holds_all_instructions_that_its_philosophy_uses(philosophy: str) -> None:
    marked = Instructions(**{name: f"instruction {name}" for name in asdict(INSTRUCTIONS)})
    with ModelServer(brain=lambda _: "VERDICT: wrong") as server:  # so that its answer is also sent back
        await rolled(server, philosophy=philosophy, instructions=marked)
        said = str([call.body["messages"] for call in server.requests])
    assert set(re.findall(r"instruction (\w+)", said)) == set(USED[philosophy])


async def test_chain_of_thought_answers_without_tools() -> None:
    with ModelServer(brain=lambda _: "17*20 is 340, 17*3 is 51.\n**Answer: 391**") as server:
        result = await rolled(server, philosophy="cot")
    assert result.success and len(result.steps) == 1
    assert "tools" not in server.requests[0].body


@pytest.mark.parametrize("philosophy", ["autonomous", "multi_agent"])
async def test_plans_acts_and_verifies(philosophy: str) -> None:
    with ModelServer(brain=calculating) as server:
        result = await rolled(server, philosophy=philosophy)
    assert result.success, result.steps
    kinds = [step.action["type"] for step in result.steps]
    assert kinds[0] == "plan" and "tool" in kinds and "verify" in kinds and kinds[-1] == "answer"


@pytest.mark.parametrize("philosophy", ["autonomous", "multi_agent"])
async def test_a_check_that_fails_sends_the_agent_back_to_work(philosophy: str) -> None:
    def hasty(messages: list[dict[str, Any]]) -> Any:
        reply = calculating(messages)
        return "Answer: 400" if isinstance(reply, dict) else reply

    with ModelServer(brain=hasty) as server:
        result = await rolled(server, philosophy=philosophy)
    assert result.success, result.steps
    assert any(step.result["output"].startswith("VERDICT: wrong") for step in result.steps)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wrong_tool_name", "there is no tool 'delete_everything'"),
        ("arguments_not_json", "no JSON object"),
    ],
)
async def test_a_bad_tool_call_is_a_failed_result_that_the_model_reads(name: str, said: str) -> None:
    with ModelServer(brain=calculating) as server:
        server.will(name)
        result = await rolled(server)
        received = server.requests[1].body["messages"][-1]
    assert said in result.steps[0].result["error"] and not result.steps[0].result["success"]
    assert received["role"] == "tool" and said in received["content"]


@pytest.mark.parametrize(
    "what",
    ["empty_choices", "null_content", act("big", size=2**21), "wrong_types"],
)
async def test_an_unusable_answer_is_a_step_with_its_reason_and_is_asked_again(what: Any) -> None:
    meter = FreeMeter()
    with ModelServer(brain=calculating) as server:
        server.will(what)
        result = await rolled(server, meter=meter)
    assert result.success
    assert result.steps[0].action["type"] == "malformed" and result.steps[0].result["error"]
    assert result.steps[0].cost_micros > 0 and result.cost_micros == meter.spent_micros


async def test_a_step_costs_what_all_attempts_of_its_call_came_to() -> None:
    meter = FreeMeter()
    with ModelServer(brain=calculating) as server:
        server.will(act("error_500"))
        result = await rolled(server, meter=meter, retries=1)
    assert result.success and len(meter.bills) == 1 + len(result.steps)
    assert result.cost_micros == result.spent_micros == meter.spent_micros


async def test_answers_that_stay_unusable_end_the_rollout() -> None:
    with ModelServer(brain=calculating) as server:
        server.will(*["empty_choices"] * 3)
        result = await rolled(server)
    assert not result.success and result.error.startswith("model: 3 unusable answers in a row")
    assert len(result.steps) == 3


async def test_an_endless_conversation_is_cut_at_the_step_limit() -> None:
    with ModelServer() as server:
        server.will(*["tool_calls"] * 50)
        result = await rolled(server, limits=RolloutLimits(max_steps=5))
    assert result.truncated and len(result.steps) == 5 and not result.success


async def test_no_money_halts_the_run_and_says_so() -> None:
    with ModelServer(brain=calculating) as server:
        with pytest.raises(Halted) as halted:
            await rolled(server, meter=Purse(0))
        assert not server.requests
    assert halted.value.reason == "budget_exceeded"


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (act("rate_limited", retry_after=7), "waiting_for_llm"),
        (act("error_503"), "waiting_for_llm"),
        (act("status", code=401), "llm_refused"),
        (act("status", code=404, error={"message": "no such model"}), "llm_refused"),
    ],
)
async def test_a_service_that_is_away_or_refuses_halts_the_run(what: Any, reason: str) -> None:
    with ModelServer(brain=calculating) as server:
        server.will(what)
        with pytest.raises(Halted) as halted:
            await rolled(server)
    assert halted.value.reason == reason
    if what.name == "rate_limited":
        assert halted.value.retry_after == pytest.approx(7, abs=0.5)


async def test_waiting_for_a_rate_limit_is_not_the_agents_time() -> None:
    with ModelServer(brain=calculating) as server:
        server.will("answer", act("rate_limited", retry_after=2))
        result = await rolled(server, limits=RolloutLimits(timeout_seconds=1.8), retries=2)
    assert result.success and not result.error and result.duration_ms > 2000


async def test_an_endpoint_that_hangs_halts_the_run_and_costs_the_agent_nothing() -> None:
    with ModelServer(brain=calculating) as server:
        server.will("answer", "hang", "hang")
        with pytest.raises(Halted) as halt:
            await rolled(server, limits=RolloutLimits(timeout_seconds=0.9), retries=1, timeout_s=1)
    assert halt.value.reason == "waiting_for_llm"


async def test_a_model_that_answers_slowly_uses_the_agents_time_up() -> None:
    def slowly(messages: list[dict[str, Any]]) -> str | dict[str, Any]:
        time.sleep(0.2)
        return calculating(messages)

    with ModelServer(brain=slowly) as server:
        result = await rolled(server, limits=RolloutLimits(timeout_seconds=0.1))
    assert result.error.startswith("timeout:") and result.reward == -1
    assert len(result.steps) == 1 and result.steps[0].cost_micros > 0  # what was paid for is recorded


async def test_when_money_runs_out_rollouts_under_way_end_and_none_is_begun() -> None:
    environment = dataset_environment(ROWS * 12, {})
    scenarios = environment.scenarios("all", 12, 0)
    kept: list[Trajectory] = []
    meter = Purse(1_500)
    with ModelServer(brain=lambda _: "Answer: 391", latency_s=0.02) as server:
        async with client_of(server, meter) as model:
            with pytest.raises(Halted):
                await collect(
                    [(RolloutKey(1, s.index, 0), s) for s in scenarios],
                    RolloutPlan(
                        environment=environment,
                        runtime=LLMRuntime(model, Sampling("small"), philosophy="cot"),
                        reward=paid,
                        seed=1,
                        limits=RolloutLimits(concurrency=4),
                    ),
                    kept={},
                    keep=kept.append,
                )
        assert server.owed.answered == len(kept) < 12
    assert kept and all(one.success for one in kept)
    assert meter.reserved_micros == 0


async def test_tools_are_bounded_in_time_and_size_and_never_raise() -> None:
    import time

    def slow(text: str) -> str:
        time.sleep(0.5)
        return text

    def broken(text: str) -> str:
        raise RuntimeError("a bug")

    long = TextTool(FunctionTool("long", "", lambda text: text * 1000))
    made = [TextTool(FunctionTool("slow", "", slow)), TextTool(FunctionTool("broken", "", broken)), long]
    toolset = Toolset(made, timeout_s=0.05, max_output=100)
    assert "timeout" in (await toolset.call("slow", {"text": "x"})).error
    assert (await toolset.call("broken", {"text": "x"})).error == "RuntimeError: a bug"
    assert (await toolset.call("long", {"text": "abcde"})).output.endswith("[cut: 5,000 characters]")
    assert not (await toolset.call("long", {"words": 3})).ok
    with pytest.raises(ValueError, match="same name"):
        Toolset([long, long])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("42", "42"),
        ("I think.\nAnswer: 42", "42"),
        ("Answer: 1\nNo.\n**Final answer:** 42", "42"),
        ("so\nAnswer: $\\boxed{42}$.", "42"),
        ("Answer: `x = 1`", "x = 1"),
        ("The answer is 42", "42"),
        ("**Answer: 42**", "42"),
    ],
)
def test_the_answer_is_found_in_the_text(text: str, answer: str) -> None:
    assert answer_in(text) == answer


class Broken(FreeMeter):
    def __init__(self, passing: bool) -> None:
        super().__init__()
        self.passing = passing

    async def reserve(self, call: CallKey, amount: int) -> None:
        failure = MeterFailure("the ledger is away")
        failure.passing = self.passing
        raise failure


@pytest.mark.parametrize(("passing", "reason"), [(True, "waiting_for_llm"), (False, "llm_refused")])
async def test_a_meter_that_fails_halts_the_run_and_fails_no_rollout(passing: bool, reason: str) -> None:
    with ModelServer(brain=calculating) as server:
        with pytest.raises(Halted) as halted:
            await rolled(server, meter=Broken(passing))
        assert not server.requests
    assert halted.value.reason == reason


SAID = [
    {"role": "system", "content": "You sell tea."},
    {"role": "user", "content": "Which tea is mild?"},
    {"role": "assistant", "content": "White tea."},
    {"role": "user", "content": "And strong?"},
]


@pytest.mark.parametrize("philosophy", ["chat", "cot", "react"])
async def test_a_query_that_is_a_conversation_is_sent_message_by_message(philosophy: str) -> None:
    row = {
        "query": conversation_text(SAID),
        "expected_outcome": {"contains": "assam"},
        "metadata": {"messages": SAID},
    }
    with ModelServer(brain=lambda messages: "Assam.") as server:
        result = await rolled(server, rows=[row], philosophy=philosophy, system="Be brief.", toolset=Toolset())
    first, *others = server.requests[0].body["messages"]
    assert first["role"] == "system" and first["content"].startswith("Be brief.\n\nYou sell tea.")
    assert [(one["role"], one["content"]) for one in others] == [(one["role"], one["content"]) for one in SAID[1:]]
    assert (result.success, result.query) == (True, row["query"])


async def test_messages_of_another_query_in_metadata_change_nothing() -> None:
    row = {"query": "What is 17 * 23?", "expected_outcome": {"answer": 391}, "metadata": {"messages": SAID}}
    with ModelServer(brain=lambda messages: "391") as server:
        await rolled(server, rows=[row], philosophy="chat", toolset=Toolset())
    assert [one["content"] for one in server.requests[0].body["messages"]] == ["What is 17 * 23?"]
