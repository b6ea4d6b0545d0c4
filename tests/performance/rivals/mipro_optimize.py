"""DSPy's MIPROv2, instructions only, as its users call it, in an environment of its own.

Reads a task as JSON from standard input, and writes the prompt that it ends with. Nothing of the project is imported.
Demonstrations are left out: a simulated model learns nothing from them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from typing import Any

import dspy

BATCH, FULL_EVERY = 35, 5  # queries of a trial, and trials between two full looks: its defaults
SPARE = 5  # instructions more than there are full looks: it fails where it has none left to look at
ASKED = 4  # calls for each instruction


def main() -> None:
    task = json.load(sys.stdin)
    logging.disable(logging.CRITICAL)
    model = dspy.LM(
        f"openai/{task['model']}",
        api_base=task["base_url"],
        api_key="sk-test",
        temperature=task["temperature"],
        max_tokens=16_384,
        cache=False,
    )
    dspy.configure(lm=model)
    train, validation = _examples(task["train"]), _examples(task["validation"])
    batch = min(BATCH, len(validation))
    # A full look comes with every fifth trial, at the beginning and at the end.
    fixed, each = 2 * len(validation) + ASKED * SPARE, batch + (len(validation) + ASKED) / FULL_EVERY
    trials = max(1, int((task["calls"] - fixed) / each))
    optimizer = dspy.MIPROv2(
        metric=_right,
        auto=None,
        num_candidates=trials // FULL_EVERY + SPARE,
        max_bootstrapped_demos=0,
        max_labeled_demos=0,
        num_threads=1,
        seed=task["seed"],
        verbose=False,
    )
    with contextlib.redirect_stdout(sys.stderr):
        found = optimizer.compile(
            dspy.Predict(dspy.Signature("question -> answer", task["prompt"])),
            trainset=train,
            valset=validation,
            num_trials=trials,
            minibatch_size=batch,
            minibatch_full_eval_steps=FULL_EVERY,
        )
    json.dump({"prompt": found.signature.instructions}, sys.stdout)


def _examples(rows: list[dict[str, str]]) -> list[Any]:
    return [dspy.Example(question=one["query"], answer=one["answer"]).with_inputs("question") for one in rows]


def _right(example: Any, found: Any, trace: object = None) -> bool:
    return str(found.answer).strip(" *`").casefold() == example.answer.casefold()


if __name__ == "__main__":
    main()
