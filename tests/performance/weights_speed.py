"""Iterations of GRPO by the engine beside TRL's GRPOTrainer, and updates beside the same rows without sharing.

``make bench ARGS="weights speed FOLDER"``: the same model, adapters, prompts, rewards and numbers of tokens.
Each measurement is a process of its own, so that its peak of memory is its own. TRL runs with 32-bit and with bfloat16
weights, each with all rollouts of an update at once and with 8 at a time; the fastest counts. Its gradient
checkpointing is off, since it takes time. Options: ``--prompt`` and ``--answer`` (sizes), ``--groups``,
``--iterations``, ``--threads``, ``--memory``, ``--only NAME ...``. A first iteration, in which memory is claimed and
kernels are chosen, does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

ROLLOUTS: Final = 8  # of a prompt
RANK: Final = 16
RATE: Final = 5e-4
TRL: Final = {
    f"TRL, {kind}, {rows} rows at once": (kind, rows) for kind in ("float32", "bfloat16") for rows in ("8", "all")
}
ENGINE: Final = {"engine, float32": "float32", "engine, bfloat16": "bfloat16"}
UPDATES: Final = {
    f"update, {kind}, {how}": (kind, how) for kind in ("float32", "bfloat16") for how in ("shared", "single rows")
}
NAMES: Final = (*TRL, *ENGINE, *UPDATES)
COMPARED: Final = (  # by their fastest
    (ENGINE.keys(), TRL.keys()),
    *(({f"update, {kind}, shared"}, {f"update, {kind}, single rows"}) for kind in ENGINE.values()),
)


@dataclass(frozen=True)
class Task:
    """Sizes of a measurement. ``memory``: MB of the engine's budget."""

    folder: str
    prompt: int
    answer: int
    groups: int
    iterations: int
    memory: int


@dataclass
class Clock:
    """Seconds on the wall and of the processor between marks."""

    marks: list[tuple[float, float]]

    def mark(self) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        self.marks.append((time.monotonic(), used.ru_utime + used.ru_stime))

    def result(self) -> dict[str, float]:
        """Means of what lies between the second mark and the last: the first iteration does not count."""
        wall, cpu = (np.diff(one)[1:].mean() for one in zip(*self.marks, strict=True))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"wall": float(wall), "cpu": float(cpu), "peak_mb": peak}


def prompts(task: Task, encode: Callable[[str], Sequence[int]]) -> list[str]:
    """Texts of exactly so many tokens, one for each group of each iteration."""
    words = [word for word in WORDS.split() if len(encode(f" {word}")) == 1]
    dice = np.random.default_rng(1)
    texts = ["".join(f" {one}" for one in dice.choice(words, task.prompt)) for _ in range(task.groups)]
    assert all(len(encode(text)) == task.prompt for text in texts)
    return texts


WORDS: Final = (
    "the of and to in is that it was for on are as with his they be at from or had by some what there we can out"
)


def reward(ids: Sequence[int]) -> float:
    return float(np.mean(np.array(ids) % 2))


def by_engine(task: Task, kind: str, *, update_only: bool = False, shared: bool = True) -> dict[str, float]:
    from transformers import AutoTokenizer

    from training.algorithm.advantages import group_advantages
    from training.weights.engine import Adam, Datum, TokenDraw
    from training.weights.torch_engine import TorchEngine

    tokenizer = AutoTokenizer.from_pretrained(task.folder)
    engine = TorchEngine(Path(task.folder), memory=task.memory << 20, dtype=kind)
    engine._ends = frozenset()  # all answers have the same number of tokens, in TRL as well
    if not shared:
        engine._causal.linear, engine._causal.branches = 0.0, False
    engine.create("learns", RANK, 1)
    texts = [tuple(tokenizer.encode(text)) for text in prompts(task, tokenizer.encode)]
    groups, dice, clock = np.repeat(np.arange(task.groups), ROLLOUTS), np.random.default_rng(1), Clock([])
    clock.mark()
    for _ in range(1 + task.iterations):
        if update_only:
            answers = [tuple(dice.integers(100, 40_000, task.answer).tolist()) for _ in groups]
        else:
            draws = [TokenDraw(texts[at], task.answer, seed=int(dice.integers(2**31))) for at in groups]
            answers = [one.ids for one in engine.sample("learns", draws)]
        rewards = np.array([reward(ids) for ids in answers])
        advantages = group_advantages(rewards, groups, scale_rewards="group").advantages
        share = advantages / (len(groups) * task.answer)
        data = [
            Datum(texts[at] + ids, (0.0,) * task.prompt + (float(pull),) * task.answer)
            for at, ids, pull in zip(groups, answers, share, strict=True)
        ]
        engine.forward_backward("learns", data, weighted_only=True)
        engine.optim_step("learns", Adam(RATE, grad_clip_norm=1.0))
        clock.mark()
    return clock.result()


