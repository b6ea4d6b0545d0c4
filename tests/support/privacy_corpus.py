"""Labelled texts for redaction: what must go, with its place and kind, among what must stay.

``corpus(n, seed)`` fills templates with made-up values. The ``developed`` templates were looked at while the detectors
were written; the ``apart`` ones were first used to measure them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from experiences.privacy import KINDS, Span, find
from tests.support.privacy_decoys import MAY_STAY, prose
from tests.support.privacy_templates import APART, DEVELOPED
from tests.support.privacy_values import MUST_GO

SETS = {"developed": DEVELOPED, "apart": APART}
VALUES = MUST_GO | {make.__name__: ("", make) for make in MAY_STAY}
_SLOT = re.compile(r"\{([a-z_0-9]+)\}")


@dataclass(frozen=True)
class Labelled:
    text: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Score:
    """``labelled`` and ``found`` are counts of spans; shares by overlap with a span of the same kind."""

    labelled: int
    found: int
    recall: float
    precision: float


def corpus(n: int = 1000, seed: int = 1, templates: str = "apart") -> list[Labelled]:
    """``n`` texts of one to five pieces and, half of the time, some sentences of prose.

    Each template comes equally often; about a third of them hold nothing.
    """
    rng = Random(f"{templates}/{seed}")
    chosen = SETS[templates]
    pieces = 0
    made: list[Labelled] = []
    for _ in range(n):
        size = rng.choice((1, 1, 2, 3, 4, 5))
        parts = [_filled(chosen[i % len(chosen)], rng) for i in range(pieces, pieces + size)]
        if rng.random() < 0.5:
            parts.insert(rng.randrange(size + 1), Labelled(prose(rng), ()))
        made.append(_joined(parts))
        pieces += size
    return made


def _joined(pieces: list[Labelled]) -> Labelled:
    text = "\n\n".join(piece.text for piece in pieces)
    spans: list[Span] = []
    at = 0
    for piece in pieces:
        spans += (Span(at + span.start, at + span.end, span.kind) for span in piece.spans)
        at += len(piece.text) + 2
    return Labelled(text, tuple(spans))


def scores(texts: Iterable[Labelled]) -> dict[str, Score]:
    """By kind, and "all"."""
    labelled = dict.fromkeys((*KINDS, "all"), 0)
    found, hit, right = dict(labelled), dict(labelled), dict(labelled)
    for one in texts:
        spans = find(one.text)
        for counts, good, these, others in ((labelled, hit, one.spans, spans), (found, right, spans, one.spans)):
            for span in these:
                met = any(o.kind == span.kind and o.start < span.end and span.start < o.end for o in others)
                for kind in (span.kind, "all"):
                    counts[kind] += 1
                    good[kind] += met
    return {
        kind: Score(labelled[kind], found[kind], hit[kind] / max(labelled[kind], 1), right[kind] / max(found[kind], 1))
        for kind in labelled
    }


def _filled(template: str, rng: Random) -> Labelled:
    parts: list[str] = []
    spans: list[Span] = []
    length = done = 0
    for slot in _SLOT.finditer(template):
        kind, make = VALUES[slot[1]]
        value = make(rng)
        before = template[done : slot.start()]
        length += len(before)
        if kind:
            spans.append(Span(length, length + len(value), kind))
        parts += [before, value]
        length += len(value)
        done = slot.end()
    return Labelled("".join([*parts, template[done:]]), tuple(spans))
