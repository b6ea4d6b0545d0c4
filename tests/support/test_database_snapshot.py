"""Processes of tests start from a migrated database."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from agentcore_site import env
from agentcore_site.embedded.stack import Stack
from tests import services
from tests.support import database_snapshot
from tests.support.up import GIVEN

OWNER_URL = os.environ.get("DATABASE_OWNER_URL", "")
# Columns, indexes, triggers and policies of all tables, and which migrations were applied.
MADE = """
SELECT 'column', table_name || '.' || column_name, data_type FROM information_schema.columns
 WHERE table_schema = 'public'
UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT 'trigger', tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT 'policy', tablename || '.' || policyname, coalesce(qual, '') FROM pg_policies
UNION ALL SELECT 'migration', app, name FROM django_migrations
ORDER BY 1, 2, 3
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A product of one app with one migration."""
    for name in ("app/__init__.py", "app/jobs/migrations/0001_initial.py", *database_snapshot.BASES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    monkeypatch.setattr(env, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize("changed", ["app/jobs/migrations/0001_initial.py", *database_snapshot.BASES])
def test_a_changed_migration_or_lock_has_no_snapshot(tree: Path, changed: str) -> None:
    before = database_snapshot.digest()
    (tree / changed).write_text("other", encoding="utf-8")
    assert database_snapshot.digest() != before


def test_a_new_and_a_renamed_migration_have_no_snapshot(tree: Path) -> None:
    folder = tree / "app/jobs/migrations"
    digests = {database_snapshot.digest()}
    (folder / "0002_more.py").write_text("more", encoding="utf-8")
    digests.add(database_snapshot.digest())
    (folder / "0002_more.py").rename(folder / "0002_other.py")
    digests.add(database_snapshot.digest())
    assert len(digests) == 3


def test_every_migration_of_the_product_counts() -> None:
    named = {str(path.relative_to(env.ROOT)) for path in database_snapshot._sources()}
    listed = subprocess.run(
        ["git", "ls-files", "*/migrations/*.py"], cwd=env.ROOT, capture_output=True, text=True, check=True
    )
    assert set(listed.stdout.split()) <= named and len(named) > 100


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """Services that have not started, of a process to which none were given."""
    with tempfile.TemporaryDirectory(prefix="agentcore-tests-") as folder:
        os.chmod(folder, 0o711)
        with monkeypatch.context() as patch:
            for name in GIVEN:
                patch.delenv(name, raising=False)
            stack = Stack(Path(folder), lambda message: None, {"fsync": "off"}, any_port=True)
            yield stack
        stack.stop()


@pytest.mark.thorough(reason="each process of the tests begins so, from its second run on")
@pytest.mark.skipif(not services.has_own_database(), reason="a server was given")
def test_a_server_that_starts_from_the_snapshot_has_the_tables_of_the_migrations(
    transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: Stack
) -> None:
    """And lets the application in, whose password is its own."""
    monkeypatch.setattr(database_snapshot, "FOLDER", tmp_path / "kept")
    monkeypatch.setattr(database_snapshot, "is_copy", False)
    assert services.stack is not None
    database_snapshot.restore(other)
    assert not database_snapshot.is_copy  # there is none yet
    with connection.cursor() as cursor:
        ours = cursor.execute(MADE).fetchall()
    database_snapshot.keep(services.stack, OWNER_URL)
    database_snapshot.restore(other)
    assert database_snapshot.is_copy
    with psycopg.connect(database_snapshot.migrated(other.start_database()["database_url"])) as theirs:
        assert theirs.execute(MADE).fetchall() == ours
    assert len(ours) > 1_000
