"""Tokens as a model sampled them: kept with each call, and joined into rows that weights can be learned from.

A policy gradient needs the tokens that were drawn and the log-probabilities under which they were: text does not give
them back, since several rows of tokens read alike. The calls of a conversation are one row as long as each prompt
begins with exactly the tokens of the call before, its answer included. A template that writes an answer in another way,
or a context that was shortened, begins a new row: nothing is learned from tokens that were never drawn.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np

from experiences.rollouts.types import Step

WHOLE, FURTHER = "=", "+"  # how a packed call begins: with its whole prompt, or after the call before
MOST_BYTES: Final = 2**26  # of one call, unpacked: a few kilobytes can say that they unpack to gigabytes


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """One call: the ids of its prompt, and of its answer with the log-probability of each, in nats, under the
    distribution from which it was drawn."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    logprobs: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.completion) != len(self.logprobs):
            raise ValueError(f"{len(self.completion)} tokens with {len(self.logprobs)} log-probabilities")

    @property
    def whole(self) -> tuple[int, ...]:
        return self.prompt + self.completion

    def follows(self, before: SampledTokens | None) -> bool:
        """The exact-prefix rule."""
        return before is not None and self.prompt[: len(before.whole)] == before.whole

    def packed(self, before: SampledTokens | None) -> str:
        """As text for JSON. A call that follows the one before leaves out what that one holds."""
        joins = self.follows(before)
        prompt = self.prompt[len(before.whole) :] if joins and before is not None else self.prompt
        numbers = np.array([len(prompt), *prompt, *self.completion], dtype="<i4").tobytes()
        data = zlib.compress(numbers + np.array(self.logprobs, dtype="<f4").tobytes(), 6)
        return (FURTHER if joins else WHOLE) + base64.b85encode(data).decode("ascii")

    @classmethod
    def unpacked(cls, text: str, before: SampledTokens | None) -> Self:
        """Raises:
        ValueError: it is no packed call, or follows one that is not there."""
        try:
            unpacker = zlib.decompressobj()
            data = unpacker.decompress(base64.b85decode(text[1:]), MOST_BYTES)
            if unpacker.unconsumed_tail or len(data) < 4:
                raise ValueError("it unpacks to too much, or to nothing")
            n = int(np.frombuffer(data[:4], "<i4")[0])
            size = (len(data) - 4 - 4 * n) // 8
            if n < 0 or size < 0:
                raise ValueError("it holds fewer tokens than it says")
            ids = np.frombuffer(data[4 : 4 + 4 * (n + size)], "<i4").tolist()
            logprobs = np.frombuffer(data[4 + 4 * (n + size) :], "<f4").tolist()
        except (zlib.error, binascii.Error) as error:
            raise ValueError(f"no captured tokens: {error}") from error
        if text[0] == FURTHER:
            if before is None:
                raise ValueError("it follows a call that is not there")
            return cls((*before.whole, *ids[:n]), tuple(ids[n:]), tuple(logprobs))
        return cls(tuple(ids[:n]), tuple(ids[n:]), tuple(logprobs))


@dataclass(slots=True)
class TokenRow:
    """A row of tokens as the model saw and said them. ``step`` (T,) is the index of the step in which a token was
    sampled, -1 where the environment wrote it; ``logprob`` (T,) is what it was sampled with, 0 there."""

    ids: list[int] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    logprob: list[float] = field(default_factory=list)

    def add_prompt(self, ids: Sequence[int]) -> None:
        self.ids += ids
        self.step += [-1] * len(ids)
        self.logprob += [0.0] * len(ids)

    def add_completion(self, call: SampledTokens, step: int) -> None:
        self.ids += call.completion
        self.step += [step] * len(call.completion)
        self.logprob += call.logprobs


def rows_of(steps: Iterable[Step]) -> list[TokenRow]:
    """The rows of one rollout, in order; steps without captured tokens are left out.

    Raises:
        ValueError: what was kept can't be read.
    """
    rows: list[TokenRow] = []
    before: SampledTokens | None = None
    for index, step in enumerate(steps):
        if not step.sampled:
            continue
        call = SampledTokens.unpacked(step.sampled, before)
        if before is not None and call.follows(before):
            rows[-1].add_prompt(call.prompt[len(before.whole) :])
        else:
            rows.append(TokenRow())
            rows[-1].add_prompt(call.prompt)
        rows[-1].add_completion(call, index)
        before = call
    return rows
