"""The code of the recipes (docs/how-to), word for word, as packages that are installed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from agentcore_site.lib.registry import Registry

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def examples(page: str) -> list[str]:
    """The blocks of Python of a recipe, in order."""
    return re.findall(r"```python\n(.*?)```", (HOW_TO / f"{page}.md").read_text(encoding="utf-8"), re.S)


def installed_from(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry[Any], name: str, found: str
) -> None:
    """Installs the block of a recipe that mentions ``name`` first as a module of this name, whose ``found`` is an entry
    point of ``registry``."""
    (folder / f"{name}.py").write_text(next(block for block in examples(page) if name in block))
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.entry_point_group}]\n{name} = {name}:{found}\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setitem(sys.modules, name, None)  # so that the module is forgotten again afterwards
    del sys.modules[name]
    monkeypatch.setattr(registry, "_items", dict(registry._items))
    monkeypatch.setattr(registry, "_foreign", set(registry._foreign))
    monkeypatch.setattr(registry, "_loaded", False)


def run_tests_of(page: str) -> int:
    """Runs every test of a recipe that needs no fixture; says how many there were."""
    run = 0
    for block in [one for one in examples(page) if "def test_" in one]:
        names: dict[str, Any] = {}
        exec(compile(block, f"{page}.md", "exec"), names)
        for name, test in names.items():
            if name.startswith("test_"):
                test()
                run += 1
    return run
