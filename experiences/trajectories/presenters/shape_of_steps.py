"""The shape of a trajectory: which steps came of one call of its model, and when each began and how long it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agentcore_site.console.svg import Picture, span_bar

DEEPEST: Final = 8  # steps within steps that are drawn so; deeper ones are beside each other
RESOLUTION_MS: Final = 1.0  # of the moment that a step began (experiences.trajectories.storage)
Shown = Mapping[str, Any]  # a step as stored, with its "number"


@dataclass
class CallNode:
    """A step, beneath it the further calls of tools that the same answer of the model asked for, and the steps that
    were made within it. The first of the calls has the tokens and the cost of the model's call, which are paid once."""

    step: Shown
    under: list[CallNode] = field(default_factory=list)
    within: list[CallNode] = field(default_factory=list)

    @property
    def calls(self) -> list[CallNode]:
        """The calls of one answer, each with what is within it."""
        return [CallNode(self.step, within=self.within), *self.under]

    @property
    def own(self) -> list[Shown]:
        return [self.step, *(one.step for one in self.under)]

    def _sum(self, name: str) -> float:
        return sum(float(one.get(name) or 0) for one in self.own)

    @property
    def duration_ms(self) -> float:
        return self._sum("duration_ms")

    @property
    def tokens(self) -> float:
        return self._sum("tokens")

    @property
    def cost_micros(self) -> float:
        return self._sum("cost_micros")


@dataclass(frozen=True)
class Bar:
    """A line of the waterfall. ``starts``: milliseconds after the first step; ``depth``: how many steps it is beneath;
    ``picture`` is None where the step says not when it began, or not how long it took."""

    step: Shown
    depth: int
    starts: float | None
    picture: Picture | None


@dataclass(frozen=True)
class Waterfall:
    """``length``: milliseconds that the axis is long, the whole trajectory's where that took longer than its steps;
    None where no times are known. ``between``: milliseconds of it in which no step was at work: the agent chose its
    next one, or was scored."""

    bars: list[Bar]
    length: float | None
    unknown: int  # steps without a time
    between: float = 0.0

    @property
    def tenth(self) -> float:
        return (self.length or 0.0) / 10

    @property
    def ticks(self) -> list[float]:
        return [] if self.length is None else [self.length * part / 4 for part in range(5)]


def tree(steps: Sequence[Shown]) -> list[CallNode]:
    """Steps of a model that asked for several tools at once are under the first of them; steps that were made
    within another step are within it, where that one is shown. An agent without a model (no step has tokens) has one
    step after the other."""
    of_model = any(step.get("tokens") for step in steps)
    found: list[CallNode] = []
    made: dict[int, tuple[CallNode, int]] = {}  # by number, with the depth of what is within it
    for step in steps:
        parent, depth = made.get(_parent(step), (None, 0))
        beside = found if parent is None else parent.within
        node = CallNode(step)
        further = of_model and beside and not step.get("tokens") and not step.get("cost_micros") and _tool(step)
        if further and _tool(beside[-1].step):
            beside[-1].under.append(node)
        else:
            beside.append(node)
        if depth < DEEPEST:
            made[step.get("number", 0)] = node, depth + 1
        elif parent is not None:
            made[step.get("number", 0)] = parent, depth
    return found


def _parent(step: Shown) -> int:
    """The number of the step that this one is within; -1: of none."""
    place = step.get("parent")
    return place + 1 if isinstance(place, int) else -1


def waterfall(steps: Sequence[Shown], *, whole_ms: float = 0.0) -> Waterfall:
    """Never invents a time: a step without a beginning or a duration gets no bar. ``whole_ms``: what the trajectory
    took, measured around its steps; the first step is at its beginning."""
    starts = _starts(steps)
    if not starts:
        return Waterfall([], None, len(steps))
    ended = max(began + float(steps[at]["duration_ms"]) for at, began in starts.items())
    length = max(ended, whole_ms)
    places = {id(one): at for at, one in enumerate(steps)}
    flat = [pair for node in tree(steps) for pair in _flat(node, 0)]
    bars = [_bar(one, depth, starts.get(places[id(one)]), length) for one, depth in flat]
    unknown = len(steps) - len(starts)
    return Waterfall(bars, length, unknown, 0.0 if unknown else length - _at_work(steps, starts))


