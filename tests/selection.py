"""The tests that are ``fast``: chosen by their fixtures, so that no list is kept by hand.

A test is ``fast`` if it asks for no database, no broker and no browser, starts no product process, and is not marked
as ``slow``. Asking is by fixture (``db``, ``broker`` and fixtures built on them) or by the mark ``django_db``. A
fast test that uses the database all the same fails: pytest-django blocks it.
"""

from __future__ import annotations

import math
import os
import random
import re
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from tests.services import FAST

ASKING_FIXTURES: Final = frozenset({"db", "transactional_db", "django_db_setup", "broker", "services", "own_services"})
HEAVY_FIXTURES: Final = {"chdb": "ClickHouse takes 15 s to load in each process"}
ALONE: Final = "pytest.mark.alone"
ALL_THOROUGH: Final = re.compile(r"^pytestmark = (.*|\[\n(    .*\n)*?    )pytest\.mark\.thorough\(", re.MULTILINE)
UNTIL: Final = float(os.environ.get("TESTS_UNTIL") or "inf")  # seconds of the epoch
REAL: Final = re.compile(r"\b(browser|program|service|site|ClickHouse)s?\b")  # in the reason of a thorough test
ASKING_MARKS: Final = frozenset({"django_db", "slow", "thorough", "alone", "bench"})


def is_fast(item: pytest.Item) -> bool:
    """True if the test needs only its own process, and little time."""
    if any(item.get_closest_marker(name) for name in ASKING_MARKS):
        return False
    return ASKING_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


def may_wait(item: pytest.Item) -> bool:
    """True if the test needs no other program: it repeats what `make test` shows with more cases, seeds or moments."""
    if (thorough := item.get_closest_marker("thorough")) is None:
        return item.get_closest_marker("rounds") is not None
    return REAL.search(thorough.kwargs["reason"]) is None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out a file whose tests are all thorough where none of those runs: to import it would be in vain."""
    leaves_out = config.option.markexpr == FAST or "not thorough" in config.option.markexpr
    if leaves_out and collection_path.match("test_*.py"):
        return ALL_THOROUGH.search(collection_path.read_text(encoding="utf-8")) is not None or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leaves a test out that may wait, where the time of CI is over."""
    if time.time() > UNTIL and may_wait(item):
        pytest.skip("TESTS_UNTIL is over; `make test-all` runs all of them")


@pytest.hookimpl(wrapper=True)  # before pytest-django sorts, and before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    if math.isfinite(UNTIL):  # which files are left out is chance, the same in all processes
        rng = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID"))
        rank = {path: rng.random() for path in dict.fromkeys(item.path for item in items)}
        items.sort(key=lambda item: rank[item.path])
    for item in items:
        for name in HEAVY_FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.thorough(reason=HEAVY_FIXTURES[name]))
        if may_wait(item):
            item.add_marker(pytest.mark.waits)
        if is_fast(item):
            item.add_marker(FAST)
        elif item.get_closest_marker("alone") and ALONE not in item.path.read_text(encoding="utf-8"):
            raise pytest.UsageError(f"{item.nodeid}: `.ci/tests` finds files of such tests by the words {ALONE}")
    return (yield)
