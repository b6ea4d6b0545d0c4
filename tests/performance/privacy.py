"""S4: how fast texts are cleaned before they are stored; MB of UTF-8 a second on one core."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from experiences.privacy import redact
from experiences.rollouts.environments import environments
from tests.performance.table import Figure, at_least
from tests.support.privacy_corpus import corpus, scores

ROUNDS = 15


def speed(clean: Callable[[str], str], texts: Sequence[str]) -> float:
    """MB/s over all texts, one call each; of processor time, the best of the rounds: others share the machine."""
    size = sum(len(text.encode()) for text in texts)
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for text in texts:
            clean(text)
        best = min(best, time.process_time() - began)
    return size / best / 1e6


def questions() -> list[str]:
    """Queries of the embedded environment: 97 characters on average, so that the call weighs as much as the scan."""
    environment: Any = environments.get("reasoning_gym")({"wording": "mixed"})
    lines = ("train", "selection", "held_out", "harder_numbers", "unseen_wording")
    return [one.query for line in lines for one in environment.scenarios(line, 320, seed=3)]


def redaction() -> list[Figure]:
    labelled = corpus(1000, seed=1)
    texts = [one.text for one in labelled]
    asked = questions()
    found = scores(labelled)["all"]
    return [
        at_least("S4", "redaction of the labelled corpus", speed(redact, texts), 5, "MB/s", digits=1),
        at_least("S4", "redaction of the embedded environment's questions", speed(redact, asked), 50, "MB/s", digits=1),
        at_least("S4", "recall by span, corpus of 1,000 texts", 100 * found.recall, 98, "%", digits=1),
        at_least("S4", "precision by span, corpus of 1,000 texts", 100 * found.precision, 95, "%", digits=1),
    ]
