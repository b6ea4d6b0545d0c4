"""The first rollouts of a job: where all of them end in the same refusal, no further one is begun."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from budgets.llm.errors import ContextTooLong
from budgets.llm.remedies import advice, with_step
from experiences.rollouts.runtimes.base import Halted, RolloutAttempt, Runtime
from experiences.rollouts.runtimes.llm.calls import ModelRefused

MOST: Final = 3  # rollouts that are refused before the job pauses
OF_CONTENT: Final = ("content_filter", "content_policy_violation", "context_length_exceeded")


@dataclass
class FirstRefusals:
    """Refusals of a job's rollouts until one of them ends otherwise."""

    _over: bool = False
    _seen: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def ended(self) -> None:
        """A rollout ended without a refusal: the service takes requests of this job."""
        self._over = True

    def refused(self, failure: ModelRefused, scenario: int) -> None:
        """Raises Halted: the service refuses all that the job sends. A refusal of one query's content counts once."""
        if self._over:
            return
        error = failure.error
        seen = self._seen[re.sub(r"\d+", "", error.message)]
        seen.append(scenario)
        of_content = isinstance(error, ContextTooLong) or error.code in OF_CONTENT
        if len(set(seen) if of_content else seen) >= MOST:
            raise Halted("llm_refused", with_step(error.message, advice(error))) from failure


@dataclass
class WatchedRuntime:
    """Plays as ``inner`` does, and stops the job where its first rollouts are all refused."""

    inner: Runtime
    watch: FirstRefusals

    async def play(self, attempt: RolloutAttempt) -> bool:
        """As ``Runtime`` says."""
        try:
            done = await self.inner.play(attempt)
        except ModelRefused as failure:
            self.watch.refused(failure, attempt.scenario.index)
            raise
        self.watch.ended()
        return done
