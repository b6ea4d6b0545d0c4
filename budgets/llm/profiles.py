"""Profiles of services: facts by address and model (``profiles.toml``), and the options that follow from them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from budgets.llm.remedies import merged

FILE: Final = Path(__file__).with_name("profiles.toml")


@dataclass(frozen=True)
class Profile:
    """Facts about one service or some of its models; the fields are described in the file."""

    name: str
    hosts: tuple[str, ...]
    models: tuple[str, ...] = ("*",)
    but_not: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    thoughts: str = ""
    returns: tuple[str, ...] = ()
    usage: str = ""
    cost: str = ""
    context: int | None = None
    note: str = ""
    sources: tuple[str, ...] = ()

    def fits(self, host: str, model: str, kind: str) -> bool:
        """``host`` is the address's host with its port, all in small letters."""
        places, model = (host, host.rpartition(":")[0]), model.lower()
        return (
            (not self.kinds or kind in self.kinds)
            and any(fnmatchcase(place, pattern) for place in places for pattern in self.hosts)
            and any(fnmatchcase(model, pattern) for pattern in self.models)
            and not any(fnmatchcase(model, pattern) for pattern in self.but_not)
        )


@lru_cache(maxsize=1)
def profiles() -> tuple[date, tuple[Profile, ...]]:
    """The day of the facts, and all profiles in the order of the file."""
    read = tomllib.loads(FILE.read_text())
    found = []
    for one in read["profile"]:
        facts: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in one.items()
        }
        found.append(Profile(**facts))
    return read["dated"], tuple(found)


def profiles_of(base_url: str, model: str, kind: str = "openai") -> list[Profile]:
    """The profiles that fit an endpoint, in the order of the file."""
    scheme, _, rest = base_url.lower().partition("://")
    host = rest.partition("/")[0].partition("?")[0]
    host = host if ":" in host else f"{host}:{'80' if scheme == 'http' else '443'}"
    return [one for one in profiles()[1] if one.fits(host, model, kind)]


def profile_options(base_url: str, model: str, kind: str = "openai") -> dict[str, Any]:
    """Options that fit requests to a service: of two profiles the later wins, and what is left out adds up."""
    found: dict[str, Any] = {}
    for one in profiles_of(base_url, model, kind):
        found = merged(found, one.options)
    return found


def table() -> str:
    """The profiles as a table of the documentation."""
    day, found = profiles()
    lines = [f"Facts of {day}.", "", "| service | options | further facts | from |", "|---|---|---|---|"]
    for one in found:
        options = "; ".join(f"`{name}`: {_shown(value)}" for name, value in one.options.items()) or "none"
        facts = [
            f"thoughts: {one.thoughts}" if one.thoughts else "",
            f"come back: {', '.join(one.returns)}" if one.returns else "",
            f"usage: {one.usage}" if one.usage else "",
            f"cost: {one.cost}" if one.cost else "",
            f"context: {one.context:,}" if one.context else "",
            one.note.removesuffix("."),
        ]
        sources = " ".join(f"[{number}]({source})" for number, source in enumerate(one.sources, start=1))
        lines.append(f"| {one.name} | {options} | {'. '.join(filter(None, facts))} | {sources} |")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(f"`{one}`" for one in value)
    return "`true`" if value is True else f"`{value}`"
