"""The quality of code in an answer: ruff, bandit and a row's own tests, as ``signals.code_quality`` reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from ruff import find_ruff_bin

from experiences.rollouts.code import sandbox

RULES: Final = "E4,E7,E9,F,B,C901,PLE"  # errors, undefined and unused names, likely bugs, more than ten branches
ERRORS: Final = ("invalid-syntax", "E9", "F82", "PLE")  # each as bad as five of the others, as pylint has it
ERROR_WEIGHT: Final = 5
SEVERITY: Final[Mapping[str, float]] = {"HIGH": 0.5, "MEDIUM": 0.2, "LOW": 0.05}
LINT_SECONDS: Final = 10
TESTS_SECONDS: Final = 15
TEST_SECONDS: Final = 2.0
MAX_TESTS: Final = 50
MAX_TEST: Final = 10_000  # characters
MAX_KEPT: Final = 20  # findings that are reported
UNIT_TESTS: Final = Path(__file__).with_name("unit_tests.py").read_text()


def code_quality(code: str, tests: Sequence[str] = ()) -> dict[str, Any]:
    """Measures of Python ``code`` that is not empty. Takes up to 35 s.

    "lint" = 1 - (5 errors + other findings) / lines, from 0. "security" = 1 - .5, .2, .05 for each finding of high,
    medium, low severity, from 0. "tests_passed" of "tests_total", where there are tests. A measure is left out where
    its tool ran out of time. Without a sandbox: {"off": why}.
    """
    if missing := sandbox.unavailable():
        return {"off": missing}
    return {"lines": _lines(code), **_linted(code), **_secured(code), **_tested(code, tests)}


def row_tests(metadata: Mapping[str, Any]) -> list[str]:
    """A row's own tests: under "tests" a list of Python statements, such as "assert area(2) == 4"."""
    given = metadata.get("tests")
    texts = [given] if isinstance(given, str) else given if isinstance(given, Sequence) else ()
    return [text for text in texts if isinstance(text, str) and 0 < len(text) <= MAX_TEST][:MAX_TESTS]


def _lines(code: str) -> int:
    return sum(1 for line in code.splitlines() if line.strip())


def _linted(code: str) -> dict[str, Any]:
    # Neither a configuration nor a comment of the answer's own silences a finding.
    options = ("--isolated", "--no-cache", "--ignore-noqa", "--output-format", "json", "--select", RULES)
    found = _parsed(sandbox.run([_ruff(), "check", *options, "-"], code, LINT_SECONDS))
    if not isinstance(found, list):
        return {}
    rules = [str(one.get("code") or "invalid-syntax") for one in found]
    weight = sum(ERROR_WEIGHT if rule.startswith(ERRORS) else 1 for rule in rules)
    details = [
        _finding("ruff", rule, one["location"]["row"], one["message"]) for rule, one in zip(rules, found, strict=True)
    ]
    return {
        "lint": max(0.0, 1 - weight / _lines(code)),
        "lint_findings": len(found),
        "lint_details": details[:MAX_KEPT],
    }


def _secured(code: str) -> dict[str, Any]:
    command = [
        sandbox.python(),
        "-I",
        "-m",
        "bandit",
        "--quiet",
        "--ignore-nosec",
        "--skip",
        "B101",
        "--format",
        "json",
        "-",
    ]
    report = _parsed(sandbox.run(command, code, LINT_SECONDS))
    if not isinstance(report, dict) or report.get(
        "errors"
    ):  # it could not parse the code, which is the linter's finding
        return {}
    found = report["results"]
    lost = sum(SEVERITY.get(one["issue_severity"], 0.0) for one in found)
    details = [_finding("bandit", one["test_id"], one["line_number"], one["issue_text"]) for one in found]
    return {"security": max(0.0, 1 - lost), "security_findings": len(found), "security_details": details[:MAX_KEPT]}


def _tested(code: str, tests: Sequence[str]) -> dict[str, Any]:
    if not tests:
        return {}
    given = json.dumps({"code": code, "tests": list(tests), "seconds": TEST_SECONDS})
    done = sandbox.run([sandbox.python(), "-I", "-S", "-c", UNIT_TESTS], given, TESTS_SECONDS)
    passed = {int(line) for line in done.output.split() if line.isdecimal()} & set(range(len(tests)))
    return {"tests_passed": len(passed), "tests_total": len(tests)}


def _finding(tool: str, rule: str, line: int, message: str) -> dict[str, Any]:
    return {"tool": tool, "rule": rule, "line": line, "message": message[:200]}


def _parsed(done: sandbox.Finished) -> Any:
    """A tool's report as JSON; None without a report. Exit status 1 means findings."""
    if done.timed_out or done.code not in (0, 1):
        return None
    try:
        return json.loads(done.output)
    except ValueError:
        return None


@cache
def _ruff() -> str:
    return os.path.realpath(find_ruff_bin())
