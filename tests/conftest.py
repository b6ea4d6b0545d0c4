"""People and places that the tests share."""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.db import connection
from django.test import TransactionTestCase
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis
from redis import Redis

from agentcore_site import env
from agentcore_site.lib import gc_freeze, row_scope
from agentcore_site.lib.broker import _away_until
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.roles import Role
from experiences.models import Agent
from experiences.trajectories.storage import _known_partitions
from tests import factories, services
from tests.support import database_snapshot, emptying, owner, static_files
from tests.support.warm_start import WarmStart
from tests.support.workers import Fleet, LiveSite, live_site_running

# The first input of a process that Hypothesis makes takes seconds: it reads the constants of all our modules. No input
# has a limit of time: a machine that is busy, or that removes the probes of coverage, is no defect of the code.
hypothesis.register_profile("ours", suppress_health_check=[HealthCheck.too_slow], deadline=None)
hypothesis.load_profile("ours")
# A password is checked in a third of a second on purpose. The number of rounds is part of each hash: other processes of
# the product, which have the shipped number, accept the hashes of these people too.
PBKDF2PasswordHasher.iterations = 1_000


def pytest_collection_finish() -> None:
    """Objects that are loaded by now stay to the end, so the collector skips them, as in a worker."""
    gc_freeze.settle()
    static_files.read_once()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> None:
    if services.has_own_database():
        connection.settings_dict["TEST"]["NAME"] = database_snapshot.NAME


@pytest.fixture(scope="session")
def django_db_keepdb(django_db_keepdb: bool) -> bool:
    """A database that was copied is kept, and migrated by what is new; with the server it goes."""
    return django_db_keepdb or services.has_own_database()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Tests run with the application's role, as web and workers do. Between transactional tests the tables are emptied,
    which what is append-only refuses; only here it may be."""
    if services.stack is not None and services.has_own_database() and not database_snapshot.is_copy:
        database_snapshot.keep(services.stack, os.environ["DATABASE_OWNER_URL"])
    with django_db_blocker.unblock():
        with connection.cursor() as cursor:
            cursor.execute("SELECT tgrelid::regclass FROM pg_trigger WHERE tgname = 'no_truncate'")
            for (table,) in cursor.fetchall():
                cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER no_truncate")
            owner.share_with_application(cursor)
        owner.leave()
    row_scope.outside(row_scope.EVERYTHING)  # a test looks at what it likes; requests and jobs see their own
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", emptying.empty)
        yield
    owner.come_back()


@pytest.fixture(name="services")
def services_asked_for() -> None:
    """The servers themselves, for a test that makes databases of its own on them."""


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seeds Python's own random numbers. A test that fails shows its seed, and ``SEED=n`` plays the test again."""
    seed = int(os.environ.get("SEED") or secrets.randbelow(2**32))
    print(f"SEED={seed}")
    random.seed(seed)


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    """An earlier test may have found the broker away, which the product remembers for two seconds. Or it may have run
    the callbacks of a commit with a new partition, which its end undid."""
    _away_until.clear()
    _known_partitions.clear()


@pytest.fixture
def broker() -> Iterator[Redis]:
    """The real broker, for a test that uses it and asks for no database."""
    with Redis.from_url(settings.REDIS_URL) as client:
        yield client


@pytest.fixture
def acme(db: None) -> Organization:
    return factories.OrganizationFactory(name="Acme Research", slug="acme")


@pytest.fixture
def elsewhere(db: None) -> Organization:
    return factories.OrganizationFactory(name="Elsewhere Ltd", slug="elsewhere")


def _person(name: str, organization: Organization, role: str, **extra: Any) -> Any:
    user = factories.UserFactory(username=name, **extra)
    factories.MembershipFactory(organization=organization, user=user, role=role, can_export=role == Role.DEVELOPER)
    return user


@pytest.fixture
def olivia(acme: Organization) -> Any:
    return _person("olivia", acme, Role.OPERATOR)


@pytest.fixture
def dan(acme: Organization) -> Any:
    return _person("dan", acme, Role.DEVELOPER)


@pytest.fixture
def adam(acme: Organization) -> Any:
    return _person("adam", acme, Role.ADMIN, is_staff=True, is_superuser=True)


@pytest.fixture
def stella(acme: Organization) -> Any:
    return _person("stella", acme, Role.STAKEHOLDER)


@pytest.fixture
def charlie(elsewhere: Organization) -> Any:
    return _person("charlie", elsewhere, Role.OPERATOR)


@pytest.fixture
def operator(olivia: Any) -> Actor:
    return Actor(olivia, interface="test")


@pytest.fixture
def agent(acme: Organization, olivia: Any) -> Agent:
    return factories.AgentFactory(organization=acme, created_by=olivia)


@pytest.fixture(scope="session")
def warm_start() -> Iterator[WarmStart]:
    result = WarmStart(str(env.ROOT))
    yield result
    result.end()


@pytest.fixture
def fleet(transactional_db: None, warm_start: WarmStart) -> Iterator[Fleet]:
    """Real worker processes on the test's database and broker; started by the test, ended with it."""
    running = Fleet(warm_start)
    yield running
    running.stop()


@pytest.fixture
def live_site(transactional_db: None, warm_start: WarmStart) -> Iterator[LiveSite]:
    """The real server and a real worker on the test's database."""
    with live_site_running(warm_start) as site:
        yield site
