"""The tests that `make test-fast` runs: those that need only their own process."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentcore_site import env
from tests import selection, services
from tests.selection import is_fast, pytest_ignore_collect


def asks_for_nothing() -> None: ...
def asks_for_the_database(db: None) -> None: ...
def asks_for_a_person(olivia: Any) -> None: ...
def asks_for_workers(fleet: Any) -> None: ...
def asks_for_a_site(live_site: Any) -> None: ...
def asks_for_the_broker(broker: Any) -> None: ...
@pytest.mark.django_db
def is_marked_for_the_database() -> None: ...
@pytest.mark.slow(reason="ten thousand of them")
def is_marked_as_slow() -> None: ...


@pytest.mark.parametrize(
    ("test", "fast"),
    [
        (asks_for_nothing, True),
        (asks_for_the_database, False),
        (asks_for_a_person, False),
        (asks_for_workers, False),
        (asks_for_a_site, False),
        (asks_for_the_broker, False),
        (is_marked_for_the_database, False),
        (is_marked_as_slow, False),
    ],
)
def test_a_test_without_services_is_fast(test: Callable[..., None], fast: bool, request: Any) -> None:
    assert is_fast(pytest.Function.from_parent(request.node.parent, name=test.__name__, callobj=test)) is fast


@pytest.mark.parametrize(
    "markers", ["MARK", "[pytest.mark.django_db, MARK]", "[\n    pytest.mark.django_db,\n    MARK,\n]"]
)
def test_a_file_of_thorough_tests_is_imported_only_where_they_run(markers: str, tmp_path: Path) -> None:
    thorough, other = tmp_path / "test_thorough.py", tmp_path / "test_other.py"
    thorough.write_text("pytestmark = " + markers.replace("MARK", 'pytest.mark.thorough(reason="kills")'))
    other.write_text('pytestmark = pytest.mark.django_db\n\n@pytest.mark.thorough(reason="kills")\ndef test_it(): ...')
    for expression, ignored in (("not bench and not thorough", True), ("fast", True), ("thorough or rounds", None)):
        config: Any = SimpleNamespace(option=SimpleNamespace(markexpr=expression))
        assert pytest_ignore_collect(thorough, config) is ignored
        assert pytest_ignore_collect(other, config) is None


@pytest.mark.parametrize(
    ("mark", "left_out"),
    [
        (pytest.mark.thorough(reason="a browser"), False),
        (pytest.mark.thorough(reason="more seeds"), True),
        (pytest.mark.rounds, True),
        (pytest.mark.slow(reason="a second"), False),
    ],
)
def test_repetitions_without_other_programs_are_left_out_where_the_time_is_over(
    mark: pytest.MarkDecorator, left_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    test: Any = SimpleNamespace(get_closest_marker=lambda name: mark.mark if name == mark.name else None)
    monkeypatch.setattr(selection, "UNTIL", math.inf)
    selection.pytest_runtest_setup(test)
    monkeypatch.setattr(selection, "UNTIL", 0)
    with pytest.raises(pytest.skip.Exception, match="make test-all") if left_out else nullcontext():
        selection.pytest_runtest_setup(test)


def test_a_test_that_does_not_ask_can_not_use_the_database(request: pytest.FixtureRequest) -> None:
    assert is_fast(request.node)
    with pytest.raises(RuntimeError, match="Database access not allowed"):
        User.objects.exists()


def test_a_fast_run_has_no_services(pytestconfig: pytest.Config) -> None:
    if pytestconfig.option.markexpr == services.FAST:
        assert services.stack is None


@pytest.mark.slow(reason="a run of pytest")
@pytest.mark.thorough(reason="a whole run, or a second program")
def test_the_fast_selection_starts_no_service() -> None:
    """The test above this one says so, in a run that is given no address."""
    given = {name: value for name, value in os.environ.items() if name not in services.SERVICES}
    command = [sys.executable, "-m", "pytest", "-q", "-m", services.FAST, "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, env=given, cwd=env.ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "17 passed, 1 deselected" in done.stdout, done.stdout + done.stderr
