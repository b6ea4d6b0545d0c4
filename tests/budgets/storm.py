"""64 concurrent spenders over three nested budgets, killed with -9 at random, while a reader checks the sums.

``python -m tests.budgets.storm FILE ROUNDS SEED CHAIN…`` is the mother: it forks 8 processes of 8 threads, each with a
connection of its own, and in each round kills one of them at random and forks another. ``storm`` runs it and checks.
The mother goes on after its rounds until its input is closed: on a busy machine some events take more rounds.
Most threads call the ledger themselves; two of each process are event loops whose calls go through ``DatabaseMeter``
and its group commit, as a worker's do.

What the provider would bill is written by the spender between reserve and settle into shared memory (FILE), which
survives kill -9: 64 slots by 3 chains of 8 bytes, each with one writer.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import random
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

PROCESSES, THREADS, CHAINS = 8, 8, 3
METERED = 2  # threads of a process that spend through the meter
AT_ONCE = 6  # calls at once in such a thread
CELLS = PROCESSES * THREADS * CHAINS
LEASE = 0.3  # seconds
BIGGEST = 2_000  # micro-dollars of one hold


# -- the spenders ------------------------------------------------------------------------------------------------------


def spend_for_ever(billed: mmap.mmap, slot: int, seed: int, chains: Sequence[Any]) -> None:
    """Reserve, call, settle; now and then twice, late, in batches, or not at all."""
    from budgets.ledger import Hold, Settlement, reserve_many, settle_many
    from budgets.meter_port import Bill

    dice = random.Random(seed)
    for n in range(10**9):
        which = dice.randrange(CHAINS)
        size = dice.choice([1, 1, 1, 5])
        holds = [Hold(f"{seed}-{n}-{one}", chains[which], dice.randint(1, BIGGEST), lease=LEASE) for one in range(size)]
        outcomes = reserve_many(holds)
        if dice.random() < 0.05:
            outcomes = [
                again if first.refusal is None else first
                for first, again in zip(outcomes, reserve_many(holds), strict=True)
            ]
        admitted = [hold for hold, outcome in zip(holds, outcomes, strict=True) if outcome.state == "held"]
        costs = [dice.randint(0, hold.amount_micros) for hold in admitted]
        at = 8 * (slot * CHAINS + which)
        struct.pack_into("q", billed, at, struct.unpack_from("q", billed, at)[0] + sum(costs))
        luck = dice.random()
        if luck < 0.01:
            continue  # an answer that got lost: no process settles
        if luck < 0.03:
            time.sleep(1.5 * LEASE)
        bills = [Settlement(hold.key, Bill(cost, None, "table")) for hold, cost in zip(admitted, costs, strict=True)]
        settle_many(bills)
        if luck > 0.95:
            settle_many(bills)


def spend_by_meter(billed: mmap.mmap, slot: int, seed: int, chains: Sequence[Any]) -> None:
    """The same through the meter; now and then a caller is cancelled while its hold is on the way."""
    from budgets.ledger.writer import LedgerWriter
    from budgets.meter_port import Bill, BudgetRefused, CallKey
    from budgets.metering.database_meter import DatabaseMeter

    async def spend(meters: Sequence[DatabaseMeter], dice: random.Random) -> None:
        for n in range(10**9):
            which, amount = dice.randrange(CHAINS), dice.randint(1, BIGGEST)
            call = CallKey(f"{seed}-{dice.random()}-{n}", "metered", "small")
            asking = asyncio.ensure_future(meters[which].reserve(call, amount))
            if dice.random() < 0.03:
                await asyncio.sleep(0)
                asking.cancel()
            try:
                await asking
            except (BudgetRefused, asyncio.CancelledError):
                continue
            cost = dice.randint(0, amount)
            at = 8 * (slot * CHAINS + which)
            struct.pack_into("q", billed, at, struct.unpack_from("q", billed, at)[0] + cost)
            luck = dice.random()
            if luck < 0.01:
                continue
            if luck < 0.03:
                await asyncio.sleep(1.5 * LEASE)
            await meters[which].settle(call, Bill(cost, None, "table"))

    async def main() -> None:
        writer = LedgerWriter()
        meters = [
            DatabaseMeter(
                organization_id=one.organization_id,
                agent_id=one.agent_id,
                job_id=one.job_id,
                lease=LEASE,
                writer=writer,
            )
            for one in chains
        ]
        await asyncio.gather(*(spend(meters, random.Random(seed * AT_ONCE + n)) for n in range(AT_ONCE)))

    asyncio.run(main())


def child(billed: mmap.mmap, place: int, seed: int, chains: Sequence[Any]) -> None:
    threads = [
        threading.Thread(
            target=spend_by_meter if thread < METERED else spend_for_ever,
            args=[billed, place * THREADS + thread, seed * THREADS + thread, chains],
            daemon=True,
        )
        for thread in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(1)


def mother(path: str, rounds: int, seed: int, texts: Sequence[str]) -> None:
    import django

    django.setup()
    from datetime import date

    from agentcore_site.lib import row_scope
    from budgets.ledger.accounts import Chain

    row_scope.outside(row_scope.EVERYTHING)

    def parsed(text: str) -> Chain:
        organization, agent, job, month, *budgets = [None if part == "-" else part for part in text.split(",")]
        ids = [None if one is None else int(one) for one in budgets]
        return Chain(UUID(organization), agent and UUID(agent), job and UUID(job), date.fromisoformat(str(month)), *ids)

    chains = [parsed(text) for text in texts]
    with open(path, "r+b") as file:
        billed = mmap.mmap(file.fileno(), 8 * CELLS)
    dice = random.Random(seed)
    born = seed * 10_000_000

    def fork(place: int) -> int:
        nonlocal born
        born += 1
        pid = os.fork()
        if pid == 0:
            child(billed, place, born, chains)
        return pid

    children = [fork(place) for place in range(PROCESSES)]
    n = 0
    while n < rounds or not select.select([sys.stdin], [], [], 0)[0]:
        n += 1
        time.sleep(dice.uniform(0.02, 0.2))
        place = dice.randrange(PROCESSES)
        os.kill(children[place], signal.SIGKILL)
        os.waitpid(children[place], 0)
        children[place] = fork(place)
        print(n, flush=True)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


# -- the checker -------------------------------------------------------------------------------------------------------


@dataclass
class Report:
    """The observations. ``wrong``: each check at which the books and the bills contradicted each other."""

    rounds: int = 0
    checks: int = 0
    moved: int = 0
    brim: int = 0  # checks at which less than one hold was left in a budget
    wrong: list[str] = field(default_factory=list)
    settled: int = 0
    metered: int = 0  # of those, what came through the meter
    charged: int = 0
    refunded: int = 0
    left_reserved: int = 0
    billed: int = 0
    spent: int = 0
    differences: list[str] = field(default_factory=list)
    errors: str = ""  # what a spender died of, other than a kill

    @property
    def was_one(self) -> bool:
        """True if calls came through, budgets were full, limits moved, holds expired and came back."""
        return min(self.settled, self.metered, self.charged, self.refunded, self.moved, self.brim) > 0


def storm(chains: Sequence[Any], owners: Sequence[Any], *, rounds: int, seed: int = 1) -> Report:
    """Runs the storm. ``chains``: of an organisation, with its agent, with its job; ``owners``: those three.
    ``rounds``: the least number of kills; up to three times as many, until each kind of event occurred."""
    from django.db import connection, connections

    from agentcore_site.lib.errors import Invalid
    from budgets.ledger import charge_expired
    from budgets.ledger.reconciliation import differences
    from budgets.models import Budget, LedgerEntry, Reservation
    from budgets.services import limit_change
    from tests.support.workers import environment

    report, dice = Report(), random.Random(seed)
    path = Path(tempfile.mkstemp(prefix="storm-")[1])
    path.write_bytes(bytes(8 * CELLS))
    with open(path, "r+b") as file:
        billed = mmap.mmap(file.fileno(), 8 * CELLS)
    budgets = [chain.budgets[-1] for chain in chains]

    def bills() -> list[int]:
        """Bills of the organisation, of its agent, of its job: each with those below it."""
        cells = struct.unpack(f"{CELLS}q", billed)
        by_chain = [sum(cells[chain::CHAINS]) for chain in range(CHAINS)]
        return [sum(by_chain[chain:]) for chain in range(CHAINS)]

    def check() -> None:
        paid = bills()  # before the books: a bill that comes in between is not yet in them
        rows = Budget.objects.in_bulk(budgets)
        report.checks += 1
        for key, bill in zip(budgets, paid, strict=True):
            row = rows[key]
            if row.limit_micros is None or row.spent_micros + row.reserved_micros > row.limit_micros or row.debt_micros:
                amounts = f"{row.spent_micros} + {row.reserved_micros} of {row.limit_micros}, debt {row.debt_micros}"
                report.wrong.append(f"{row.scope}: {amounts}")
            elif bill > row.spent_micros + row.reserved_micros:
                report.wrong.append(
                    f"{row.scope}: {bill} was billed, the books know {row.spent_micros} + {row.reserved_micros}"
                )
            report.brim += (
                row.limit_micros is not None and row.limit_micros - row.spent_micros - row.reserved_micros < BIGGEST
            )

    def move_one() -> None:
        """Another limit close above what is spent, or what was when we looked: then it is refused."""
        owner = dice.choice(owners)
        row = Budget.objects.get(owner_id=owner.id)
        with suppress(Invalid):
            limit_change(None, owner, row.spent_micros + row.reserved_micros + dice.randint(BIGGEST, 50 * BIGGEST))
            report.moved += 1

    texts = [",".join("-" if part is None else str(part) for part in astuple(chain)) for chain in chains]
    complaints = path.with_suffix(".log")
    with open(complaints, "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.budgets.storm", str(path), str(rounds), str(seed), *texts],
            env=environment() | {"DJANGO_SETTINGS_MODULE": "agentcore_site.settings"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )

    def watch() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            report.rounds = int(line)

    def count() -> None:
        report.settled = LedgerEntry.objects.filter(kind="settle").count()
        report.metered = LedgerEntry.objects.filter(kind="settle", purpose="metered").count()
        report.charged = LedgerEntry.objects.filter(kind="charge").count()
        report.refunded = Reservation.objects.filter(state="refunded").count()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        while process.poll() is None:
            check()
            if report.checks % 20 == 0:
                charge_expired(limit=dice.choice([3, 1000]))
            if report.checks % 10 == 0:
                move_one()
            if report.rounds >= rounds and process.stdin is not None and not process.stdin.closed:
                count()
                if report.was_one or report.rounds >= 3 * rounds:
                    process.stdin.close()
            time.sleep(0.005)
        watcher.join()
        # The server ends the sessions of the dead one by one; then one lease passes.
        until = time.monotonic() + 20
        while _others(connection) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(LEASE)
        while charge_expired():
            pass
        check()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        report.errors = complaints.read_text()
        path.unlink()
        complaints.unlink()
        connections["default"].close()
    rows = Budget.objects.in_bulk(budgets)
    report.left_reserved = sum(row.reserved_micros for row in rows.values())
    report.billed, report.spent = bills()[0], rows[budgets[0]].spent_micros
    count()
    report.differences = [str(one) for one in differences()]
    return report


def _others(connection: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return int(cursor.fetchone()[0])


if __name__ == "__main__":
    mother(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
