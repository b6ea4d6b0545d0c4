"""Why a rollout was stopped reaches whoever collects: a job that a person cancelled must not count as failed."""

from __future__ import annotations

import pytest

from experiences.rollout import Interrupted, RolloutLimits, run_rollout
from experiences.runtimes.action import ActionRuntime
from experiences.types import RolloutKey, Scenario
from tests.support.waiting import UniformChooser, WaitingEnvironment, plain_reward


async def test_the_cause_of_an_interruption_is_kept() -> None:
    asked = RuntimeError("cancel")

    def check() -> None:
        raise Interrupted("cancel") from asked

    with pytest.raises(Interrupted) as interrupted:
        await run_rollout(
            Scenario(0, "question"),
            RolloutKey(0, 0, 0),
            environment=WaitingEnvironment(steps=3),
            runtime=ActionRuntime(UniformChooser()),
            reward=plain_reward,
            seed=0,
            limits=RolloutLimits(),
            check=check,
        )
    assert interrupted.value.__cause__ is asked
