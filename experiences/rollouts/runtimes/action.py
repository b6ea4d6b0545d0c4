"""The ``action`` runtime: a policy that chooses among an environment's actions, one step at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from experiences.rollouts.environments.base import ActionEpisode
from experiences.rollouts.runtimes.base import ActionSelector, EnvironmentFailure, PolicyFailure, RolloutAttempt
from experiences.rollouts.types import Observation, Step


@dataclass(slots=True)
class ActionRuntime:
    """Lets ``chooser`` act until the episode ends or ``max_steps`` steps were taken.

    Each step is recorded with the state that the policy saw, so that its features (and with them an update) can
    be rebuilt from the stored JSON: the observation, what was done, and the mask as a string of 0 and 1.
    """

    chooser: ActionSelector
    max_steps: int = 20
    temperature: float = 1.0
    _masks: dict[tuple[bool, ...], str] = field(default_factory=dict, repr=False)

    async def play(self, attempt: RolloutAttempt) -> bool:
        if not hasattr(attempt.episode, "observe"):  # a check of the whole protocol would be felt in each rollout
            raise EnvironmentFailure("this environment is a conversation in text: give the agent a language model")
        episode = cast(ActionEpisode, attempt.episode)
        rng, check, record = attempt.rng, attempt.check, attempt.record
        choose, temperature = self.chooser.choose, self.temperature
        for _ in range(self.max_steps):
            check()
            timestamp, started = time.time(), time.perf_counter()
            try:
                observation = episode.observe()
            except Exception as error:
                raise EnvironmentFailure(described(error)) from error
            try:
                choice, logprob = choose(observation, rng, temperature=temperature)
                if observation.mask is not None and not observation.mask[choice]:
                    raise ValueError(f"it chose action {choice}, which is not allowed now")
            except Exception as error:
                raise PolicyFailure(described(error)) from error
            state = self._state(observation)
            try:
                outcome = await episode.step(choice)
            except Exception as error:
                raise EnvironmentFailure(described(error)) from error
            record(
                Step(
                    state=state,
                    action=outcome.action,
                    result=outcome.result,
                    timestamp=timestamp,
                    duration_ms=(time.perf_counter() - started) * 1e3,
                    tokens=outcome.tokens,
                    cost_micros=outcome.cost_micros,
                    choice=choice,
                    logprob=logprob,
                )
            )
            if outcome.done:
                return True
        return False

    def _state(self, observation: Observation) -> dict[str, Any]:
        state: dict[str, Any] = {"observation": observation.last, "done": list(observation.done)}
        mask = observation.mask
        if mask is not None:
            bits = self._masks.get(mask)
            if bits is None:
                bits = self._masks[mask] = "".join("1" if allowed else "0" for allowed in mask)
            state["mask"] = bits
        return state


def observation_of(query: str, state: Mapping[str, Any]) -> Observation:
    """The observation that ``ActionRuntime`` recorded as ``state``: its exact inverse, also after JSON.

    Raises:
        KeyError: this state was not recorded by the action runtime.
    """
    mask = state.get("mask")
    return Observation(
        query=query,
        last=state["observation"],
        done=tuple(state["done"]),
        mask=None if mask is None else tuple(bit == "1" for bit in mask),
    )


def described(error: BaseException) -> str:
    """An exception as one line: its type and message."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
