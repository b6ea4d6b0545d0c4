"""Answers of an agent that chooses actions: it plays one episode per query. Pure, no Django."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from budgets.llm.halves import clean
from experiences.rollouts.environments.base import Environment
from experiences.rollouts.runtimes.action import ActionRuntime
from experiences.rollouts.runtimes.base import ActionSelector, RolloutAttempt
from experiences.rollouts.types import RolloutKey, Scenario, Step

SECONDS: Final = 30.0


@dataclass(frozen=True)
class ActionAgent:
    """``policy`` plays ``environment``, taking its best action each time."""

    environment: Environment
    policy: Any  # an ActionSelector, as its learner stored it

    async def answer(self, query: str, seed: int) -> dict[str, Any]:
        """The completion, in the form of a model's API: the last result as its text, with the steps before it.

        Raises:
            RolloutFailure: the policy or a tool of the environment failed.
            TimeoutError: the episode took longer than ``SECONDS``.
        """
        selector: ActionSelector = self.policy
        steps: list[Step] = []
        rng = np.random.default_rng(seed)
        scenario = Scenario(0, query)
        episode = self.environment.start(scenario, rng)
        attempt = RolloutAttempt(RolloutKey(0, 0, 0), scenario, episode, rng, steps.append, lambda: None)
        try:
            async with asyncio.timeout(SECONDS):
                await ActionRuntime(selector, temperature=0.0).play(attempt)
        finally:
            await episode.close()
        done = [{"action": step.action, "result": step.result} for step in steps]
        ended = bool(steps) and steps[-1].action.get("type") == "answer"
        text = str(steps[-1].result.get("output", "")) if ended else ""
        message = {"role": "assistant", "content": clean(text), "agentcore_steps": done}
        return {
            "object": "chat.completion",
            "created": int(time.time()),
            "model": f"policy {selector.version}",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop" if ended else "length"}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }
