"""Deployments as pages and REST show them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from agentcore_site.console.figures import DrawnFigure, FigureColumn
from agentcore_site.lib.figures import minus
from agentcore_site.lib.money_format import usd
from agentcore_site.lib.statistics import finite_or_none
from evaluation.serving.deployments.advance import waits_for
from evaluation.serving.deployments.rules import HOUR, MEASURES, DeploymentRule
from evaluation.serving.models import Deployment, DeploymentState, DeploymentStrategy
from evaluation.serving.monitoring.bands import Difference
from evaluation.serving.monitoring.fixed_rate import FixedRate
from evaluation.serving.monitoring.guardrails import ALPHA, COUNTED, WATCHED, Alarm, Monitor
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
SMALLEST: Final = 1e-12  # evidence on a logarithmic scale
FEW: Final = 5  # below this number of failures or findings no interval of their rates is shown
TONES: Final = {"rolled_back": "bad", "done": "good", "paused": "quiet", "told": "quiet", "untold": "bad"}


@dataclass(frozen=True, slots=True)
class GuardrailRow:
    """One guardrail: the means of both arms, and their difference with an interval over all interim analyses (None: too
    few). ``decided``: its evidence is the strongest of those on which the new release is rolled back. ``unclear``: what
    the interval says where there is none."""

    name: str
    title: str
    current: float | None
    new: float | None
    difference: float | None
    low: float | None
    high: float | None
    e_value: float
    show: Callable[[float | None], str]
    decided: bool = False
    unclear: str = "too little data"

    @property
    def tone(self) -> str:
        """ "good" or "bad" if the whole interval lies on one side of 0; else ""."""
        if self.decided:
            return "bad"
        sign = BETTER.get(self.name, -1)
        if self.low is not None and self.low > 0:
            return "good" if sign > 0 else "bad"
        if self.high is not None and self.high < 0:
            return "bad" if sign > 0 else "good"
        return ""

    @property
    def interval(self) -> str:
        if self.low is None or self.high is None:
            return "shown to be worse" if self.decided else self.unclear
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
    figure: DrawnFigure | None
    decision: str
    no_worse: list[NoWorseRow]
    patience_hours: float


def shown_deployment(deployment: Deployment) -> ShownDeployment:
    stored = deployment.monitor
    monitor = Monitor.from_json(stored) if "evidence" in stored else Monitor()
    counted = monitor.differences.get("failures", Difference())
    rate = FixedRate.from_json(stored["rate"]) if "rate" in stored else None
    alarm = monitor.alarm()
    rows = [_row(name, monitor, alarm) for name in WATCHED if name in monitor.differences]
    rows.sort(key=lambda row: not row.decided)
    return ShownDeployment(
        rows=rows,
        sessions=rate.n if rate else counted.n,
        new=rate.n if rate else counted.new,
        e_value=rate.e_value if rate else monitor.e_value,
        waits_for=_waits(deployment),
        verdict=sentence_of(deployment),
        tone={"rolled_back": "bad", "done": "good"}.get(deployment.state, ""),
        rate=rate,
        figure=evidence_figure(stored.get("history", [])),
        decision=_decision(deployment, rows, monitor.e_value),
        no_worse=_no_worse(deployment),
        patience_hours=DeploymentRule.from_json(deployment.rule).patience_minutes / HOUR,
    )


def _decision(deployment: Deployment, rows: list[GuardrailRow], e_value: float) -> str:
    """The measure that a canary was rolled back for, in words that need no statistics; "" for other ends."""
    decided = next((row for row in rows if row.decided), None)
    if deployment.state != DeploymentState.ROLLED_BACK or decided is None:
        return ""
    return (
        f"{decided.title}: {decided.shown_new} with the new release, {decided.shown_current} with the current one. If"
        f" both were equally good, evidence this strong would come up in at most 1 of {e_value:,.0f} canaries."
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


def _row(name: str, monitor: Monitor, alarm: Alarm | None) -> GuardrailRow:
    found = monitor.differences[name]
    new, current = (finite_or_none(one) for one in found.means)
    band = found.band()
    difference, low, high = (finite_or_none(one) for one in (band.difference, band.low, band.high))
    few = name in COUNTED and found.sum_new + found.sum_old < FEW
    if few or low == high:  # the interval is exact only for many events, and means nothing if no session differed
        low = high = None
    e_value = monitor.evidence[name].e_value
    decided = alarm is not None and alarm.guardrail == name
    unclear = "too little data" if alarm is None else "did not decide"
    return GuardrailRow(name, TITLES[name], current, new, difference, low, high, e_value, SHOWN[name], decided, unclear)


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


def evidence_figure(history: list[Any]) -> DrawnFigure | None:
    """The evidence against the new release after each interim analysis, with the limit of a rollback as a line. None
    with fewer than two analyses."""
    if len(history) < 2:
        return None
    limit = 1 / ALPHA
    columns = [
        FigureColumn("Analysis", "moment"),
        FigureColumn("Evidence that the new release is worse", "number"),
        FigureColumn("Rolled back from here", "number", "dashed"),
    ]
    rows = [[datetime.fromisoformat(at), max(e_value, SMALLEST), limit] for at, _, e_value in history]
    note = (
        "The curve rises while the new release does worse than the current one, and falls while it does not. At the"
        f" dashed line the new release is rolled back: of two equal releases at most 1 in {limit:.0f} ever gets there."
    )
    return DrawnFigure("Evidence over time", columns, rows, note=note, axis="Evidence (1: none)", log=True)
