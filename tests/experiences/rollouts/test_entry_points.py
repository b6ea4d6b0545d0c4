"""A stranger's package, really installed: its environment, reward and tools are found by name."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PACKAGE = """
from collections.abc import Mapping

from budgets.llm.types import ToolSpec
from experiences.rollouts.rewards.base import Payment
from experiences.rollouts.tools.base import ToolResult
from experiences.rollouts.types import Scenario


class Coins:
    name, lines, actions = "coins", (), ()

    def scenarios(self, split, n, seed):
        return [Scenario(i, f"{split} {i}") for i in range(n)]

    def start(self, scenario, rng):
        raise NotImplementedError


class CoinsFactory:
    description, option_help = "Tosses coins.", {"sides": "How many."}

    def __call__(self, options):
        return Coins()


class Short:
    def __call__(self, trajectory):
        return Payment.at_the_end(trajectory, {"short": -float(len(trajectory.steps))})


class ShortFactory:
    description, option_help = "The fewer steps, the better.", {}

    def __call__(self, options):
        return Short()


class Shout:
    name, description = "shout", "In capitals."

    def run(self, text, last):
        return ToolResult(True, text.upper())


class Between:
    spec = ToolSpec(
        "between",
        "Whether a number lies between two others.",
        {"type": "object", "properties": {"n": {"type": "number"}, "low": {"type": "number"}}, "required": ["n"]},
    )

    async def run(self, arguments: Mapping):
        return ToolResult(True, str(arguments["low"] < arguments["n"]))


coins, short, shout, between = CoinsFactory(), ShortFactory(), Shout(), Between()
"""
POINTS = """
[agentcore.environments]
coins = strangers_package:coins

[agentcore.rewards]
short = strangers_package:short

[agentcore.tools]
shout = strangers_package:shout
between = strangers_package:between
"""
USED = """
import asyncio, json
from experiences.rollouts.environments import environments
from experiences.rollouts.rewards import pay, rewards
from experiences.rollouts.tools import offers, toolbox
from experiences.rollouts.tools.toolset import Toolset, python_tools
from experiences.rollouts.types import RolloutKey, Step, Trajectory

one = Trajectory(RolloutKey(0, 0, 0), "q", [Step({}, {}, {}), Step({}, {}, {})])
pay(rewards.get("short")({}), one)
toolset = Toolset(python_tools(["shout", "between", "calculator"]))

async def called():
    return [
        (await toolset.call("shout", {"text": "hello"})).output,
        (await toolset.call("between", {"n": 3, "low": 1})).output,
        (await toolset.call("between", {"n": 3})).error,
    ]

try:
    toolbox(["between"])
    refused = ""
except ValueError as error:
    refused = str(error)
print(json.dumps({
    "queries": [each.query for each in environments.get("coins")({}).scenarios("train", 2, 0)],
    "listed": ["coins" in environments.names(), "short" in rewards.names()],
    "reward": one.reward,
    "offered": [name for name, _ in offers() if name in ("shout", "between")],
    "parameters": list(toolset.specs[1].parameters["properties"]),
    "called": asyncio.run(called()),
    "embedded": toolbox(["shout"]).run(0, "x", "").output,
    "refused": refused,
}))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    (tmp_path / "strangers_package.py").write_text(PACKAGE)
    info = tmp_path / "strangers_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(POINTS))
    return tmp_path


def test_plugins_of_a_package_are_registered_by_name(installed: Path) -> None:
    root = Path(__file__).parents[3]
    ran = subprocess.run(
        [sys.executable, "-c", USED],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": f"{root}:{installed}", "PATH": "/usr/bin:/bin"},
    )
    assert ran.returncode == 0, ran.stderr
    body = json.loads(ran.stdout)
    assert body["queries"] == ["train 0", "train 1"] and body["listed"] == [True, True]
    assert body["reward"] == -2.0
    assert body["offered"] == ["between", "shout"] and body["parameters"] == ["n", "low"]
    assert body["called"][:2] == ["HELLO", "True"] and body["called"][2] == "KeyError: 'low'"
    assert body["embedded"] == "X" and "named arguments" in body["refused"]


def test_a_package_that_can_not_be_loaded_is_named_and_the_other_packages_are_loaded(installed: Path) -> None:
    (installed / "strangers_package-1.0.dist-info" / "entry_points.txt").write_text(
        "[agentcore.rewards]\nbroken = not_there:reward\nshort = strangers_package:Short\n"
    )
    asked = (
        "from experiences.rollouts.rewards import rewards\n"
        "print(sorted({'broken', 'short'} & set(rewards.names())))\n"
        "try: rewards.get('broken')\n"
        "except LookupError as error: print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", asked],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": f"{Path(__file__).parents[3]}:{installed}", "PATH": "/usr/bin:/bin"},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("['short']\n") and "No module named 'not_there'" in ran.stdout
