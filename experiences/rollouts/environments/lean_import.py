"""reasoning-gym without the plotting library that a part of it imports and never uses.

``cellpylib`` imports matplotlib to draw automata on a screen. No generator and no verifier draws, yet the import
costs each worker 37 MB and a quarter of a second. While reasoning-gym is imported, matplotlib's modules are stood in
for by postponed ones, which load the real ones at their first use.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

DRAWING = (
    "matplotlib",
    "matplotlib.animation",
    "matplotlib.collections",
    "matplotlib.pyplot",
    "mpl_toolkits",
    "mpl_toolkits.mplot3d",
)
_turn = threading.Lock()


def reasoning_gym(part: str = "") -> ModuleType:
    """The package, or one of its modules."""
    name = f"reasoning_gym.{part}" if part else "reasoning_gym"
    found = sys.modules.get(name)
    if found is not None and not getattr(getattr(found, "__spec__", None), "_initializing", False):
        return found
    with _turn, _postponed(DRAWING):
        return importlib.import_module(name)


class _Postponed(ModuleType):
    """Imports the module of its name when something in it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _postponed(names: tuple[str, ...]) -> Iterator[None]:
    stand_ins = {name: _Postponed(name) for name in names if name not in sys.modules}
    for name, module in stand_ins.items():
        parent, _, child = name.rpartition(".")
        if parent in stand_ins:
            setattr(stand_ins[parent], child, module)
    if three_d := stand_ins.get("mpl_toolkits.mplot3d"):
        vars(three_d)["Axes3D"] = object  # imported by name for what its import registers
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, module in stand_ins.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
