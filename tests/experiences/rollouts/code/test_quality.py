"""Code in answers: where it is, and what ruff, bandit and a row's tests say of it."""

from __future__ import annotations

from typing import Any

import pytest

from experiences.rollouts.code import quality, sandbox
from experiences.rollouts.code.blocks import python_in
from experiences.rollouts.code.quality import code_quality, row_tests
from experiences.rollouts.collect import RolloutLimits, RolloutPlan, run_rollout
from experiences.rollouts.environments import environments
from experiences.rollouts.rewards import rewards, signals
from experiences.rollouts.runtimes.base import RolloutAttempt
from experiences.rollouts.types import RolloutKey, Step, Trajectory

isolated = pytest.mark.skipif(bool(sandbox.unavailable()), reason=f"no isolation here: {sandbox.unavailable()}")

GOOD = "def area(r: float) -> float:\n    return 3 * r * r\n"
BAD = "import os\nimport subprocess\n\n\ndef run(x):\n    subprocess.call(y, shell=True)  # noqa # nosec\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("no code", ""),
        ("```python\na = 1\n```\nand\n~~~py\nb = 2\n~~~", "a = 1\n\nb = 2\n"),
        ("```\ndef f(): pass\n```", "def f(): pass\n"),
        ("```\nhello, world\n```", ""),
        ("```\n$ pip install x\n```", ""),
        ("```js\nlet a = 1\n```", ""),
        ("```python\nnever closed = ", "never closed = "),
        ("```python\n\n```", ""),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''\n"),
    ],
)
def test_python_in_an_answer_is_found(text: str, code: str) -> None:
    assert python_in(text) == code


def test_a_rows_tests_are_texts() -> None:
    assert row_tests({"tests": ["assert 1", 7, "", "x" * 10_001]}) == ["assert 1"]
    assert row_tests({"tests": "assert 1"}) == ["assert 1"]
    assert row_tests({"tests": {"a": 1}}) == row_tests({}) == []


@isolated
def test_good_code_is_better_than_bad() -> None:
    good, bad = code_quality(GOOD, ["assert area(2) == 12"]), code_quality(BAD, ["run(1)"])
    assert (good["lint"], good["security"], good["tests_passed"], good["tests_total"]) == (1, 1, 1, 1)
    # 4 lines: os is not used (F401), y not defined (F821, as bad as five). No comment silences them.
    assert (bad["lint"], bad["lint_findings"], bad["tests_passed"]) == (0, 2, 0)
    assert bad["security"] == pytest.approx(1 - 0.5 - 0.05) and bad["security_findings"] == 2  # B602 and B404
    assert {one["rule"] for one in bad["lint_details"] + bad["security_details"]} == {"F401", "F821", "B602", "B404"}
    read = [signals.code_quality({"code_quality": one}) for one in (good, bad)]
    assert read == [1, pytest.approx((0 + 0.45 + 0) / 3)]


@isolated
def test_code_that_can_not_be_parsed_is_a_finding_of_the_linter() -> None:
    result = code_quality("def area(:\n", ["pass"])
    assert result["lint"] == 0 and result["tests_passed"] == 0 and "security" not in result


@isolated
@pytest.mark.parametrize(
    "code",
    [
        "import os\nos._exit(0)",
        "import sys\nsys.exit(0)",
        pytest.param("while True: pass", marks=pytest.mark.slow(reason="it is given its 2 s")),
        "import os\nos.kill(os.getpid(), 9)",
        "import os, sys\nprint(*range(9), sep='\\n')\nsys.stdout.flush()\nos._exit(0)",
        "import os\n[os.write(n, b'0\\n' * 16) for n in range(3)]\nos._exit(0)",
    ],
)
def test_no_early_end_passes_a_test(code: str) -> None:
    assert quality._tested(code, ["assert False"])["tests_passed"] == 0


@isolated
def test_each_test_begins_with_fresh_state() -> None:
    tests = ["seen.append(1); assert seen == [1]"] * 2 + ["assert False", "import os; os._exit(0)", "assert seen == []"]
    assert quality._tested("seen = []", tests) == {"tests_passed": 3, "tests_total": 5}


def test_without_isolation_the_check_of_code_is_off_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "unavailable", lambda: "unshare: Operation not permitted")
    result = code_quality(GOOD, ["assert False"])
    assert result == {"off": "unshare: Operation not permitted"}
    assert signals.code_quality({"code_quality": result}) is None


def test_the_trial_reports_the_kernels_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox._refused.cache_clear()
    monkeypatch.setattr(sandbox, "SYSTEM", ("/nowhere",))
    monkeypatch.setattr(sandbox, "python", lambda: "/nowhere/python")
    try:
        assert "No such file" in sandbox.unavailable()
    finally:
        sandbox._refused.cache_clear()


class Says:
    """A runtime that answers with one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def play(self, attempt: RolloutAttempt) -> bool:
        reply = await attempt.episode.say(self.text)  # type: ignore[attr-defined]
        attempt.record(Step({}, reply.action, reply.result))
        return True


async def played(text: str, metadata: dict[str, Any], runtime: type[Says] = Says, **options: Any) -> Trajectory:
    row = {"query": "Write area.", "expected_outcome": {"contains": "area"}, "metadata": metadata}
    environment = environments.get("dataset")({"rows": [row]})
    plan = RolloutPlan(environment, runtime(text), rewards.get("composite")(options), 0, RolloutLimits())
    return await run_rollout(environment.scenarios("all", 1, 0)[0], RolloutKey(0, 0, 0), plan)


@isolated
async def test_a_rollouts_code_is_checked_where_a_reward_counts_quality() -> None:
    text, tests = f"Here:\n```python\n{GOOD}```", {"tests": ["assert area(1) == 3", "assert area(1) == 4"]}
    result = await played(text, tests)
    assert result.error == "" and result.evidence["code_quality"]["tests_passed"] == 1
    assert result.evidence["reward"]["raw"]["code_quality"] == pytest.approx((1 + 1 + 0.5) / 3)
    assert result.evidence["reward"]["measured"]["code_quality"] is True
    assert "code_quality" not in (await played(text, tests, code_quality=0)).evidence
    without = await played("area is 3 r r", tests)
    assert "code_quality" not in without.evidence
    assert without.evidence["reward"]["measured"]["code_quality"] is False


class SaysAndBreaks(Says):
    async def play(self, attempt: RolloutAttempt) -> bool:
        await super().play(attempt)
        raise ValueError("the runtime broke after its answer")


async def test_the_code_of_a_rollout_that_failed_is_not_checked() -> None:
    """Such a rollout earns nothing, so that no process is spent on its code."""
    result = await played(f"```python\n{GOOD}```", {"tests": ["assert area(1) == 3"]}, runtime=SaysAndBreaks)
    assert "broke after its answer" in result.error and result.steps
    assert "code_quality" not in result.evidence
