"""The tool episode's rules, step by step, with faults made on purpose."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiences.rollouts.environments.base import StepOutcome
from experiences.rollouts.environments.fault_injection import FaultRates, Faults, corrupted
from experiences.rollouts.environments.tool_episode import ToolEpisode, ToolWorld
from experiences.rollouts.tools import toolbox
from experiences.rollouts.types import Outcome, Scenario

NOW_AND_THEN = FaultRates(0.04, 0.06)


def right(answer: str, scenario: Scenario) -> Outcome:
    return Outcome(float(answer == scenario.expected["answer"]), answer == scenario.expected["answer"])


class Planned(Faults):
    """Faults by a given plan, then none."""

    def __init__(self, plan: list[str]) -> None:
        super().__init__(FaultRates(0, 0), np.random.default_rng(0))
        self.plan = plan

    def next(self) -> Any:
        return (self.plan.pop(0) if self.plan else "", 0.9)


class Played:
    """An episode played by names of actions."""

    def __init__(self, query: str, answer: str, *faults: str) -> None:
        self.world = ToolWorld(toolbox(), right, NOW_AND_THEN)
        self.names = [action.name for action in self.world.actions]
        scenario = Scenario(0, query, {"answer": answer})
        self.episode = ToolEpisode(self.world, scenario, Planned(list(faults)))

    def do(self, name: str) -> StepOutcome:
        return asyncio.run(self.episode.step(self.names.index(name)))

    @property
    def seen(self) -> tuple[str, tuple[str, ...]]:
        observation = self.episode.observe()
        return observation.last, observation.done

    @property
    def forbidden(self) -> set[str]:
        mask = self.episode.observe().mask
        assert mask is not None
        return {name for name, allowed in zip(self.names, mask, strict=True) if not allowed}


def test_episode_calls_verifies_and_answers() -> None:
    played = Played("What is 2 + 3 * 4?", "14")
    called = played.do("int_calc")
    assert called.action == {"type": "tool", "tool": "int_calc", "parameters": {}}
    assert called.result == {"success": True, "output": "14", "error": ""}
    assert played.seen == ("14", ("int_calc#ok",))
    verified = played.do("verify")
    assert verified.verified is True and verified.result["output"] == "consistent"
    assert played.seen == ("14", ("int_calc#ok", "verify#ok"))
    assert not verified.done
    answered = played.do("answer")
    assert answered.done and answered.action["parameters"] == {"text": "14"}
    assert played.episode.outcome() == Outcome(1.0, True)


def test_episode_fails_an_episode_that_never_answers() -> None:
    played = Played("What is 2 + 3?", "5")
    played.do("int_calc")
    assert played.episode.outcome() == Outcome(0.0, False, {"answered": False})


def test_episode_leaves_no_trace_of_a_call_that_timed_out() -> None:
    """Rule (a)."""
    played = Played("What is 2 + 3?", "5", "timeout", "", "timeout")
    before = played.seen
    assert played.do("int_calc").result["error"].startswith("timeout")
    assert played.seen == before
    played.do("int_calc")
    with_result = played.seen
    verifying = played.do("verify")
    assert verifying.verified is None and played.seen == with_result


def test_episode_discards_an_inconsistent_result_with_its_history() -> None:
    """Rule (b): the state is the one before, so the retry needs no separate learning."""
    played = Played("How many legs have 3 cats, 2 ants?", "24", "", "", "corrupted")
    played.do("shift_decoder")
    before = played.seen
    played.episode._faults = Planned(["", "corrupted"])
    played.do("animals")
    played.do("int_calc")
    assert played.seen == ("29", ("animals#ok", "int_calc#ok", "shift_decoder#err"))
    verified = played.do("verify")
    assert verified.verified is False and verified.result == {"success": False, "output": "inconsistent", "error": ""}
    assert played.seen == before == ("", ("shift_decoder#err",))
    for action in ("animals", "int_calc", "verify", "answer"):
        played.do(action)
    assert played.episode.outcome().success


def test_episode_masks_verify_and_answer_while_they_make_no_sense() -> None:
    """Rule (c)."""
    played = Played("What is 2 + 3?", "5")
    assert played.forbidden == {"verify", "answer"}
    played.do("solve_linear")  # an error is no result
    assert played.forbidden == {"verify", "answer"}
    played.do("int_calc")
    assert played.forbidden == set()
    played.do("verify")
    assert played.forbidden == {"verify"}
    played.do("gcd")  # a new result is unverified
    assert played.forbidden == set()
    assert "verify#ok" not in played.seen[1]


def test_episode_verifies_by_computing_again_and_knows_nothing_of_the_right_answer() -> None:
    wrong_tool = Played("What is 2 + 3?", "5")
    wrong_tool.do("factor")
    assert wrong_tool.do("verify").verified is True  # consistently wrong
    false_alarm = Played("What is 2 + 3?", "5", "", "corrupted")
    false_alarm.do("int_calc")
    assert false_alarm.do("verify").verified is False


def test_episode_keeps_the_result_in_hand_when_another_tool_fails() -> None:
    played = Played("What is 2 + 3?", "5")
    played.do("int_calc")
    assert played.do("calendar").result == {"success": False, "output": "", "error": "no date in the text"}
    assert played.seen == ("5", ("calendar#err", "int_calc#ok"))


def test_episode_verifies_a_chain_from_its_beginning() -> None:
    """The corrupted first link is found, though the second link worked faultlessly on it."""
    played = Played("How many legs have 3 cats, 2 ants?", "24", "corrupted")
    played.do("animals")
    played.do("int_calc")
    assert played.seen[0] != "24"
    assert played.do("verify").verified is False


def test_episode_refuses_an_action_that_does_not_exist() -> None:
    played = Played("q", "a")
    for choice in (-1, len(played.names)):
        with pytest.raises(IndexError, match="there is no action"):
            asyncio.run(played.episode.step(choice))


def test_episode_answers_verify_and_answer_without_a_result_with_a_failure_not_an_exception() -> None:
    played = Played("q", "a")
    assert played.do("verify").result["error"] == "there is no result to verify"
    assert played.do("answer").done
    assert not played.episode.outcome().success


def test_episode_has_faults_as_often_as_configured() -> None:
    faults = Faults(NOW_AND_THEN, np.random.default_rng(3))
    kinds = [faults.next()[0] for _ in range(20_000)]
    assert kinds.count("timeout") / 20_000 == pytest.approx(0.04, abs=0.005)
    assert kinds.count("corrupted") / 20_000 == pytest.approx(0.06, abs=0.006)
    none = Faults(FaultRates(0, 0), np.random.default_rng(3))
    assert {none.next()[0] for _ in range(1000)} == {""}


@pytest.mark.parametrize(
    ("result", "wrong"),
    [
        ("5", "10"),
        ("Yes", "No"),
        ("Monday", "Sunday"),
        ("a, b, c", "a, b"),
        ("['1', '2']", "['1']"),
        ("13*4 + 2*6", "13*4 + 2*11"),
        ("489/902", "489/907"),
        ("2 × 157", "2 × 162"),
        ("lemon", "lemo"),
        ("x", "xx"),
    ],
)
def test_episode_corrupts_each_kind_of_result_plausibly(result: str, wrong: str) -> None:
    assert corrupted(result, 0.99) == wrong


@given(result=st.text(min_size=1, max_size=60), manner=st.floats(0, 1, exclude_max=True))
def test_episode_never_corrupts_a_result_into_itself_or_nothing(result: str, manner: float) -> None:
    assert corrupted(result, manner) not in ("", result)
