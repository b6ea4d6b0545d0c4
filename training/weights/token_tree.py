"""Rows of tokens as trees: tokens with which several rows begin are in a tree once.

A model computes a tree as one row, behind a mask by which a token sees its own row only. Siblings of one prompt and the
turns of one conversation share that way what they begin with, and each log-probability is that of the plain row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from training.algorithm.arrays import BoolArray, IntArray


@dataclass(slots=True)
class TokenTree:
    """``ids``, ``depth`` and ``parent`` (-1: none) of N nodes. ``rows`` are numbers of rows, and ``paths`` the nodes of
    each, in order. A node's ancestors come before it."""

    ids: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    paths: list[IntArray] = field(default_factory=list)
    _blocks: list[tuple[IntArray, int, int]] = field(default_factory=list)  # ancestors, first and last node

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def branches(self) -> bool:
        """True if the tree needs a mask: a row goes on elsewhere than behind all nodes."""
        return any(len(ancestors) != first for ancestors, first, _ in self._blocks)

    def add(self, number: int, row: Sequence[int], shared: int) -> None:
        """Adds a row, whose first ``shared`` tokens are those of the row that was added before."""
        first, last = len(self.ids), len(self.ids) + len(row) - shared
        ancestors = self.paths[-1][:shared] if shared else np.zeros(0, np.int64)
        path = np.concatenate([ancestors, np.arange(first, last)])
        self.ids += row[shared:]
        self.depth += range(shared, len(row))
        self.parent += [int(path[at - 1]) if at else -1 for at in range(shared, len(row))]
        self.rows.append(number)
        self.paths.append(path)
        if last > first:
            self._blocks.append((ancestors, first, last))

    def mask(self) -> BoolArray:
        """(N, N): whether the node of a row of it sees the node of a column, which is itself or an ancestor."""
        seen = np.zeros((len(self), len(self)), np.bool_)
        for ancestors, first, last in self._blocks:
            seen[first:last, ancestors] = True
            seen[first:last, first:last] = np.tri(last - first, dtype=np.bool_)
        return seen


def trees_of(rows: Sequence[Sequence[int]], *, most: int, linear: float) -> Iterator[TokenTree]:
    """All rows, in trees of at most ``most`` nodes; a longer row has a tree of its own.

    A row joins where that saves work. ``linear``: how many pairs of query and key cost as much as a token does in all
    that isn't attention; a mask hides pairs and does not save them. With 0 no tree branches.
    """
    tree, before = TokenTree(), list[int]()
    for number in sorted(range(len(rows)), key=lambda one: tuple(rows[one])):
        row = list(rows[number])
        shared = _shared(before, row)
        size, whole = len(tree), len(tree) + len(row) - shared
        hidden_pairs = whole**2 - size**2 - len(row) ** 2
        pays = shared == size or (linear > 0 and hidden_pairs < shared * linear)
        if tree.rows and not (shared and (whole == size or (pays and whole <= most))):
            yield tree
            tree, shared = TokenTree(), 0
        tree.add(number, row, shared)
        before = row
    if tree.rows:
        yield tree


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def batches_of(trees: Sequence[TokenTree], most: int) -> Iterator[list[TokenTree]]:
    """Trees of like length together, at most ``most`` nodes with their padding."""
    batch: list[TokenTree] = []
    for tree in sorted(trees, key=len, reverse=True):
        if batch and len(batch[0]) * (len(batch) + 1) > most:
            yield batch
            batch = []
        batch.append(tree)
    if batch:
        yield batch
