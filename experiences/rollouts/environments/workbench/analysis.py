"""Analysis: figures of a table, and its outliers."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

from experiences.rollouts.environments.workbench.base import FAMILIES, TOWNS, WorkTask, numbers_right, words_right

CENT: Final = 0.011
MONTHS: Final = ("January", "February", "March", "April", "May", "June")


class Sale(NamedTuple):
    town: str
    month: str
    units: int
    price: float

    @property
    def revenue(self) -> float:
        return self.units * self.price


def _sales(rng: random.Random) -> list[Sale]:
    towns = rng.sample(TOWNS, 3)
    return [Sale(town, month, rng.randint(3, 60), rng.randint(200, 1_900) / 100) for town in towns for month in MONTHS]


def _table(sales: list[Sale]) -> str:
    return "town,month,units,price\n" + "\n".join(f"{s.town},{s.month},{s.units},{s.price:.2f}" for s in sales)


@FAMILIES.register("analysis", "A figure of a table of sales.")
def table_figure(rng: random.Random) -> WorkTask:
    sales = _sales(rng)
    town, month = rng.choice(sales).town, rng.choice(MONTHS)
    own = [sale for sale in sales if sale.town == town]
    kinds: list[tuple[str, Callable[[], float]]] = [
        (
            f"What is the revenue (units times price) of {town} in all months together?",
            lambda: sum(s.revenue for s in own),
        ),
        (f"What is the median of the units of {town}?", lambda: statistics.median(s.units for s in own)),
        (
            f"Which share of all units of {month} was sold in {town}, in percent?",
            lambda: (
                100 * sum(s.units for s in own if s.month == month) / sum(s.units for s in sales if s.month == month)
            ),
        ),
        (
            f"What is the mean price of a unit sold in {month} (weighted by units)?",
            lambda: sum(s.revenue for s in sales if s.month == month) / sum(s.units for s in sales if s.month == month),
        ),
    ]
    asked, figure = rng.choice(kinds)
    right = round(figure(), 2)
    question = f"{_table(rng.sample(sales, len(sales)))}\n\n{asked} Answer with a number, to two decimals."
    return WorkTask(question, right, lambda answer: numbers_right(answer, right, CENT))


@FAMILIES.register("analysis", "Which month or town is an outlier by a rule, in a table that is not sorted.")
def table_extreme(rng: random.Random) -> WorkTask:
    sales = _sales(rng)
    by_town: dict[str, list[Sale]] = {}
    for sale in sales:
        by_town.setdefault(sale.town, []).append(sale)
    if rng.random() < 0.5:
        town = rng.choice(list(by_town))
        own = by_town[town]  # in the order of months
        growth = {after.month: after.units - before.units for before, after in pairwise(own)}
        best = max(growth.values())
        right = min((month for month, value in growth.items() if value == best), key=MONTHS.index)
        asked = (
            f"In which month did the units of {town} grow most over the month before (the earlier month, if two did"
            " alike)? Answer with the month."
        )
    else:
        spread = {town: statistics.pstdev(s.units for s in own) for town, own in by_town.items()}
        right = max(spread, key=lambda town: spread[town])
        asked = "In which town do the units vary most from month to month (largest standard deviation)? Answer with it."
    question = f"{_table(rng.sample(sales, len(sales)))}\n\n{asked}"
    return WorkTask(question, right, lambda answer: words_right(answer, right))
