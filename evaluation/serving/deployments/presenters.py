"""Deployments as pages and REST show them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from agentcore_site.console.svg import Picture
from agentcore_site.lib.figures import minus
from agentcore_site.lib.money_format import usd
from agentcore_site.lib.statistics import finite_or_none
from evaluation.serving.deployments.advance import waits_for
from evaluation.serving.deployments.rules import HOUR, MEASURES, DeploymentRule
from evaluation.serving.models import Deployment, DeploymentState, DeploymentStrategy
from evaluation.serving.monitoring.bands import Difference
from evaluation.serving.monitoring.fixed_rate import FixedRate
from evaluation.serving.monitoring.guardrails import ALPHA, COUNTED, WATCHED, Monitor
from evaluation.serving.monitoring.non_inferiority import NonInferiority, NoWorse

TITLES: Final = {
    "failures": "Failed requests",
    "reward": "Reward",
    "safety": "Requests with safety findings",
    "session_failures": "Failed requests of a whole session",
    "session_reward": "Reward of a whole session",
    "cost": "Cost",
    "latency": "Time to answer",
}
BETTER: Final = {"reward": 1, "session_reward": 1}  # higher is better; of all others lower is better
WORDS: Final = {
    "started": "Started",
    "advanced": "Next stage",
    "paused": "Paused",
    "asked": "Waiting for a person",
    "resumed": "Resumed",
    "overridden": "Gate overridden",
    "rolled_back": "Rolled back",
    "done": "Serves all",
    "stopped": "Stopped",
    "told": "Webhook notified",
    "untold": "Webhook not notified",
}
FEW: Final = 5  # below this number of failures or findings no interval of their rates is shown
TONES: Final = {"rolled_back": "bad", "done": "good", "paused": "quiet", "told": "quiet", "untold": "bad"}


@dataclass(frozen=True, slots=True)
class GuardrailRow:
    """One guardrail: the means of both arms, and their difference with an interval over all interim analyses (None: too
    few)."""

    name: str
    title: str
    current: float | None
    new: float | None
    difference: float | None
    low: float | None
    high: float | None
    e_value: float
    show: Callable[[float | None], str]

    @property
    def tone(self) -> str:
        """ "good" or "bad" if the whole interval lies on one side of 0; else ""."""
        sign = BETTER.get(self.name, -1)
        if self.low is not None and self.low > 0:
            return "good" if sign > 0 else "bad"
        if self.high is not None and self.high < 0:
            return "bad" if sign > 0 else "good"
        return ""

    @property
    def interval(self) -> str:
        if self.low is None or self.high is None:
            return "too little data"
        return f"{self.show(self.low)} to {self.show(self.high)}"

    @property
    def shown_current(self) -> str:
        return self.show(self.current)

    @property
    def shown_new(self) -> str:
        return self.show(self.new)


class NoWorseRow(NamedTuple):
    """One measure whose non-inferiority a canary has to show, with its evidence; an ``e_value`` of 20 is enough."""

    name: str
    e_value: float
    shown: bool
    margin: float

    @property
    def title(self) -> str:
        return f"{MEASURES[self.name].capitalize()} no worse by {self.margin * 100:g} points"

    @property
    def words(self) -> str:
        return "shown" if self.shown else f"not shown yet (evidence {self.e_value:,.2f} of {1 / ALPHA:.0f})"


@dataclass(frozen=True, slots=True)
class ShownDeployment:
    """A deployment with its figures. ``sessions`` were counted, ``new`` of them of the new release; ``rate`` is the
    failure rate of a blue-green deployment."""

    rows: list[GuardrailRow]
    sessions: int
    new: int
    e_value: float
    waits_for: str
    verdict: str
    tone: str
    rate: FixedRate | None
    chart: Picture | None
    no_worse: list[NoWorseRow]
    patience_hours: float


def shown_deployment(deployment: Deployment) -> ShownDeployment:
    stored = deployment.monitor
    monitor = Monitor.from_json(stored) if "evidence" in stored else Monitor()
    counted = monitor.differences.get("failures", Difference())
    rate = FixedRate.from_json(stored["rate"]) if "rate" in stored else None
    return ShownDeployment(
        rows=[_row(name, monitor) for name in WATCHED if name in monitor.differences],
        sessions=rate.n if rate else counted.n,
        new=rate.n if rate else counted.new,
        e_value=rate.e_value if rate else monitor.e_value,
        waits_for=_waits(deployment),
        verdict=sentence_of(deployment),
        tone={"rolled_back": "bad", "done": "good"}.get(deployment.state, ""),
        rate=rate,
        chart=evidence_chart(stored.get("history", [])),
        no_worse=_no_worse(deployment),
        patience_hours=DeploymentRule.from_json(deployment.rule).patience_minutes / HOUR,
    )


def _no_worse(deployment: Deployment) -> list[NoWorseRow]:
    rule = DeploymentRule.from_json(deployment.rule)
    if deployment.strategy != DeploymentStrategy.CANARY or rule.margin is None:
        return []
    stored = deployment.monitor.get("no_worse")
    known = NoWorse.from_json(stored).known if stored else {"failures": NonInferiority(rule.margin)}
    return [NoWorseRow(name, math.exp(min(one.log, 700)), one.shown, one.margin) for name, one in known.items()]


def sentence_of(deployment: Deployment) -> str:
    """The state of the deployment, in one sentence."""
    name = f"Release {deployment.release.number}"
    if deployment.state == DeploymentState.DONE:
        return f"{name} got all of the traffic."
    if deployment.state == DeploymentState.ROLLED_BACK:
        return f"{name} was rolled back. {deployment.reason}"
    if deployment.state == DeploymentState.STOPPED:
        return f"{name} answered copies of requests as a shadow; it was stopped."
    paused = " It is paused and does not advance." if deployment.state == DeploymentState.PAUSED else ""
    if deployment.strategy == DeploymentStrategy.SHADOW:
        return f"{name} answers a copy of {deployment.share:.0%} of the sessions, which no user sees.{paused}"
    if deployment.strategy == DeploymentStrategy.BLUE_GREEN and deployment.share == 0:
        return f"{name} is ready next to the current release, and gets no traffic until you switch.{paused}"
    asked = " It waits for a person: non-inferiority was not shown in time." if deployment.asked_at else ""
    return f"{name} gets {deployment.share:.0%} of the sessions.{paused}{asked}"


def _waits(deployment: Deployment) -> str:
    if deployment.state != DeploymentState.RUNNING:
        return ""
    return waits_for(deployment, DeploymentRule.from_json(deployment.rule))


def _row(name: str, monitor: Monitor) -> GuardrailRow:
    found = monitor.differences[name]
    new, current = (finite_or_none(one) for one in found.means)
    band = found.band()
    difference, low, high = (finite_or_none(one) for one in (band.difference, band.low, band.high))
    few = name in COUNTED and found.sum_new + found.sum_old < FEW
    if few or low == high:  # the interval is exact only for many events, and means nothing if no session differed
        low = high = None
    e_value = monitor.evidence[name].e_value
    return GuardrailRow(name, TITLES[name], current, new, difference, low, high, e_value, SHOWN[name])


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value * 100:.1f} %"


def _dollars(value: float | None) -> str:
    return "–" if value is None else usd(value)


def _time(value: float | None) -> str:
    return "–" if value is None else minus(f"{value:,.1f} ms")


def _number(value: float | None) -> str:
    return "–" if value is None else minus(f"{value:.3f}")


SHOWN: Final[dict[str, Callable[[float | None], str]]] = {
    "failures": _share,
    "reward": _number,
    "safety": _share,
    "session_failures": _share,
    "session_reward": _number,
    "cost": _dollars,
    "latency": _time,
}


def evidence_chart(history: list[Any], *, width: int = 640, height: int = 120) -> Picture | None:
    """The evidence against the new release over the interim analyses, on a logarithmic scale, with the limit of a
    rollback as a line. None with fewer than two analyses."""
    if len(history) < 2:
        return None
    limit = math.log10(1 / ALPHA)
    values = [max(-2.0, math.log10(max(one[2], 1e-12))) for one in history]
    top, bottom = max(limit + 0.4, *values), min(-1.0, *values)

    def y(value: float) -> float:
        return round(height - 6 - (value - bottom) / (top - bottom) * (height - 12), 1)

    step = (width - 12) / (len(values) - 1)
    points = " ".join(f"{6 + at * step:.1f},{y(value)}" for at, value in enumerate(values))
    label = f"Evidence against the new release over {len(values)} analyses; it is rolled back at {1 / ALPHA:.0f}."
    return Picture(
        f'<svg class="evidence" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img"'
        f' aria-label="{label}">'
        f'<line class="limit" x1="6" x2="{width - 6}" y1="{y(limit)}" y2="{y(limit)}"/>'
        f'<polyline points="{points}"/></svg>'
    )
