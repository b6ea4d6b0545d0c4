"""Sums learned by a pretrained language model: with its rewards, and with the same rewards shuffled in each batch.

``make bench ARGS="weights FOLDER --seed 1"``: the job of ``make run MODEL=1`` by the engine in this process, without a
site. ``manage.py model_setup`` prints the folder. An answer is right as the scorer has it; it *names* the sum where
that number is anywhere in it. ``ARGS="weights speed FOLDER"`` measures time and memory (``weights_speed``).
"""

from __future__ import annotations

import argparse
import re
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from experiences.rollouts.environments.scorers import check_for
from training.algorithm.advantages import group_advantages
from training.algorithm.losses import policy_loss
from training.schema import GRPOConfig
from training.trainer.objective import loss_rule
from training.weights.engine import Adam, Datum, TokenDraw
from training.weights.one_digit_sums import SYSTEM_PROMPT, sums_rows

MAX_TOKENS: Final = 20
SAMPLES: Final = 4  # of each held-out sum

Rows = Sequence[dict[str, Any]]


class Learner:
    """One adapter, its draws and its updates."""

    def __init__(self, folder: Path, config: GRPOConfig, seed: int) -> None:
        from training.weights.chat import ChatTokens
        from training.weights.torch_engine import TorchEngine

        self.chat, self.config = ChatTokens(folder), config
        self.engine = TorchEngine(folder, decode=self.chat.text)
        self.engine.create("learns", config.weights.lora_rank, seed)
        self.random, self._draws = np.random.default_rng(seed), 0

    def answers(self, rows: Rows, samples: int) -> list[tuple[dict[str, Any], TokenDraw, Any, str]]:
        asked = []
        for row in rows:
            messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": row["query"]}]
            prompt = self.chat.prompt(messages, None)
            for _ in range(samples):
                self._draws += 1
                asked.append((row, TokenDraw(prompt, MAX_TOKENS, seed=int(self.random.integers(2**31)))))
        drawn = self.engine.sample("learns", [draw for _, draw in asked])
        return [(row, draw, found, self.chat.text(found.ids)) for (row, draw), found in zip(asked, drawn, strict=True)]

    def step(self, rows: Rows, *, shuffled: bool) -> float:
        """One iteration. The share of right answers."""
        size = self.config.n_trajectories_per_query
        answers = self.answers(rows, size)
        rewards = np.array([right(row, text) for row, _, _, text in answers], dtype=float)
        success = float(rewards.mean())
        if shuffled:
            rewards = self.random.permutation(rewards)
        groups = np.repeat(np.arange(len(rows)), size)
        advantages = group_advantages(rewards, groups, scale_rewards=self.config.scale_rewards).advantages
        old = np.concatenate([found.logprobs for _, _, found, _ in answers])
        sequence = np.repeat(np.arange(len(answers)), [len(found.ids) for _, _, found, _ in answers])
        pull = policy_loss(old, old, advantages[sequence], sequence, len(answers), loss_rule(self.config)).d_logp
        at, data = 0, []
        for _, draw, found, _ in answers:
            part = pull[at : at + len(found.ids)]
            at += len(found.ids)
            data.append(Datum(draw.prompt + found.ids, (0.0,) * len(draw.prompt) + tuple((-part).tolist())))
        self.engine.forward_backward("learns", data, weighted_only=True)
        self.engine.optim_step("learns", Adam(self.config.learning_rate, grad_clip_norm=self.config.max_grad_norm))
        return success


def right(row: dict[str, Any], text: str) -> bool:
    return check_for(row["expected_outcome"])(text).success


def named(row: dict[str, Any], text: str) -> bool:
    return str(row["expected_outcome"]["answer"]) in re.findall(r"\d+", text.replace(row["query"], ""))


def course(folder: Path, seed: int, iterations: int, *, shuffled: bool) -> None:
    config = GRPOConfig(learner="weights", learning_rate=5e-4, weights={"lora_rank": 16}, credit="uniform")
    learner = Learner(folder, config, seed)
    rows, held_out = sums_rows()
    print(f"\nseed {seed}, rewards {'shuffled' if shuffled else 'as they are'}")
    measured(learner, held_out, "before")
    shares = []
    for _ in range(iterations):
        chosen = learner.random.choice(len(rows), 8, replace=False)
        shares.append(learner.step([rows[at] for at in chosen], shuffled=shuffled))
        print(f"  iteration {len(shares)}: {shares[-1]:.0%}", flush=True)
    measured(learner, held_out, "after")


def measured(learner: Learner, rows: Rows, when: str) -> None:
    found = learner.answers(rows, SAMPLES)
    shares = [np.mean([of(row, text) for row, _, _, text in found]) for of in (right, named)]
    print(f"  {when}: right {shares[0]:.0%}, names the sum {shares[1]:.0%}; such as {[one[3] for one in found[:40:8]]}")


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["speed"]:
        from tests.performance import weights_speed

        return weights_speed.main(arguments[1:])
    options = argparse.ArgumentParser(prog="tests.performance.weights", description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--iterations", type=int, default=12)
    given = options.parse_args(arguments)
    for shuffled in (False, True):
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_utime
        course(given.folder, given.seed, given.iterations, shuffled=shuffled)
        cpu = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
        print(f"  {time.monotonic() - began:.0f} s, {cpu:.0f} CPU seconds")
    return 0
