"""Options of plugins (environments, rewards): said once, read with messages for people."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

POOL = "pool"  # how many queries a run asks for: an option of the code that draws them, not of the environment


def own_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The environment options of an agent that concern the environment itself."""
    return {name: value for name, value in options.items() if name != POOL}


class Option(NamedTuple):
    """Description and default of an option: a flag, one of ``choices`` (default: the first), a number from ``low`` to
    ``high`` (whole if the default is), or else free text."""

    help: str
    default: Any = None
    low: float | None = None
    high: float = 1.0
    choices: Sequence[str] = ()


def help_of(known: Mapping[str, Option]) -> dict[str, str]:
    return {name: option.help for name, option in known.items()}


def read_options(noun: str, options: Mapping[str, Any], known: Mapping[str, Option]) -> dict[str, Any]:
    """The values of all options, by name.

    Raises:
        ValueError: an option is unknown, or its value is of the wrong kind or out of range.
    """
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(f"{noun} has no option {unknown[0]!r}. Known: {', '.join(sorted(known)) or 'none'}.")
    return {name: _read(f"{noun}: {name}", options, name, option) for name, option in known.items()}


def _read(noun: str, options: Mapping[str, Any], name: str, option: Option) -> Any:
    _, default, low, high, choices = option
    value = options.get(name, choices[0] if choices else default)
    if isinstance(default, bool):
        if value is not True and value is not False:
            raise ValueError(f"{noun} must be true or false; got {value!r}.")
    elif choices:
        if value not in choices:
            raise ValueError(f"{noun} must be one of {', '.join(choices)}; got {value!r}.")
    elif low is not None and not (value is None and default is None):
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError(f"{noun} must be a number from {low:g} to {high:g}; got {value!r}.")
        return int(value) if isinstance(default, int) else float(value)
    return value


def described(
    noun: str, function: Callable[..., Any], options: Mapping[str, Option], given: int = 0, description: str = ""
) -> str:
    """The description of a plugin that is one function: its docstring in one line, where none is given. ``given``: how
    many of its parameters are no options.

    Raises:
        TypeError: a parameter has no option of its name, or there is no description.
    """
    if list(options) != list(inspect.signature(function).parameters)[given:]:
        raise TypeError(f"{noun}: each of its options needs an Option, of the name of the parameter, in the same order")
    if found := description or " ".join((function.__doc__ or "").split()):
        return found
    raise TypeError(f"{noun} needs a docstring: forms and REST show it")
