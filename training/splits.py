"""The split of queries: for training, for the selection of checkpoints, and held out for the final test.

The side of a query hangs on its text and the seed only: not on the order of the rows, and equal texts always
fall on one side, so that nothing that was trained on is ever tested on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

HELD_OUT_SHARE = 0.20
SELECTION_SHARE = 0.25  # of what is not held out
SELECTION_LEAST = 20  # selection queries, where they are to be had
SELECTION_MOST = 0.4  # of what is not held out: the rest has to teach


@dataclass(frozen=True, slots=True)
class SplitPositions:
    """Positions in the list of queries that was split, each ascending; every position is in exactly one."""

    train: list[int]
    selection: list[int]
    held_out: list[int]


def split_queries(
    queries: Sequence[str],
    seed: int,
    *,
    held_out_share: float = HELD_OUT_SHARE,
    selection_share: float = SELECTION_SHARE,
    selection_least: int = SELECTION_LEAST,
) -> SplitPositions:
    """Splits ``queries`` by distinct text (case and white space aside).

    At least one text stays for training; from three distinct texts on, no side is empty (unless its share is 0).

    Raises:
        ValueError: there is no query, or a share lies outside [0, 1).
    """
    if not queries:
        raise ValueError("There is no query to split.")
    if not (0 <= held_out_share < 1 and 0 <= selection_share < 1):
        raise ValueError("Shares must lie in [0, 1).")
    texts = sorted(
        {normalized(query) for query in queries}, key=lambda text: hashlib.sha256(f"{seed}\n{text}".encode()).digest()
    )
    _, selection, held_out = split_counts(
        len(texts),
        held_out_share=held_out_share,
        selection_share=selection_share,
        selection_least=selection_least,
    )
    side = dict.fromkeys(texts, "train")
    side.update(dict.fromkeys(texts[:held_out], "held_out"))
    side.update(dict.fromkeys(texts[held_out : held_out + selection], "selection"))
    members: dict[str, list[int]] = {"train": [], "selection": [], "held_out": []}
    for position, query in enumerate(queries):
        members[side[normalized(query)]].append(position)
    return SplitPositions(**members)


def split_counts(
    n: int,
    *,
    held_out_share: float = HELD_OUT_SHARE,
    selection_share: float = SELECTION_SHARE,
    selection_least: int = SELECTION_LEAST,
) -> tuple[int, int, int]:
    """Numbers of ``n`` distinct queries in (train, selection, held_out), for estimates.

    A dataset too small for ``selection_least`` by its share gives up to ``SELECTION_MOST`` of what is not held out.
    """
    held_out = _share(n, held_out_share, leave=2)
    rest = n - held_out
    selection = _share(rest, selection_share, leave=1)
    if selection_share > 0:
        selection = max(selection, min(selection_least, int(rest * SELECTION_MOST)))
    return n - held_out - selection, selection, held_out


def normalized(text: str) -> str:
    """The key by which two queries are the same text: case and white space are ignored."""
    return " ".join(text.split()).casefold()


def _share(n: int, share: float, *, leave: int) -> int:
    """round(n * share), at least 1 where the share is positive, but always leaving ``leave`` for the others."""
    wanted = max(round(n * share), 1) if share > 0 else 0
    return max(min(wanted, n - leave), 0)


def search_size(n_train: int, n_selection: int) -> int:
    """Number of training queries of a search: as many as the selection has, and at least 20 if available."""
    return min(n_train, max(n_selection, SELECTION_LEAST))
