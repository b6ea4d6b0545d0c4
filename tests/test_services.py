"""The tests' own services."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import services


@pytest.mark.skipif(services.OWN not in os.environ, reason="services were given")
def test_each_process_of_the_tests_has_services_of_its_own() -> None:
    # With one broker for two, the messages that one process counts are taken away by the other one's clean-up.
    secrets = Path(services.folder) / "secrets"
    passwords = {"REDIS_URL": "valkey_password", "DATABASE_OWNER_URL": "postgres_password"}
    for name in set(os.environ[services.OWN].split()) & set(passwords):
        assert (secrets / passwords[name]).read_text(encoding="utf-8").strip() in os.environ[name], name
