"""Rollouts of language models as conversations that TRL loads: what a model is fine-tuned on.

SFT: a line for each conversation of a rollout, ``{"messages"}``. DPO: a line for each pair of a group,
``{"prompt", "chosen", "rejected"}``. Pure: works on stored steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from experiences.rollouts.message_diff import conversations_of

FIRST_WORDS: Final = "assistant"
Steps = Sequence[Mapping[str, Any]]


class Rewarded(NamedTuple):
    """A rollout of a group."""

    reward: float
    steps: Steps


def sft_lines(steps: Steps) -> Iterator[bytes]:
    """All conversations of a rollout; none where its steps hold no prompts."""
    for talk in conversations_of(steps):
        yield _line({"messages": talk})


def dpo_lines(group: Sequence[Rewarded]) -> Iterator[bytes]:
    """Pairs of the rollouts of one query: the best with the worst, the second best with the second worst, and so on as
    long as their rewards differ. So each rollout is in one pair at most.

    Both must have had the same prompt, in one conversation. The later prompts of an agent of several parts are the work
    of its earlier ones, and a rollout with other lessons answered another prompt.
    """
    by_prompt: dict[bytes, list[tuple[float, list[dict[str, Any]], list[dict[str, Any]]]]] = {}
    for one in group:
        talks = conversations_of(one.steps)
        if len(talks) == 1:
            prompt, answer = _divided(talks[0])
            by_prompt.setdefault(orjson.dumps(prompt), []).append((one.reward, prompt, answer))
    for rollouts in by_prompt.values():
        ranked = sorted(rollouts, key=lambda one: -one[0])  # stable: of equals the first rollout
        for (high, prompt, chosen), (low, _, rejected) in zip(ranked, reversed(ranked), strict=True):
            if high <= low:
                break
            yield _line({"prompt": prompt, "chosen": chosen, "rejected": rejected})


def _divided(talk: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The messages before the model's first own message, and all from there on."""
    at = next(n for n, one in enumerate(talk) if one["role"] == FIRST_WORDS)
    return talk[:at], talk[at:]


def _line(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
