"""The browser needs the static files that `manage.py up` collects."""

from __future__ import annotations

import pytest
from django.core.management import call_command


@pytest.fixture(autouse=True, scope="session")
def collected() -> None:
    call_command("collectstatic", interactive=False, verbosity=0)
