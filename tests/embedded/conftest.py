"""Folders for services that a test starts by itself."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.up import GIVEN


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="agc-"))
    path.chmod(0o711)
    yield path
    pointer = path / "services.place"
    if pointer.exists():
        shutil.rmtree(pointer.read_text().strip(), ignore_errors=True)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def own_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """No address is given, so the test starts a PostgreSQL and a Valkey of its own."""
    for name in GIVEN:
        monkeypatch.delenv(name, raising=False)
