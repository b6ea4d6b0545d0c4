"""Tool use: work at a desk whose state has to be right in the end, with nothing changed that was not to be."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

from experiences.rollouts.environments.workbench.base import (
    FAMILIES,
    NAMES,
    TOWNS,
    Verdict,
    WorkTask,
    WorkTool,
    numbers_right,
)

DAY: Final = range(9 * 60, 17 * 60)  # minutes of a working day


@dataclass(frozen=True)
class OrderDesk:
    """Orders by number, with the tools that read and change them."""

    orders: dict[str, dict[str, Any]]

    def _of(self, key: str) -> dict[str, Any]:
        if key not in self.orders:
            raise ValueError(f"there is no order {key[:20]!r}")
        return self.orders[key]

    def find(self, customer: str) -> str:
        found = [key for key, one in self.orders.items() if str(one["customer"]).casefold() == customer.casefold()]
        return ", ".join(found) or "no orders"

    def show(self, order: str) -> str:
        one = self._of(order)
        return f"order {order}: {one['customer']}, to {one['town']}, {one['amount']} euros, {one['state']}"

    def cancel(self, order: str) -> str:
        if self._of(order)["state"] != "open":
            raise ValueError(f"order {order} is {self._of(order)['state']} and can't be cancelled")
        self._of(order)["state"] = "cancelled"
        return f"order {order} is cancelled"

    def send_to(self, order: str, town: str) -> str:
        if self._of(order)["state"] != "open":
            raise ValueError(f"order {order} is {self._of(order)['state']} and can't be changed")
        self._of(order)["town"] = town
        return f"order {order} goes to {town}"

    def tools(self) -> list[WorkTool]:
        number = {"order": "its number"}
        return [
            WorkTool("find_orders", "Numbers of a customer's orders.", {"customer": "first name"}, self.find),
            WorkTool("show_order", "Reads an order.", number, self.show),
            WorkTool("cancel_order", "Cancels an open order.", number, self.cancel),
            WorkTool(
                "change_town", "Sends an open order to another town.", {**number, "town": "where to"}, self.send_to
            ),
        ]


@FAMILIES.register(
    "tool-use", "Orders of a customer are found, cancelled by a rule and sent elsewhere.", uses_tools=True
)
def order_desk(rng: random.Random) -> WorkTask:
    names, towns = rng.sample(NAMES, 5), rng.sample(TOWNS, 6)
    keys = rng.sample(range(1000, 10_000), 15)
    orders: dict[str, dict[str, Any]] = {
        str(keys[3 * i + j]): {
            "customer": name,
            "town": towns[i],
            "amount": rng.randint(10, 90),
            "state": rng.choice(["open", "open", "sent"]),
        }
        for i, name in enumerate(names)
        for j in range(3)
    }
    who, goal, limit = names[0], towns[5], rng.randint(30, 60)
    mine = {key: one for key, one in orders.items() if one["customer"] == who and one["state"] == "open"}
    gone = sorted(key for key, one in mine.items() if one["amount"] > limit)
    wanted = {key: dict(one) for key, one in orders.items()}
    for key in mine:
        wanted[key] |= {"state": "cancelled"} if key in gone else {"town": goal}

    def check(answer: str) -> Verdict:
        if orders != wanted:
            other = next(key for key in orders if orders[key] != wanted[key])
            return False, f"order {other} is not as it was to be"
        return numbers_right(answer, len(gone), 0)

    question = (
        f"{who} has moved to {goal}. Cancel {who}'s open orders of more than {limit} euros, and send the"
        f" other open ones to {goal}. Change nothing else. Answer with the number of orders that you cancelled."
    )
    return WorkTask(question, f"{len(gone)} cancelled: {', '.join(gone) or 'none'}", check, OrderDesk(orders).tools())


@FAMILIES.register("tool-use", "The first time at which two people are free is found and booked.", uses_tools=True)
def calendar_desk(rng: random.Random) -> WorkTask:
    people = rng.sample(NAMES, 4)
    busy = {name: _meetings(rng) for name in people}
    a, b, minutes = people[0], people[1], rng.choice([30, 45, 60])
    first = _first_free([*busy[a], *busy[b]], minutes)
    booked: list[tuple[str, str, str, str]] = []

    def read(person: str) -> str:
        name = next((one for one in busy if one.casefold() == person.casefold()), None)
        if name is None:
            raise ValueError(f"there is no calendar of {person[:20]!r}")
        return ", ".join(f"{_clock(start)}-{_clock(end)}" for start, end in sorted(busy[name]))

    def book(first: str, second: str, start: str, end: str) -> str:
        booked.append((first, second, start, end))
        return f"booked {first} and {second} from {start} to {end}"

    right = (_clock(first), _clock(first + minutes))

    def check(answer: str) -> Verdict:
        if len(booked) != 1:
            return False, f"{len(booked)} meetings were booked"
        one, two, *times = booked[0]
        if {one.casefold(), two.casefold()} != {a.casefold(), b.casefold()} or tuple(times) != right:
            return False, f"expected {right[0]} to {right[1]} for {a} and {b}"
        return right[0] in answer, "" if right[0] in answer else f"expected {right[0]} in the answer"

    question = (
        f"Book a meeting of {minutes} minutes for {a} and {b}, at the first time today at which both are free, between"
        " 09:00 and 17:00. Book it once. Answer with the time at which it begins, as in 09:15."
    )
    times = {"start": "as in 09:15", "end": "as in 10:00"}
    tools = [
        WorkTool("read_calendar", "When a person has meetings today.", {"person": "first name"}, read),
        WorkTool("book_meeting", "Books two people.", {"first": "a name", "second": "a name", **times}, book),
    ]
    return WorkTask(question, right[0], check, tools)


def _meetings(rng: random.Random) -> list[tuple[int, int]]:
    starts = rng.sample(range(DAY.start, DAY.stop - 150, 15), 4)
    return [(start, start + rng.choice([30, 45, 60, 75])) for start in starts]


def _first_free(busy: list[tuple[int, int]], minutes: int) -> int:
    """The last two hours of a day are free at least in part: no meeting begins there."""
    return next(
        start
        for start in range(DAY.start, DAY.stop - minutes + 1, 5)
        if all(start + minutes <= began or start >= ended for began, ended in busy)
    )


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"