def _at_work(steps: Sequence[Shown], starts: Mapping[int, float]) -> float:
    """Milliseconds in which at least one step was at work."""
    worked, until = 0.0, 0.0
    for began, ended in sorted((began, began + float(steps[at]["duration_ms"])) for at, began in starts.items()):
        worked += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return worked


def _starts(steps: Sequence[Shown]) -> dict[int, float]:
    """Milliseconds after the first step at which each began that says so, by its place.

    Beginnings are stored to the millisecond, durations exactly: of steps that are shorter, several would begin at once.
    One that is within that of the end before it is the next in a row, and begins there.
    """
    known = [(at, one) for at, one in enumerate(steps) if _timed(one)]
    first = min((float(one["timestamp"]) for _, one in known), default=0.0)
    found: dict[int, float] = {}
    ended = 0.0
    for at, one in known:
        began = (float(one["timestamp"]) - first) * 1e3
        found[at] = ended if 0 < ended - began <= RESOLUTION_MS else began
        ended = found[at] + float(one["duration_ms"])
    return found


def _flat(node: CallNode, depth: int) -> Iterator[tuple[Shown, int]]:
    yield node.step, depth
    for one in (*node.within, *node.under):
        yield from _flat(one, depth + 1)


def _bar(step: Shown, depth: int, starts: float | None, length: float) -> Bar:
    if starts is None:
        return Bar(step, depth, None, None)
    took = float(step["duration_ms"])
    kind = "answer" if step.get("action", {}).get("type") == "answer" else "ok"
    kind = "failed" if kind == "ok" and not step.get("result", {}).get("success") else kind
    label = f"begins after {starts:,.0f} ms, takes {took:,.3g} ms"
    return Bar(step, depth, starts, span_bar(starts, took, length, kind=kind, label=label))


def _timed(step: Shown) -> bool:
    return float(step.get("timestamp") or 0) > 0 and float(step.get("duration_ms") or 0) > 0


def _tool(step: Shown) -> bool:
    return step.get("action", {}).get("type") == "tool"


# -- the same tool again and again ------------------------------------------------------------------------------------

REPEATED: Final = 3  # from so many on they are folded


def folded(steps: Sequence[Shown]) -> list[dict[str, Any]]:
    """Steps in order; a tool that failed the same way several times in a row is one entry with all of its ``steps``."""
    found: list[dict[str, Any]] = []
    for step in steps:
        key = _failure(step)
        if key and found and found[-1]["key"] == key:
            found[-1]["steps"].append(step)
        else:
            found.append({"key": key, "steps": [step]})
    entries: list[dict[str, Any]] = []
    for run in found:
        if run["key"] and len(run["steps"]) >= REPEATED:
            tool, error = run["key"]
            entries.append({"tool": tool, "error": error, "steps": run["steps"], "folded": True})
        else:
            entries += [{"steps": [step], "folded": False} for step in run["steps"]]
    return entries


def _failure(step: Shown) -> tuple[str, str] | None:
    result = step.get("result", {})
    if not _tool(step) or result.get("success"):
        return None
    return str(step["action"].get("tool") or ""), str(result.get("error") or "")


# -- its answer -------------------------------------------------------------------------------------------------------


def answer_of(steps: Sequence[Mapping[str, Any]]) -> str:
    """The answer in a trajectory's last step; "" where that is no answer."""
    last = steps[-1] if steps else {}
    action = last.get("action", {})
    if action.get("type") != "answer":
        return ""
    parameters, output = action.get("parameters") or {}, last.get("result", {}).get("output")
    found = parameters.get("text") or action.get("text") or output
    return found if isinstance(found, str) else "" if found is None else str(found)
