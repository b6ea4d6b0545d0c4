"""A pytest plugin that starts real PostgreSQL and Valkey before Django's settings are read.

Loaded with ``-p tests.services``. With DATABASE_URL and REDIS_URL set, those are used. Each worker of pytest-xdist
starts services of its own: messages and counters of two workers must not meet in one broker. ``-m fast`` selects tests
that need neither (see ``tests.selection``), and starts nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from redis import Redis

from agentcore_site.embedded.stack import Stack
from tests.support import database_snapshot

# Linear algebra on one thread, as workers have it: with two, sums are added in another order, and runs that should be
# equal to the bit differ in the last one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The servers of the tests are on loopback, which `manage.py up` allows too.
os.environ.setdefault("OUTBOUND_ALLOW", "127.0.0.0/8,::1/128,localhost")

# Bytecode is kept, against the shell's setting: else each process compiles the product again, which takes a second,
# and pytest rewrites the asserts of all files of tests, which takes it twenty.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

FAST = "fast"  # the mark of tests that need no service
SERVICES = ("DATABASE_URL", "REDIS_URL")
folder = ""  # of this process's services; empty where it needs none
given: frozenset[str] = frozenset()  # the addresses that the tests were started with
stack: Stack | None = None  # what was started


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """Around pytest-django's own hook, which reads the settings and with them the addresses."""
    global given
    given = frozenset(name for name in SERVICES if os.environ.get(name))
    options = early_config.known_args_namespace
    # pytest's own process only hands out the tests to its workers.
    hands_out = bool(options.numprocesses) and "PYTEST_XDIST_WORKER" not in os.environ
    if not hands_out and given != frozenset(SERVICES):
        start(serving=options.markexpr != FAST)
    return (yield)


def start(*, serving: bool) -> None:
    """Makes a folder for the data of this process and, where ``serving``, starts in it what has no address yet."""
    global folder, stack
    folder = tempfile.mkdtemp(prefix="agentcore-tests-")
    os.chmod(folder, 0o711)  # the services' user must be able to walk in when we are root
    os.environ["DATA_DIR"] = folder
    if serving:
        # Tests' data need not survive a power cut.
        tuning = {"fsync": "off", "synchronous_commit": "off", "max_connections": "300"}
        stack = Stack(Path(folder), lambda message: None, tuning, any_port=True)
        if has_own_database():
            database_snapshot.restore(stack)
        os.environ.update({name.upper(): url for name, url in stack.start().items()})
        if "REDIS_URL" not in given:
            with Redis.from_url(os.environ["REDIS_URL"]) as client:
                client.config_set("appendfsync", "no")  # a slow disk would hold up a command for seconds
    # The test database is made and migrated by the owner; conftest goes on with the application's role.
    os.environ["DATABASE_AS_OWNER"] = "1"
    os.environ.setdefault("JOB_LEASE_SECONDS", "2")
    os.environ.setdefault("JOB_SWEEP_SECONDS", "1")
    os.environ.setdefault("LOG_LEVEL", "WARNING")


def has_own_database() -> bool:
    return "DATABASE_URL" not in given


def pytest_unconfigure() -> None:
    if stack is not None:
        stack.stop()
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
