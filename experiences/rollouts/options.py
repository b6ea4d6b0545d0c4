"""Options of plugins (environments, rewards): checked by hand-sized helpers with messages for people."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

POOL = "pool"  # how many queries a run asks for: an option of the code that draws them, not of the environment


def own_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """What of an agent's environment options concerns the environment itself."""
    return {name: value for name, value in options.items() if name != POOL}


def checked_options(noun: str, options: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuses options that are not known.

    Raises:
        ValueError: an option is unknown; the message lists the known ones.
    """
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(f"{noun} has no option {unknown[0]!r}. Known: {', '.join(sorted(known)) or 'none'}.")


def number_option(noun: str, options: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    """The number under ``name``, or ``default``.

    Raises:
        ValueError: it is not a number from ``low`` to ``high``.
    """
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"{noun}: {name} must be a number from {low:g} to {high:g}; got {value!r}.")
    return float(value)


def flag_option(noun: str, options: Mapping[str, Any], name: str, default: bool) -> bool:
    """The flag under ``name``, or ``default``.

    Raises:
        ValueError: it is neither true nor false.
    """
    value = options.get(name, default)
    if value is not True and value is not False:
        raise ValueError(f"{noun}: {name} must be true or false; got {value!r}.")
    return bool(value)


def choice_option(noun: str, options: Mapping[str, Any], name: str, allowed: Sequence[str]) -> str:
    """The word under ``name``; the first allowed one is the default.

    Raises:
        ValueError: it is not one of ``allowed``.
    """
    value = options.get(name, allowed[0])
    if value not in allowed:
        raise ValueError(f"{noun}: {name} must be one of {', '.join(allowed)}; got {value!r}.")
    return str(value)
