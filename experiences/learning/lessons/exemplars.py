"""Exemplars: a short piece of a successful attempt, in the agent's own words, as a kind of lesson.

Only the agent's own text is used, never the text of a tool or of the task. Sentences that repeat the query or give its
answer away are left out. An exemplar is measured, shipped and held in quarantine as any lesson is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from agentcore_site.lib.texts import plain
from experiences.learning.lessons.attempts import Contrast
from experiences.learning.lessons.guards import MAX_CHARACTERS, Source, leak, words
from experiences.privacy import redact
from experiences.rollouts.types import Trajectory

HEAD: Final = "What went well once:"
LEAST_WORDS: Final = 6  # of the agent's own: less says nothing
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")
_QUOTES = str.maketrans(dict.fromkeys('"“”„«»', "'"))


def exemplar(of: Contrast, source: Source, *, max_words: int) -> str:
    """The piece of the group's best attempt, of at most ``max_words`` words with its head; "" where too little is left.
    ``source``: the group's query and answers. Of equal attempts the one with the fewest steps counts."""
    best = min(of.winners, key=lambda winner: (-winner.reward, len(winner.steps), winner.key))
    kept: list[str] = []
    room = max_words - len(words(HEAD))
    for sentence in _said(best):
        if leak(sentence, source):
            continue
        if (room := room - len(words(sentence))) < 0:
            break
        kept.append(sentence)
    text = f'{HEAD} "{" ".join(kept)}"'
    return text if len(words(" ".join(kept))) >= LEAST_WORDS and not exemplar_fault(text, [source], max_words) else ""


def exemplar_fault(text: str, sources: Sequence[Source], max_words: int) -> str:
    """Why a text can't be an exemplar; "" if it can."""
    if not text.startswith(HEAD) or "\n" in text or len(text) > MAX_CHARACTERS:
        return "it is no short excerpt of an attempt"
    if (n := len(words(text))) > max_words:
        return f"it has {n} words; {max_words} are allowed"
    return next((why for source in sources if (why := leak(text, source))), "")


def _said(attempt: Trajectory) -> list[str]:
    """The sentences that the agent said, in order, without personal data and what would end a quotation."""
    texts = [step.action.get("text") or (step.action.get("parameters") or {}).get("text") for step in attempt.steps]
    said = redact(plain("\n".join(text for text in texts if isinstance(text, str))))
    return [flat for one in _SENTENCES.split(said) if (flat := " ".join(one.translate(_QUOTES).split()))]
