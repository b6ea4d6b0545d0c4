"""Named plugins: a dictionary that can be filled from entry points and fails with a helpful message."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Generic, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)


class UnknownName(LookupError):
    """A name that is not registered; the message lists those that exist."""


class Registry(Generic[T]):
    """Plugins of one kind by name.

    ``entry_point_group`` names the packaging entry-point group whose plugins are loaded the first time a name is not
    found, so that a user's own package works without a change here. A plugin that can't be loaded is logged and left
    out, and a lookup of its name raises the reason.
    """

    def __init__(self, noun: str, *, entry_point_group: str) -> None:
        self.noun = noun
        self.entry_point_group = entry_point_group
        self._items: dict[str, T] = {}
        self._foreign: set[str] = set()
        self._broken: dict[str, str] = {}
        self._loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers an object under ``name``.

        Raises:
            ValueError: the name is taken by another object.
        """

        def add(item: T) -> T:
            if name in self._items and self._items[name] is not item:
                raise ValueError(f"{self.noun} {name!r} is registered twice")
            self._items[name] = item
            return item

        return add

    def get(self, name: str) -> T:
        """The plugin called ``name``.

        Raises:
            UnknownName: it is not registered, here or through an entry point.
        """
        if name not in self._items:
            self._load_entry_points()
        try:
            return self._items[name]
        except KeyError:
            known = ", ".join(sorted(self._items)) or "none"
            why = (
                f" The package that brings it can't be loaded: {broken}." if (broken := self._broken.get(name)) else ""
            )
            raise UnknownName(f"There is no {self.noun} named {name!r}. Known: {known}.{why}") from None

    def names(self) -> list[str]:
        self._load_entry_points()
        return sorted(self._items)

    def items(self) -> Iterator[tuple[str, T]]:
        for name in self.names():
            yield name, self._items[name]

    def built_in(self) -> list[str]:
        """The names that were not registered by entry points."""
        return sorted(self._items.keys() - self._foreign)

    def _load_entry_points(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        for point in entry_points(group=self.entry_point_group):
            if point.name in self._items:
                continue
            try:
                self._items[point.name] = point.load()
            except Exception as error:  # any exception of a third-party package's import
                log.exception("the %s %r can't be loaded", self.noun, point.name)
                self._broken[point.name] = f"{type(error).__name__}: {error}"
            else:
                self._foreign.add(point.name)
