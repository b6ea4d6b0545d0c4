"""The promises of the documents on security and reliability name the tests that hold them, and those tests exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMED = re.compile(r"`(tests/[\w/.]*)(?:::(\w+))?`")


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(name for name in found if name.startswith("test_"))


def promises(name: str) -> list[list[str]]:
    """The rows of a document's table, without its head, cell by cell."""
    lines = (ROOT / "docs" / name).read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    assert len({len(row) for row in rows}) == 1
    return rows[1:]


@pytest.mark.parametrize("name", ["security.md", "reliability.md"])
def test_each_promise_names_a_test_that_exists(name: str) -> None:
    rows = promises(name)
    assert len(rows) >= 10
    for what, *_, held_by in rows:
        named = NAMED.findall(held_by)
        assert any(test for _, test in named), f"{name}: no test function is named for: {what}"
        for path, test in named:
            assert (ROOT / path).exists(), f"{name}: there is no {path}, named for: {what}"
            assert not test or test in functions_of(ROOT / path), f"{name}: {path} has no {test}, named for: {what}"
