"""Effect of each playbook item where it applies: the same on all executions, or only where one word is in the input.

An item that says what to do with one kind of request adds nothing to the others, and one number over all of them
averages it away. Model, over executions i whose context drew each item with a known probability:
y_i = baseline(words of i) + sum_l (z_il - P(z_il = 1)) b_l x_h(l)(i) + noise, where x is 1 everywhere or 1 where word h
is in the input. The posterior is a sum of single effects (Wang et al. 2020): one item after the other is fitted to
what the others leave, over all words and sizes of effects. Where nothing speaks for a word, one effect is left.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

SIZES: Final = (0.1, 0.25, 0.5, 1.0)  # standard deviations of effects, in units of that of outcomes
EVERYWHERE: Final = 0.4  # prior probability that an effect holds everywhere
NAMED: Final = 0.5  # prior probability of the words of the item's own text, where inputs have any of them
MOST_WORDS: Final = 200
FEWEST_WITH: Final = 5  # executions that a word has to be in, and not in
LONGEST: Final = 4_000  # characters of an input that are read
SWEEPS: Final = 8
CLOSE: Final = 1e-3  # change of an effect below which the sweeps end
BASELINE: Final = 5.0  # executions that the prior of a word's share of successes counts for
LEAST_NOISE: Final = 1e-3
_WORD = re.compile(r"[^\W\d_]{2,}")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DrawnExecution:
    """One execution with a drawn context. ``offered`` are the items that the draw could leave out, each with
    probability ``rate``, and ``included`` those that it left in."""

    words: frozenset[str]
    success: bool
    rate: float
    offered: frozenset[str]
    included: frozenset[str]


@dataclass(frozen=True, slots=True)
class Expected:
    """Posterior of an item's mean effect on the share of successes, over the executions that were read."""

    mean: float
    deviation: float


def words_of(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(_WORD.findall(" ".join(texts)[:LONGEST].casefold()))


def expected_effects(trials: Sequence[DrawnExecution], items: Mapping[str, str]) -> dict[str, Expected]:
    """Of each item, by its id; ``items`` has their texts. Empty without executions."""
    if not trials or not items:
        return {}
    names, found = _features([trial.words for trial in trials])
    outcome = np.array([trial.success for trial in trials], dtype=np.float64)
    left = _residuals(found, outcome)
    design = np.hstack([np.ones((len(trials), 1)), found])
    mean, second = _posterior(_contrasts(trials, list(items)), left, design, _priors(items, names))
    share = design.mean(axis=0)
    means, seconds = mean @ share, second @ share**2
    deviations = np.sqrt(np.maximum(seconds - means**2, 0.0))
    return {
        item: Expected(float(one), float(deviation))
        for item, one, deviation in zip(items, means, deviations, strict=True)
    }


def _features(inputs: Sequence[frozenset[str]]) -> tuple[list[frozenset[str]], Floats]:
    """The words that distinguish inputs, the most frequent first, and (n, F): 1 where an input has them. Words that
    always occur together are one feature."""
    places: dict[str, list[int]] = defaultdict(list)
    for at, words in enumerate(inputs):
        for word in words:
            places[word].append(at)
    together: dict[tuple[int, ...], set[str]] = defaultdict(set)
    for word, where in places.items():
        if FEWEST_WITH <= len(where) <= len(inputs) - FEWEST_WITH:
            together[tuple(where)].add(word)
    kept = sorted(together.items(), key=lambda one: (-len(one[0]), one[0]))[:MOST_WORDS]
    found = np.zeros((len(inputs), len(kept)))
    for at, (executions, _) in enumerate(kept):
        found[list(executions), at] = 1.0
    return [frozenset(words) for _, words in kept], found


def _residuals(found: Floats, outcome: Floats) -> Floats:
    """The part of each outcome that words of the input alone do not explain, predicted from all other executions (ridge
    regression, whose residuals without the execution itself are e / (1 - h))."""
    away = found - found.mean(axis=0)
    ridge = np.linalg.inv(away.T @ away + BASELINE * np.eye(found.shape[1]))
    hat = np.einsum("nf,fg,ng->n", away, ridge, away) + 1 / len(outcome)
    centred = outcome - outcome.mean()
    left: Floats = (centred - away @ (ridge @ (away.T @ centred))) / np.maximum(1 - hat, 0.1)
    return left


def _contrasts(trials: Sequence[DrawnExecution], items: Sequence[str]) -> Floats:
    """(n, K): inclusion less its probability; 0 where an item was not offered, which says nothing of it."""
    return np.array(
        [
            [((item in trial.included) - (1 - trial.rate)) if item in trial.offered else 0.0 for item in items]
            for trial in trials
        ]
    )


def _priors(items: Mapping[str, str], names: Sequence[frozenset[str]]) -> Floats:
    """(K, 1 + F): the prior probability of each hypothesis, the general one first."""
    prior = np.zeros((len(items), 1 + len(names)))
    for row, text in zip(prior, items.values(), strict=True):
        own = words_of([text])
        named = np.array([not own.isdisjoint(words) for words in names], dtype=np.float64)
        given = NAMED if named.any() else 0.0
        row[0] = EVERYWHERE if len(names) else 1.0
        row[1:] = given * named / max(named.sum(), 1.0) + (1 - EVERYWHERE - given) / max(len(names), 1)
    return prior


def _posterior(contrast: Floats, left: Floats, design: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """First and second moments (K, 1 + F) of the single effects."""
    noise = max(float(left.var()), LEAST_NOISE)
    information = ((contrast**2).T @ design)[:, :, None]
    sizes = noise * np.array(SIZES) ** 2
    variance = 1 / (information / noise + 1 / sizes)  # (K, 1 + F, sizes)
    before = np.log(prior)[:, :, None] + 0.5 * np.log(variance / sizes)
    mean, second, fitted = np.zeros(prior.shape), np.zeros(prior.shape), np.zeros(contrast.shape)
    total = np.zeros(len(left))  # of all items
    for _ in range(SWEEPS):
        moved = 0.0
        for at in range(len(prior)):
            last = fitted[:, at].copy()
            rest = left - total + last
            found = variance[at] * ((contrast[:, at] * rest) @ design / noise)[:, None]
            weight = before[at] + 0.5 * found**2 / variance[at]
            weight = np.exp(weight - weight.max())
            weight /= weight.sum()
            mean[at] = (weight * found).sum(axis=1)
            second[at] = (weight * (variance[at] + found**2)).sum(axis=1)
            fitted[:, at] = contrast[:, at] * (design @ mean[at])
            total += fitted[:, at] - last
            moved = max(moved, float(np.abs(fitted[:, at] - last).max(initial=0.0)))
        if moved < CLOSE:
            break
    return mean, second
