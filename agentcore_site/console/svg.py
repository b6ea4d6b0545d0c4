"""Small pictures drawn on the server as SVG: sparklines, dots of a group, bars around zero, forest plots.

Shapes get their colours from classes (``console.css``), never from style attributes, which the content security
policy forbids.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from agentcore_site.lib.figures import minus

LEVELS: Final = 5


class Picture(str):
    """SVG drawn here, from numbers and escaped labels only: templates insert it unescaped."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def sparkline(values: Sequence[float | None], *, width: int = 96, height: int = 24, label: str = "") -> Picture:
    """A line of success rates (0 to 1) with a dot at its end; a flat baseline while there are fewer than two."""
    known = [value for value in values if value is not None]
    attributes = f'class="spark" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img"'
    name = escape(
        label
        or (f"success from {100 * known[0]:.0f} % to {100 * known[-1]:.0f} %" if known else "nothing measured yet")
    )
    floor = f'<line class="spark-floor" x1="0" x2="{width}" y1="{height - 2}" y2="{height - 2}"/>'
    if len(known) < 2:
        return Picture(f'<svg {attributes} aria-label="{name}">{floor}</svg>')
    step = (width - 6) / (len(known) - 1)
    points = [(2 + i * step, 3 + (1 - min(max(value, 0.0), 1.0)) * (height - 6)) for i, value in enumerate(known)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    return Picture(
        f'<svg {attributes} aria-label="{name}">{floor}<polyline class="spark-line" points="{line}"/>'
        f'<circle class="spark-end" cx="{x:.1f}" cy="{y:.1f}" r="2"/></svg>'
    )


def level(reward: float | None, low: float, high: float) -> str:
    """The class of a reward's colour: r0 (worst) to r4 (best) between ``low`` and ``high``; "none" without one."""
    if reward is None:
        return "none"
    share = (reward - low) / (high - low) if high > low else 0.5
    return f"r{min(LEVELS - 1, max(0, int(share * LEVELS)))}"


def dots(
    rewards: Sequence[float | None], success: Sequence[bool], *, low: float, high: float, signal: bool, per_row: int = 8
) -> Picture:
    """One dot for each of the G rollouts of a group: filled for a success, a ring for a failure; grey if the group had
    no signal."""
    size = 9
    n = len(rewards)
    columns = min(n, per_row) or 1
    rows = -(-n // columns) or 1
    marks = []
    for i, (reward, won) in enumerate(zip(rewards, success, strict=True)):
        x, y = (i % columns) * size + size / 2, (i // columns) * size + size / 2
        kind = level(reward, low, high) if signal else "none"
        marks.append(f'<circle class="dot {kind}{"" if won else " ring"}" cx="{x}" cy="{y}" r="3"/>')
    width, height = columns * size, rows * size
    return Picture(f'<svg class="dots" width="{width}" height="{height}" aria-hidden="true">{"".join(marks)}</svg>')


def bar_around_zero(value: float, scale: float, *, width: int = 72, height: int = 8) -> Picture:
    """A bar to the right of the middle for a positive value, to the left for a negative one; ``scale`` fills a half."""
    half = width / 2
    length = min(abs(value) / scale, 1.0) * (half - 1) if scale > 0 else 0.0
    x = half if value >= 0 else half - length
    side = "up" if value > 0 else "down"
    return Picture(
        f'<svg class="bar" width="{width}" height="{height}" viewBox="0 0 {width} {height}" aria-hidden="true">'
        f'<rect class="bar-{side}" x="{x:.1f}" y="1" width="{length:.1f}" height="{height - 2}"/>'
        f'<line class="bar-zero" x1="{half}" x2="{half}" y1="0" y2="{height}"/></svg>'
    )


def whisker(value: float, low: float | None, high: float | None, scale: float, *, label: str) -> Picture:
    """An estimate with its interval around zero: blue if surely above, red if surely below. ``scale`` fills a half;
    values beyond it are cut at the edge."""
    width, height = 96, 14

    def place(number: float) -> float:
        return width / 2 + max(-1.0, min(1.0, number / scale if scale > 0 else 0.0)) * (width / 2 - 4)

    middle = height / 2
    sure = low is not None and high is not None and (low > 0 or high < 0)
    kind = "unsure" if not sure else ("better" if value > 0 else "worse")
    parts = [f'<line class="whisker-zero" x1="{width / 2}" x2="{width / 2}" y1="0" y2="{height}"/>']
    if low is not None and high is not None:
        ends = place(low), place(high)
        parts.append(f'<path class="whisker-line {kind}" d="M{ends[0]:.1f} {middle}H{ends[1]:.1f}"/>')
        parts += [f'<path class="whisker-line {kind}" d="M{x:.1f} {middle - 3}V{middle + 3}"/>' for x in ends]
    parts.append(f'<circle class="whisker-mark {kind}" cx="{place(value):.1f}" cy="{middle}" r="3"/>')
    attributes = f'class="whisker" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img"'
    return Picture(f'<svg {attributes} aria-label="{escape(label)}">{"".join(parts)}</svg>')


@dataclass(frozen=True, slots=True)
class ForestRow:
    """One metric of a forest plot, in standard deviations of the per-query difference; higher is better.

    ``low`` and ``high`` are None if the difference has no spread; ``sure``: the interval excludes zero.
    """

    name: str
    effect: float
    low: float | None
    high: float | None
    sure: bool


def forest(rows: Sequence[ForestRow], *, width: int = 400, label: str = "") -> Picture:
    """A forest plot: a diamond and its interval for each metric, around the line of no difference."""
    left, right, line, top = 132, 12, 40, 8
    reach = max([0.5, *(abs(edge) for row in rows for edge in (row.effect, row.low, row.high) if edge is not None)])
    reach *= 1.08
    middle, unit = left + (width - left - right) / 2, (width - left - right) / 2 / reach
    bottom = top + line * len(rows)
    parts = [f'<line class="forest-zero" x1="{middle}" x2="{middle}" y1="{top}" y2="{bottom}"/>']
    parts += _ticks(reach, middle, unit, bottom)
    for i, row in enumerate(rows):
        parts.append(_forest_row(row, top + line * i + line / 2, middle, unit, reach))
    parts.append(f'<text class="forest-axis" x="{left}" y="{bottom + 34}">← worse</text>')
    parts.append(f'<text class="forest-axis" x="{width - right}" y="{bottom + 34}" text-anchor="end">better →</text>')
    height = bottom + 42
    return Picture(
        f'<svg class="forest" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _ticks(reach: float, middle: float, unit: float, y: float) -> list[str]:
    step = next(size for size in (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 1e9) if reach / size <= 4)
    marks = []
    for i in range(-int(reach / step), int(reach / step) + 1):
        x = middle + i * step * unit
        marks.append(f'<line class="forest-tick" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 4}"/>')
        marks.append(f'<text class="forest-axis" x="{x:.1f}" y="{y + 16}" text-anchor="middle">{i * step:g}</text>')
    return marks


def _forest_row(row: ForestRow, y: float, middle: float, unit: float, reach: float) -> str:
    def place(value: float) -> float:
        return middle + max(-reach, min(reach, value)) * unit

    kind = "unsure" if not row.sure else ("better" if row.effect > 0 else "worse")
    x = place(row.effect)
    parts = [f'<text class="forest-name" x="0" y="{y + 4}">{escape(row.name)}</text>']
    if row.low is not None and row.high is not None:
        a, b = place(row.low), place(row.high)
        parts.append(f'<line class="forest-line {kind}" x1="{a:.1f}" x2="{b:.1f}" y1="{y}" y2="{y}"/>')
        for edge in (a, b):
            parts.append(
                f'<line class="forest-line {kind}" x1="{edge:.1f}" x2="{edge:.1f}" y1="{y - 4}" y2="{y + 4}"/>'
            )
    diamond = f"{x - 5:.1f},{y} {x:.1f},{y - 5} {x + 5:.1f},{y} {x:.1f},{y + 5}"
    parts.append(f'<polygon class="forest-mark {kind}" points="{diamond}"/>')
    return "".join(parts)


def share(value: float, low: float, high: float, *, tone: str = "", label: str, width: int = 120) -> Picture:
    """A share in [0, 1] with its interval on a track from 0 to 1. ``tone`` is "good", "bad" or nothing."""
    unit, middle = width - 8, 7
    a, x, b = (4 + unit * min(1.0, max(0.0, one)) for one in (low, value, high))
    parts = (
        f'<line class="share-track" x1="4" x2="{width - 4}" y1="{middle}" y2="{middle}"/>'
        f'<path class="share-line {tone}" d="M{a:.1f} {middle}H{b:.1f}M{a:.1f} {middle - 3}v6M{b:.1f} {middle - 3}v6"/>'
        f'<circle class="share-mark {tone}" cx="{x:.1f}" cy="{middle}" r="3"/>'
    )
    attributes = f'class="whisker" width="{width}" height="14" viewBox="0 0 {width} 14" role="img"'
    return Picture(f'<svg {attributes} aria-label="{escape(label)}">{parts}</svg>')


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """One measurement: a share in [0, 1] with its interval. ``series`` is the number of the measured thing, ``label``
    its title; ``url`` is the link."""

    value: float
    low: float
    high: float
    series: int
    label: str
    url: str = ""


def history(
    points: Sequence[HistoryPoint], *, threshold: float | None = None, width: int = 720, height: int = 220, label: str
) -> Picture:
    """Shares over time, the oldest at the left, each with its interval; points of one series are joined. ``threshold``
    is a dashed line. A screen reader sees nothing within an image, so a plot with links is a group."""
    left, right, top, bottom = 60, 12, 12, 16
    step = (width - left - right) / max(len(points), 1)

    def y(value: float) -> float:
        return top + (1 - value) * (height - top - bottom)

    parts = []
    for mark in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(f'<line class="history-grid" x1="{left}" x2="{width - right}" y1="{y(mark)}" y2="{y(mark)}"/>')
        parts.append(f'<text class="history-axis" x="{left - 6}" y="{y(mark) + 4}" text-anchor="end">{mark:.0%}</text>')
    if threshold is not None:
        at = f'x1="{left}" x2="{width - right}" y1="{y(threshold):.1f}" y2="{y(threshold):.1f}"'
        parts.append(f'<line class="history-threshold" {at}/>')
    places = [(left + step * (i + 0.5), one) for i, one in enumerate(points)]
    for series in sorted({point.series for point in points}):
        line = " ".join(f"{x:.1f},{y(one.value):.1f}" for x, one in places if one.series == series)
        parts.append(f'<polyline class="history-line s{series % LEVELS}" points="{line}"/>')
    parts += [_history_point(x, one, y(one.value), y(one.low), y(one.high)) for x, one in places]
    role = "group" if any(point.url for point in points) else "img"
    attributes = f'class="history" viewBox="0 0 {width} {height}" role="{role}" aria-label="{escape(label)}"'
    return Picture(f"<svg {attributes}>{''.join(parts)}</svg>")


def _history_point(x: float, point: HistoryPoint, middle: float, low: float, high: float) -> str:
    mark = (
        f'<path d="M{x:.1f} {low:.1f}V{high:.1f}M{x - 3:.1f} {low:.1f}h6M{x - 3:.1f} {high:.1f}h6"/>'
        f'<circle cx="{x:.1f}" cy="{middle:.1f}" r="4"/><title>{escape(point.label)}</title>'
    )
    group = f'<g class="history-point s{point.series % LEVELS}">{mark}</g>'
    return f'<a href="{escape(point.url)}" aria-label="{escape(point.label)}">{group}</a>' if point.url else group


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One axis of parallel coordinates, with a value for each line: a number, a word, or None for none."""

    title: str
    values: list[Any]


@dataclass(frozen=True, slots=True)
class ParallelLine:
    """``rank``: its colour, 0 (worst) to 4 (best); None for grey."""

    label: str
    rank: int | None


def parallel(axes: Sequence[Coordinate], lines: Sequence[ParallelLine], *, width: int = 1000) -> Picture:
    """Parallel coordinates: vertical axes side by side, and each line through its values. A line is interrupted where a
    value is missing. Titles name the lines; a table next to the picture serves people who can't point."""
    top, bottom, left, right, height = 40, 26, 70, 70, 340
    gap = (width - left - right) / max(len(axes) - 1, 1)
    scales = [_scale(axis.values) for axis in axes]
    parts = []
    for i in sorted(range(len(lines)), key=lambda i: -1 if lines[i].rank is None else lines[i].rank or 0):
        points = [
            (left + gap * n, top + (1 - place) * (height - top - bottom))
            for n, (axis, (_, at)) in enumerate(zip(axes, scales, strict=True))
            if (place := at(axis.values[i])) is not None
        ]
        kind = "none" if lines[i].rank is None else f"r{lines[i].rank}"
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(
            f'<polyline class="parallel-line {kind}" points="{path}"><title>{escape(lines[i].label)}</title></polyline>'
        )
    for n, (axis, (ticks, at)) in enumerate(zip(axes, scales, strict=True)):
        x = left + gap * n
        side = "start" if n == 0 else "end" if n == len(axes) - 1 else "middle"
        edge = x if side == "middle" else (4 if side == "start" else width - 4)
        parts.append(f'<line class="parallel-axis" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{height - bottom}"/>')
        parts.append(f'<text class="parallel-name" x="{edge:.1f}" y="{16 + 14 * (n % 2)}" text-anchor="{side}">')
        parts.append(f"{escape(axis.title)}</text>")
        for tick in ticks:
            y = top + (1 - (at(tick) or 0.0)) * (height - top - bottom)
            parts.append(f'<text class="parallel-tick" x="{x + 5:.1f}" y="{y + 4:.1f}">{escape(_written(tick))}</text>')
    label = f"{len(lines)} jobs as lines over {', '.join(axis.title for axis in axes)}"
    return Picture(
        f'<svg class="parallel" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _scale(values: Sequence[Any]) -> tuple[list[Any], Callable[[Any], float | None]]:
    """The ticks of an axis, and the position of a value on it from 0 to 1. Numbers over more than two powers of ten are
    placed by their logarithm, words at equal distances."""
    known = [value for value in values if value is not None]
    numbers = [float(one) for one in known if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) < len(known) or not numbers:
        words = sorted({str(value) for value in known})
        places = {word: (i / (len(words) - 1) if len(words) > 1 else 0.5) for i, word in enumerate(words)}
        return list(words), lambda value: None if value is None else places.get(str(value))
    low, high = min(numbers), max(numbers)
    wide = low > 0 and high / low > 100
    a, b = (math.log(low), math.log(high)) if wide else (low, high)

    def at(value: Any) -> float | None:
        if value is None:
            return None
        number = math.log(float(value)) if wide else float(value)
        return (number - a) / (b - a) if b > a else 0.5

    middle = math.exp((a + b) / 2) if wide else (low + high) / 2
    return ([low, middle, high] if high > low else [low]), at


def _written(tick: Any) -> str:
    if not isinstance(tick, float):
        return str(tick)[:18]
    return minus(f"{tick:,.0f}" if abs(tick) >= 1000 else f"{tick:.3g}")


def span_bar(starts: float, took: float, length: float, *, kind: str, label: str, height: int = 12) -> Picture:
    """A bar of a waterfall: of ``length`` it begins at ``starts`` and takes ``took``. It fills the available width,
    with a visible minimum."""
    width = 1000.0
    x = min(width, max(0.0, width * starts / length)) if length > 0 else 0.0
    long = max(4.0, width * took / length if length > 0 else width)
    x = min(x, width - 4.0)
    return Picture(
        f'<svg class="span-bar" viewBox="0 0 {width:.0f} {height}" preserveAspectRatio="none" role="img"'
        f' aria-label="{escape(label)}"><rect class="{escape(kind)}" x="{x:.1f}" y="1"'
        f' width="{min(long, width - x):.1f}" height="{height - 2}" rx="2"/></svg>'
    )
