"""Similarity of two short texts without a model: the cosine of their hashed character n-grams.

It finds the same lesson in nearly the same words. Two lessons with the same meaning in different words count as two;
their measured effects then share the credit.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

ALIKE: Final = 0.9  # from here on two texts are one
GRAMS: Final = (3, 4)
SLOTS: Final = 2**16
_SPACE = re.compile(r"[^\w]+")


def similarity(a: str, b: str) -> float:
    """Cosine in [0, 1]; 1 for texts that differ in case, spaces and punctuation only."""
    first, second = _profile(a), _profile(b)
    if not first or not second:
        return float(first == second)
    smaller, larger = (first, second) if len(first) < len(second) else (second, first)
    return sum(weight * larger.get(slot, 0.0) for slot, weight in smaller.items())


def most_alike(text: str, others: Sequence[str]) -> tuple[int, float]:
    """(index, similarity) of the text that is nearest; (-1, 0.0) where there are none."""
    best, nearest = -1, 0.0
    for index, other in enumerate(others):
        if (found := similarity(text, other)) > nearest:
            best, nearest = index, found
    return best, nearest


@lru_cache(maxsize=4096)
def _profile(text: str) -> Mapping[int, float]:
    """Weights of the hashed n-grams, of length 1."""
    plain = f" {_SPACE.sub(' ', text.casefold()).strip()} "
    counts: Counter[int] = Counter()
    for n in GRAMS:
        for at in range(len(plain) - n + 1):
            counts[zlib.crc32(plain[at : at + n].encode("utf-8", "replace")) % SLOTS] += 1
    length = math.sqrt(sum(count * count for count in counts.values()))
    return {slot: count / length for slot, count in counts.items()} if plain.strip() else {}
