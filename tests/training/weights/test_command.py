"""The command that starts a model server, and its former name."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError


@pytest.mark.parametrize(("name", "lines"), [("model_server", 0), ("weights_door", 1)])
def test_a_former_name_works_and_names_the_present_one(name: str, lines: int, tmp_path: Path) -> None:
    errors = StringIO()
    with pytest.raises(CommandError, match="is no folder"):
        call_command(name, str(tmp_path / "nothing"), stderr=errors)
    assert errors.getvalue().count("\n") == errors.getvalue().count("is now called model_server") == lines


def test_the_demo_of_a_language_model_names_the_model_that_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEIGHTS", raising=False)
    with pytest.raises(CommandError, match="make run MODEL=1"):
        call_command("up", demo_model=True)
