"""Coding: reading a program, writing a regular expression, writing a query. Nothing that an agent wrote is run but in
engines with limits of their own: a regular expression with a deadline, and SQL on a table in memory that can only be
read."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable
from typing import Final

from experiences.rollouts.environments.safe_regex import SEARCH_SECONDS, compiled
from experiences.rollouts.environments.workbench.base import (
    FAMILIES,
    NAMES,
    TOWNS,
    Verdict,
    WorkTask,
    numbers_right,
)

FENCE: Final = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
LANGUAGE: Final = re.compile(r"\A(?:sql|sqlite|python|regex|re)\s*\n")
LONGEST_SQL: Final = 4_000
MOST_STEPS: Final = 2_000_000  # of SQLite's machine
MOST_ROWS: Final = 200


@FAMILIES.register("coding", "What a short Python program prints.")
def read_program(rng: random.Random) -> WorkTask:
    values = [rng.randint(1, 30) for _ in range(rng.randint(5, 8))]
    start, modulus, rest = rng.randint(0, 9), rng.randint(2, 4), rng.randint(0, 1)
    factor, offset, limit = rng.randint(2, 4), rng.randint(1, 6), rng.randint(60, 160)
    program = (
        "def f(xs):\n"
        f"    total = {start}\n"
        "    for i, x in enumerate(xs):\n"
        f"        if x % {modulus} == {rest}:\n"
        f"            total += x * {factor}\n"
        "        elif i % 2:\n"
        f"            total -= x - {offset}\n"
        "        else:\n"
        "            continue\n"
        f"        if total > {limit}:\n"
        f"            total //= 2\n"
        "    return total\n\n"
        f"print(f({values}))"
    )
    total = start
    for i, x in enumerate(values):
        if x % modulus == rest:
            total += x * factor
        elif i % 2:
            total -= x - offset
        else:
            continue
        if total > limit:
            total //= 2
    question = f"What does this Python program print? Answer with the number.\n\n{program}"
    return WorkTask(question, total, lambda answer: numbers_right(answer, total, 0))


@FAMILIES.register("coding", "A regular expression for a kind of code, tried on texts that were not shown.")
def write_regex(rng: random.Random) -> WorkTask:
    capitals, low, high = rng.randint(2, 4), rng.randint(2, 3), rng.randint(4, 6)
    mark, tail = rng.choice("-_#/:"), rng.choice("XZQK")

    def sample(n: int, digits: int, sign: str, end: str) -> str:
        letters = "".join(rng.choice("ABCDEFGHJLM") for _ in range(n))
        return f"{letters}{sign}{''.join(rng.choice('0123456789') for _ in range(digits))}{end}"

    good = [sample(capitals, rng.randint(low, high), mark, rng.choice(["", tail])) for _ in range(6)]
    good += [sample(capitals, low, mark, ""), sample(capitals, high, mark, tail)]
    bad = [
        sample(capitals - 1, low, mark, ""),
        sample(capitals + 1, low, mark, ""),
        sample(capitals, low - 1, mark, ""),
        sample(capitals, high + 1, mark, ""),
        sample(capitals, low, "+", ""),
        sample(capitals, low, mark, tail + tail),
        sample(capitals, low, mark, tail.lower()),
        sample(capitals, low, mark, "").lower(),
        f" {sample(capitals, low, mark, '')}",
        "",
    ]
    question = (
        f"Write one regular expression (Python's re) that matches the whole of a code and nothing else: exactly"
        f" {capitals} capital letters A to Z, then “{mark}”, then {low} to {high} digits, and after them, but not"
        f" always, one “{tail}”. Answer with the expression alone."
    )

    def check(answer: str) -> Verdict:
        pattern = _code(answer).strip("/")
        try:
            found = compiled(rf"\A(?:{pattern})\Z", case_sensitive=True)
            wrong = [one for one in good if not found(one, SEARCH_SECONDS)]
            wrong += [one for one in bad if found(one, SEARCH_SECONDS)]
        except Exception as error:  # not an expression, or one that takes too long
            return False, f"{type(error).__name__}: {error}"[:200]
        return not wrong, f"wrong about {wrong[0]!r}" if wrong else ""

    return WorkTask(question, rf"[A-Z]{{{capitals}}}{re.escape(mark)}\d{{{low},{high}}}{tail}?", check)


@FAMILIES.register("coding", "A query in SQL, tried on rows that were not shown as well.")
def write_sql(rng: random.Random) -> WorkTask:
    town, year, least = rng.choice(TOWNS[:5]), rng.randint(2021, 2024), rng.randint(20, 60)
    customers = rng.sample(NAMES, 6)
    kinds: dict[str, tuple[str, Callable[[list[int]], int]]] = {
        "the number of orders": ("COUNT(*)", len),
        "the sum of the amounts": ("SUM(amount)", sum),
        "the largest amount": ("MAX(amount)", max),
    }
    what = rng.choice(sorted(kinds))
    expression, figure = kinds[what]

    def rows(n: int) -> list[tuple[str, str, int, int]]:
        found = [
            (rng.choice(customers), rng.choice(TOWNS[:5]), rng.randint(2020, 2025), rng.randint(5, 120))
            for _ in range(n)
        ]
        return [*found, (customers[0], town, year, least), (customers[1], town, year, least + 9)]

    tables = [rows(10), rows(60)]
    shown = "\n".join(",".join(map(str, row)) for row in tables[0])
    question = (
        "A table orders(customer TEXT, town TEXT, year INTEGER, amount INTEGER) holds among others these rows:\n\n"
        f"{shown}\n\nWrite one SELECT for SQLite that gives, for each customer with orders from {town} in {year} of at"
        f" least {least}, the customer and {what} of these orders, sorted by customer. Answer with the query alone."
    )

    def wanted(table: list[tuple[str, str, int, int]]) -> list[tuple[str, int]]:
        by: dict[str, list[int]] = {}
        for customer, where, when, amount in table:
            if where == town and when == year and amount >= least:
                by.setdefault(customer, []).append(amount)
        return [(customer, figure(amounts)) for customer, amounts in sorted(by.items())]

    def check(answer: str) -> Verdict:
        for table in tables:
            try:
                if _selected(_code(answer), table) != wanted(table):
                    return False, "its rows are others"
            except (sqlite3.Error, ValueError) as error:
                return False, f"{type(error).__name__}: {error}"[:200]
        return True, ""

    right = (
        f"SELECT customer, {expression} FROM orders WHERE town = '{town}' AND year = {year} AND amount >= {least}"
        " GROUP BY customer ORDER BY customer"
    )
    return WorkTask(question, right, check)


def _code(answer: str) -> str:
    """The content of the last block of code, or all text. A block without its outer marks begins with the name of its
    language."""
    blocks = FENCE.findall(answer)
    return LANGUAGE.sub("", (blocks[-1] if blocks else answer).strip().strip("`").strip())


def _selected(query: str, table: list[tuple[str, str, int, int]]) -> list[tuple[object, ...]]:
    """The rows that a query gives.

    Raises:
        ValueError, sqlite3.Error: it is too long, no query, wants more than to read, or takes too long.
    """
    if len(query) > LONGEST_SQL:
        raise ValueError(f"longer than {LONGEST_SQL} characters")
    steps = 0

    def step() -> bool:
        nonlocal steps
        steps += 10_000
        return steps > MOST_STEPS

    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE TABLE orders(customer TEXT, town TEXT, year INTEGER, amount INTEGER)")
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", table)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
        connection.set_authorizer(_reads_only)
        connection.set_progress_handler(step, 10_000)
        return [tuple(row) for row in connection.execute(query).fetchmany(MOST_ROWS)]
    finally:
        connection.close()


def _reads_only(action: int, *_: object) -> int:
    reading = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if action in reading else sqlite3.SQLITE_DENY
