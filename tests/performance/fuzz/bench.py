"""``make bench ARGS="fuzz [requests] [interface …]"``: hostile requests at ``manage.py up`` with shipped settings.

Six callers (four roles of one organisation, the admin of another, a stranger) ask every interface. The demo trains
meanwhile. Prints the seed (``SEED=n`` asks the same again), one line for each part that a caller asked of an interface,
what was wrong, and the stack traces of the server's log. Only loopback is asked, from a data folder of its own; it ends
by itself. The limits are the shipped ones (6,000 requests a minute and key); answers of 429 are counted apart.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from agentcore_site.lib import row_scope
from tests.performance.fuzz.tally import Tally
from tests.performance.fuzz.world import Caller
from tests.support.up import Up

REQUESTS: Final = 50_000
AT_ONCE: Final = int(os.environ.get("FUZZ_PROCESSES", "3"))
# After it nothing more is begun, and the requests so far are reported.
LONGEST: Final = 60 * float(os.environ.get("FUZZ_MINUTES", "60"))
START_SECONDS: Final = 600.0  # until the demo's people are there; a busy machine migrates for minutes
MEND_SECONDS: Final = 5.0
SEED: Final = int(os.environ.get("SEED", 0)) or random.SystemRandom().randrange(1, 10**6)
PARTS: Final = 1_000  # at most, of an interface: each has a seed of its own
TRACE: Final = "Traceback (most recent call last)"
SHOWN: Final = 5  # stack traces
# Of all requests, by interface; the parts that take longest come last.
# A caller asks an interface in parts of about as many requests, each with a seed of its own; all callers have asked
# their first parts before any second one begins, so that a run that is cut short has asked everything.
PART: Final = 4_500
METHODS: Final = "methods"
SHARES: Final = {"sockets": 0.02, "rpc": 0.14, "admin": 0.1, "console": 0.2, "links": 0.12, "operations": 0.42}


def one(interface: str, base: str, caller: Caller, n: int, number: int) -> Tally:
    """One caller at one interface, in a process of its own."""
    from tests.performance.fuzz import pages, rest, rpc, sockets

    if interface in {"operations", "links", "methods"}:
        found: Callable[[], Tally] = getattr(rest.Rest(base, caller, n, number), interface)
        return found()
    interfaces_by_name = {"rpc": rpc.rpc, "console": pages.console, "admin": pages.admin, "sockets": sockets.sockets}
    return interfaces_by_name[interface](base, caller, n, number)


def tasks(base: str, callers: list[Caller], n: int, interfaces: list[str]) -> list[Callable[[], Tally]]:
    """``interfaces``: of ``SHARES``, and ``METHODS``, which alone are asked; none: all."""
    staff = [caller for caller in callers if caller.staff or not caller.key]
    found: list[tuple[int, Callable[[], Tally]]] = []
    if not interfaces or METHODS in interfaces:
        found += [(0, partial(one, METHODS, base, caller, 0, at)) for at, caller in enumerate(callers)]
    shares = {name: share for name, share in SHARES.items() if name in interfaces or not interfaces}
    for name, share in ((name, share / sum(shares.values())) for name, share in shares.items()):
        who = staff if name == "admin" else callers
        each = max(10, int(n * share / len(who)))
        parts = -(-each // PART)
        for number in range(parts * len(who)):
            part, at = divmod(number, len(who))
            found.append((part, partial(one, name, base, who[at], -(-each // parts), PARTS * SEED + number)))
    return [task for _, task in sorted(found, key=lambda pair: pair[0])]


def main(arguments: list[str]) -> int:
    """Raises:
    ValueError: the first argument is no number of requests."""
    n, interfaces = int(arguments[0]) if arguments else REQUESTS, arguments[1:]
    print(f"seed {SEED}")
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    folder.chmod(0o711)
    from agentcore_site.embedded.ports import free_port

    port = free_port(18_000)
    up = Up(folder / "data", "--port", str(port), "--workers", "1", "--demo", "--seed", "1")
    try:
        up.until("SELECT count(*) > 0 FROM auth_user WHERE username = 'olivia'", START_SECONDS)
        urls = up.urls()
        os.environ.update(
            DATABASE_URL=urls["database_url"],
            REDIS_URL=urls["redis_url"],
            DATA_DIR=str(up.data),
            DJANGO_SETTINGS_MODULE="agentcore_site.settings",
        )
        return asked(up, f"http://127.0.0.1:{port}", n, interfaces)
    finally:
        up.stop()
        shutil.rmtree(folder, ignore_errors=True)


def asked(up: Up, base: str, n: int, interfaces: list[str]) -> int:
    import django

    django.setup()
    row_scope.outside(row_scope.EVERYTHING)
    from tests.performance.fuzz import world

    callers, began, ended = world.make(), time.monotonic(), threading.Event()

    def mending() -> None:
        while not ended.wait(MEND_SECONDS):
            world.mend(callers)

    keeper = threading.Thread(target=mending, daemon=True)
    keeper.start()
    asking = tasks(base, callers, n, interfaces)
    tallies: list[Tally] = []
    with ProcessPoolExecutor(AT_ONCE, mp_context=get_context("spawn")) as pool:
        for tally in done([pool.submit(task) for task in asking]):
            tallies.append(tally)
            show(tally)
    ended.set()
    if len(tallies) < len(asking):
        print(f"The time was over: {len(tallies)} of {len(asking)} parts were asked.")
    return report(up, tallies, time.monotonic() - began)


def done(waiting: list[Future[Tally]]) -> Iterator[Tally]:
    """The results of the tasks, as they end. When the time is over, only of those that have begun."""
    over = threading.Timer(LONGEST, lambda: [task.cancel() for task in waiting])
    over.daemon = True
    over.start()
    for task in as_completed(waiting):
        if not task.cancelled():
            yield task.result()
    over.cancel()


def show(tally: Tally) -> None:
    """One line for what was asked, and the examples of what was wrong, as soon as they are known."""
    wrong = tally.wrong
    print(
        f"{tally.interface:22} {tally.caller:12} {tally.requests:6,} requests {wrong['5xx']:4} of 5xx"
        f" {wrong['undocumented']:4} undocumented {wrong['foreign']:3} foreign names {tally.limited:5,} of 429"
        f" {tally.unsent:4} not sent  {dict(sorted(tally.statuses.items()))}",
        flush=True,
    )
    for what, detail in tally.examples.items():
        print(f"    {what}\n        {detail}", flush=True)


def report(up: Up, tallies: list[Tally], seconds: float) -> int:
    from tests.performance.fuzz.show import table

    # The web server's alone: jobs are made of rows that no run left behind, and fail at them as they should.
    log = (up.data / "run" / "log" / "web.log").read_text(encoding="utf-8", errors="replace")
    traces = [line for line in log.splitlines() if TRACE in line]
    table(tallies, seconds, len(traces))
    for line in traces[:SHOWN]:
        print(line[-4_000:])
    return 1 if traces or any(sum(tally.wrong.values()) for tally in tallies) else 0
