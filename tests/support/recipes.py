"""The code of the recipes (docs/how-to), word for word: installed packages, pages and addresses of the site."""

from __future__ import annotations

import re
import sys
from inspect import signature
from pathlib import Path
from types import ModuleType
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


def run_tests_of(page: str, request: pytest.FixtureRequest | None = None) -> int:
    """Runs every test of a recipe, with the fixtures that ``request`` has, and returns their number."""
    run = 0
    for block in [one for one in examples(page) if "def test_" in one]:
        names: dict[str, Any] = {}
        exec(compile(block, f"{page}.md", "exec"), names)
        for name, test in names.items():
            if name.startswith("test_"):
                wanted = signature(test).parameters
                test(**{one: request.getfixturevalue(one) for one in wanted} if request is not None else {})
                run += 1
    return run


def defined(page: str, name: str, module: ModuleType) -> Any:
    """The object that a block of a recipe defines under this name, as if the block were at the end of ``module``."""
    block = next(one for one in examples(page) if re.search(rf"^(?:def|class) {name}\b", one, re.M))
    names = dict(vars(module))
    exec(compile(block, f"{page}.md", "exec"), names)
    return names[name]


def address_of(page: str, call: str, names: dict[str, Any]) -> Any:
    """The value of the call of ``call`` that a sentence of a recipe shows, as `path("jobs/failed/", …)`."""
    text = (HOW_TO / f"{page}.md").read_text(encoding="utf-8")
    shown = re.search(rf"`({re.escape(call)}\(\"[^`]*\))`", text)
    assert shown is not None, f"The recipe shows no {call}(…)."
    return eval(shown[1], names)


def template_into(page: str, folder: Path) -> None:
    """Writes the template of a recipe under the name that its step gives."""
    text = (HOW_TO / f"{page}.md").read_text(encoding="utf-8")
    name, content = re.search(r"here `templates/([^`]+)`.*?```html\n(.*?)```", text, re.S).groups()  # type: ignore[union-attr]
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content, encoding="utf-8")
