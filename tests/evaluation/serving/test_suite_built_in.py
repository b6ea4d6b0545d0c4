"""The suites that come with the program: each can be asked, and what its verifiers expect is right."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.serving.safety import safety_plugins
from evaluation.serving.suites.built_in import BUILT_IN
from evaluation.serving.suites.questions import Player, questions_of


@pytest.mark.slow(reason="reasoning-gym is imported, and makes 120 items")
async def test_every_item_of_the_acceptance_suite_is_won_by_the_answer_that_is_expected() -> None:
    questions = questions_of(BUILT_IN["acceptance"].spec, None, Player())  # type: ignore[arg-type]
    items = [(one.environment, scenario) for one in questions for scenario in one.scenarios]
    families = {str(scenario.expected["generator"]) for _, scenario in items}
    wanted = {family for part in BUILT_IN["acceptance"].spec.parts for family in part.options["families"]}
    assert len(items) == 120 and families == wanted, "a family that has too few items leaves its place to others"
    for environment, scenario in items:
        for answer, right in ((scenario.expected["answer"], True), ("no idea", False)):
            episode = environment.start(scenario, np.random.default_rng(0))
            await episode.say(f"Let me see.\nAnswer: {answer}")  # type: ignore[attr-defined]
            assert episode.outcome().success is right, (scenario.expected, answer)


def test_the_work_suite_asks_thirty_of_each_category() -> None:
    questions = questions_of(BUILT_IN["work"].spec, None, Player())  # type: ignore[arg-type]
    assert [(one.part.category, len(one.scenarios)) for one in questions] == [
        ("coding", 30), ("analysis", 30), ("research", 30), ("tool-use", 30),
    ]  # fmt: skip


def test_the_safety_suite_asks_every_probe_of_ours() -> None:
    questions = questions_of(BUILT_IN["safety"].spec, None, Player())  # type: ignore[arg-type]
    ours = sum(len(safety_plugins.get(name).probes) for name in safety_plugins.built_in())
    assert sum(len(one.scenarios) for one in questions) == ours
    over_http = questions_of(BUILT_IN["safety"].spec, None, Player("http"))  # type: ignore[arg-type]
    assert 0 < sum(len(one.scenarios) for one in over_http) < ours