def by_trl(task: Task, kind: str, rows: str) -> dict[str, float]:
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    class Marks(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.mark()

    tokenizer = AutoTokenizer.from_pretrained(task.folder)
    texts, whole, clock = prompts(task, tokenizer.encode), task.groups * ROLLOUTS, Clock([])
    at_once = whole if rows == "all" else ROLLOUTS
    with tempfile.TemporaryDirectory() as place:
        config = GRPOConfig(
            output_dir=place, use_cpu=True, bf16=False, max_steps=1 + task.iterations, learning_rate=RATE, seed=1,
            per_device_train_batch_size=at_once, gradient_accumulation_steps=whole // at_once, beta=0.0,
            num_generations=ROLLOUTS, max_completion_length=task.answer, gradient_checkpointing=False,
            generation_kwargs={"min_new_tokens": task.answer}, temperature=1.0, lr_scheduler_type="constant",
            report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, loss_type="grpo",
        )  # fmt: skip
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(task.folder, dtype=getattr(torch, kind)),
            args=config,
            train_dataset=Dataset.from_dict({"prompt": texts}),
            reward_funcs=lambda completion_ids, **_: [reward(ids) for ids in completion_ids],
            processing_class=tokenizer,
            peft_config=LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="CAUSAL_LM"),
            callbacks=[Marks()],
        )
        clock.mark()
        trainer.train()
    return clock.result()


def measured(name: str, task: Task) -> dict[str, float]:
    if name in TRL:
        return by_trl(task, *TRL[name])
    if name in ENGINE:
        return by_engine(task, ENGINE[name])
    kind, how = UPDATES[name]
    return by_engine(task, kind, update_only=True, shared=how == "shared")


def apart(name: str, task: Task, threads: int) -> dict[str, float]:
    """The same in a process of its own."""
    variables = os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-m", "tests.performance.weights_speed", "--one", name, json.dumps(asdict(task))]
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def table(task: Task, threads: int, names: Sequence[str]) -> None:
    print(f"\n{task.groups} groups of {ROLLOUTS}, {task.prompt} + {task.answer} tokens, {threads} threads")
    found: dict[str, dict[str, float]] = {}
    for name in names:
        one = found[name] = apart(name, task, threads)
        print(f"  {name:32} {one['cpu']:8.1f} CPU s {one['wall']:8.1f} s {one['peak_mb']:8.0f} MB", flush=True)
    for ours, theirs in COMPARED:
        fast, rival = (min(found.keys() & of, key=lambda one: found[one]["cpu"], default="") for of in (ours, theirs))
        if fast and rival:
            shares = [found[fast][of] / found[rival][of] for of in ("cpu", "wall", "peak_mb")]
            print(f"  {fast} / {rival}: CPU {shares[0]:.2f}, wall {shares[1]:.2f}, memory {shares[2]:.2f}", flush=True)


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--one"]:
        print(json.dumps(measured(arguments[1], Task(**json.loads(arguments[2])))))
        return 0
    options = argparse.ArgumentParser(prog="tests.performance.weights_speed", description=__doc__)
    options.add_argument("folder")
    options.add_argument("--prompt", type=int, nargs="+", default=[64, 512])
    options.add_argument("--answer", type=int, nargs="+", default=[24, 64])
    options.add_argument("--groups", type=int, default=4)
    options.add_argument("--iterations", type=int, default=2)
    options.add_argument("--memory", type=int, default=300)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    given = options.parse_args(arguments)
    for prompt, answer in zip(given.prompt, given.answer, strict=True):
        task = Task(given.folder, prompt, answer, given.groups, given.iterations, given.memory)
        table(task, given.threads, given.only)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentcore_site.settings")
    sys.exit(main(sys.argv[1:]))
