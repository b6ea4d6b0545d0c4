"""Spending over time as SVG, drawn on the server: the sum so far, the limit, and where the pace leads.

Shapes get their colours from classes (``budgets.css``): the content security policy forbids style attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Final

from agentcore_site.console.svg import Picture
from agentcore_site.lib.money import MICROS
from agentcore_site.lib.money_format import money
from budgets.forecasting import Forecast

LEFT, RIGHT, TOP, BOTTOM = 58, 14, 18, 26
# A limit that is further away than this many times what is shown would press the curve flat: it is named instead.
FAR: Final = 6


@dataclass(frozen=True, slots=True)
class Curve:
    """``points``: (x, micro-dollars spent until then), ascending in x, from 0 to ``end``. ``ticks``: (x, its label).

    ``marks`` are texts for the points that say something on hover, by their index. ``forecast`` leads from the last
    point to ``end``; its interval is drawn as a band that opens from there, cut off at the top.
    """

    points: Sequence[tuple[float, int]]
    end: float
    ticks: Sequence[tuple[float, str]]
    label: str
    limit_micros: int | None = None
    forecast: Forecast | None = None
    marks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Frame:
    """Coordinates of values on the picture. ``top_micros`` is the highest amount that is shown."""

    width: int
    height: int
    end: float
    top_micros: int

    def x(self, value: float) -> float:
        share = min(max(value / self.end, 0.0), 1.0) if self.end > 0 else 0.0
        return LEFT + share * (self.width - LEFT - RIGHT)

    def y(self, amount_micros: float) -> float:
        return self.far_y(min(max(amount_micros, 0.0), self.top_micros))

    def far_y(self, amount_micros: float) -> float:
        """The y coordinate of an amount that may lie beyond the frame."""
        return self.height - BOTTOM - amount_micros / self.top_micros * (self.height - TOP - BOTTOM)


def spending(curve: Curve, *, width: int = 760, height: int = 260, kind: str = "") -> Picture:
    """The curve in a frame of ``width`` x ``height`` units; ``kind`` is one more class of the picture."""
    step_micros, top_micros = scale(highest_micros(curve))
    frame = _Frame(width, height, curve.end, top_micros)
    parts = [*_axes(frame, step_micros, curve.ticks)]
    if curve.forecast is not None and curve.points:
        parts += _forecast(frame, curve.points[-1], curve.forecast)
    if curve.limit_micros is not None:
        parts += _limit(frame, curve.limit_micros)
    parts += _line(frame, curve)
    attributes = f'class="burn {escape(kind)}" viewBox="0 0 {width} {height}" role="img"'
    return Picture(f'<svg {attributes} aria-label="{escape(curve.label)}">{"".join(parts)}</svg>')


def pictures(curve: Curve | None) -> list[Picture]:
    """The curve for wide and for narrow screens, of which the stylesheet shows one: text keeps its size in both."""
    if curve is None:
        return []
    return [spending(curve, kind="wide"), spending(curve, width=360, height=230, kind="narrow")]


def highest_micros(curve: Curve) -> int:
    """The highest amount that has to be on the picture, in micro-dollars. A forecast never is: it would press flat what
    was really spent, and leaves the picture at its top."""
    top_micros = max([0, *(amount_micros for _, amount_micros in curve.points)])
    if curve.limit_micros is not None and (not top_micros or curve.limit_micros <= FAR * top_micros):
        top_micros = max(top_micros, curve.limit_micros)
    return top_micros or 1


def scale(top_micros: int) -> tuple[int, int]:
    """(step of the axis, its end) in micro-dollars: three to six steps of 1, 2 or 5 times a power of ten."""
    raw_micros = max(top_micros, 1) / 4
    base_micros = 10 ** floor(log10(raw_micros)) if raw_micros >= 1 else 1
    step_micros = next(int(factor * base_micros) for factor in (1, 2, 5, 10) if factor * base_micros >= raw_micros)
    return step_micros, step_micros * max(1, ceil(top_micros * 1.02 / step_micros))


def amount_label(amount_micros: int, step_micros: int) -> str:
    """Dollars with as many decimals as the axis' steps need."""
    decimals = max(0, -floor(log10(step_micros / MICROS))) if step_micros < MICROS else 0
    if decimals == 1:
        decimals = 2
    return f"${amount_micros / MICROS:,.{decimals}f}"


def _axes(frame: _Frame, step_micros: int, ticks: Sequence[tuple[float, str]]) -> list[str]:
    right, bottom = frame.width - RIGHT, frame.height - BOTTOM
    parts = []
    for amount_micros in range(0, frame.top_micros + 1, step_micros):
        y = frame.y(amount_micros)
        parts.append(f'<line class="burn-grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        text = amount_label(amount_micros, step_micros)
        parts.append(f'<text class="burn-axis" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    for x, name in ticks:
        at = frame.x(x)
        parts.append(f'<line class="burn-tick" x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
        anchor = "end" if at > right - 20 else "start" if at < LEFT + 8 else "middle"
        parts.append(
            f'<text class="burn-axis" x="{at:.1f}" y="{bottom + 17}" text-anchor="{anchor}">{escape(name)}</text>'
        )
    return parts


def _limit(frame: _Frame, limit_micros: int) -> list[str]:
    right = frame.width - RIGHT
    name = f"limit {money(limit_micros)}"
    if limit_micros > frame.top_micros:
        return [f'<text class="burn-name" x="{right}" y="{TOP - 6}" text-anchor="end">{name}, far above ↑</text>']
    y = frame.y(limit_micros)
    return [
        f'<line class="burn-limit" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>',
        f'<text class="burn-name" x="{LEFT + 6}" y="{y - 5:.1f}">{name}</text>',
    ]


def _forecast(frame: _Frame, last: tuple[float, int], forecast: Forecast) -> list[str]:
    """Inside a picture of its own, which cuts off what lies above the frame without bending the lines."""
    x, y, end = frame.x(last[0]), frame.y(last[1]), frame.x(frame.end)
    width, height = frame.width - LEFT - RIGHT, frame.height - TOP - BOTTOM
    parts = [f'<svg x="{LEFT}" y="{TOP}" width="{width}" height="{height}" viewBox="{LEFT} {TOP} {width} {height}">']
    if forecast.low_micros is not None and forecast.high_micros is not None:
        low, high = frame.far_y(forecast.low_micros), frame.far_y(forecast.high_micros)
        parts.append(f'<polygon class="burn-band" points="{x:.1f},{y:.1f} {end:.1f},{high:.1f} {end:.1f},{low:.1f}"/>')
    middle = frame.far_y(forecast.middle_micros)
    parts.append(f'<line class="burn-pace" x1="{x:.1f}" y1="{y:.1f}" x2="{end:.1f}" y2="{middle:.1f}"/></svg>')
    return parts


def _line(frame: _Frame, curve: Curve) -> list[str]:
    places = [(frame.x(x), frame.y(amount_micros)) for x, amount_micros in curve.points]
    if not places:
        return []
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<polyline class="burn-line" points="{line}"/>']
    for (x, y), text in zip(places, curve.marks, strict=False):
        if text:
            parts.append(
                f'<circle class="burn-day" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{escape(text)}</title></circle>'
            )
    x, y = places[-1]
    parts.append(f'<circle class="burn-now" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
    return parts
