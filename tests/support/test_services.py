"""The tests' own services."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import ProgrammingError
from redis import Redis

from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit.services import record
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Membership
from tests import services
from tests.support import emptying


@pytest.mark.skipif(services.given == frozenset(services.SERVICES), reason="services were given")
def test_each_process_of_the_tests_has_services_of_its_own(broker: Redis) -> None:
    # With one broker for two, the messages that one process counts are taken away by the other one's clean-up.
    secrets = Path(services.folder) / "secrets"
    passwords = {"REDIS_URL": ("REDIS_URL", "valkey"), "DATABASE_URL": ("DATABASE_OWNER_URL", "postgres")}
    for name, program in (passwords[service] for service in services.SERVICES if service not in services.given):
        assert (secrets / f"{program}_password").read_text(encoding="utf-8").strip() in os.environ[name], name


@pytest.mark.django_db(transaction=True)
def test_between_two_tests_every_row_goes_but_those_that_migrations_made(olivia: Any, operator: Actor) -> None:
    """Also what is append-only, and a table that has grown large."""
    made = Permission.objects.count()
    record(operator, "agent.changed", operator.user)
    User.objects.bulk_create(User(username=f"person {n}", first_name="x" * 100) for n in range(6_000))
    emptying.empty()
    assert not User.objects.exists() and not AuditEvent.objects.exists() and not Membership.objects.exists()
    assert Permission.objects.count() == made > 100
    record(None, "agent.changed", organization=None)
    with pytest.raises(ProgrammingError, match=r"permission denied|append-only"):
        AuditEvent.objects.all().delete()  # the guards hold again


@pytest.mark.usefixtures("services")
@pytest.mark.thorough(reason="a whole run, or a second program")
def test_the_bench_starts_its_services() -> None:
    plain = {name: value for name, value in os.environ.items() if not name.endswith("_URL")}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.performance", "science.update"],
        cwd=Path(__file__).parents[2],
        env=plain,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "policy update" in ran.stdout
