"""A pytest plugin that starts real PostgreSQL and Valkey before Django's settings are read.

Loaded with ``-p tests.services`` (pytest-django reads settings before any conftest.py). With DATABASE_URL and
REDIS_URL set, those are used. Each worker of pytest-xdist starts services of its own: messages and counters of two
workers must not meet in one broker.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

# Linear algebra on one thread, as workers have it: with two, sums are added in another order, and runs that should be
# equal to the bit differ in the last one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The servers of the tests are on loopback, which `manage.py up` allows too.
os.environ.setdefault("OUTBOUND_ALLOW", "127.0.0.0/8,::1/128,localhost")

folder = ""
_stack = None

# Set by this module in pytest's own process, for the workers that it starts: the addresses that are of its services
# and not of given ones. A worker that kept them would share its broker with all others.
OWN = "TEST_SERVICES_ARE_OUR_OWN"
for _name in os.environ.get(OWN, "").split():
    os.environ.pop(_name, None)

if not (os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL")):
    from agentcore_site.embedded.stack import Stack

    _database = [] if os.environ.get("DATABASE_URL") else ["DATABASE_URL", "DATABASE_OWNER_URL"]
    os.environ[OWN] = " ".join(_database + ([] if os.environ.get("REDIS_URL") else ["REDIS_URL"]))
    folder = tempfile.mkdtemp(prefix="agentcore-tests-")
    os.chmod(folder, 0o711)  # the services' user must be able to walk in when we are root
    os.environ["DATA_DIR"] = folder
    # Nobody needs a test's data after a power cut.
    _stack = Stack(
        Path(folder),
        lambda message: None,
        {"fsync": "off", "synchronous_commit": "off", "max_connections": "300"},
        any_port=True,
    )
    os.environ.update({name.upper(): url for name, url in _stack.start().items()})
    # The test database is made and migrated by the owner; conftest goes on with the application's role.
    os.environ["DATABASE_AS_OWNER"] = "1"
    os.environ.setdefault("JOB_LEASE_SECONDS", "2")
    os.environ.setdefault("JOB_SWEEP_SECONDS", "1")
    os.environ.setdefault("LOG_LEVEL", "WARNING")


def pytest_unconfigure() -> None:
    if _stack is not None:
        _stack.stop()
        shutil.rmtree(folder, ignore_errors=True)
