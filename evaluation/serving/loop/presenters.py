"""Learning loops as pages and REST show them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db.models import QuerySet
from django.utils import timezone

from agentcore_site.lib.money import dollars
from evaluation.serving.loop.advance import daily_due, new_traces
from evaluation.serving.loop.drift import ALPHA
from evaluation.serving.loop.selectors import hindrance, may_not
from evaluation.serving.models import ArmName, LearningLoop, LoopTurn, ProductionTrace, TurnState

TRACK: Final = (
    TurnState.COLLECTING,
    TurnState.REVIEWING,
    TurnState.TRAINING,
    TurnState.GATING,
    TurnState.DEPLOYING,
    TurnState.DONE,
)
PER: Final = 1_000  # queries, the unit of shown costs


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn with its track: (title, "good", "accent", "bad", or "" for a state to come). ``before`` and ``after`` are
    dollars per 1,000 queries of the previous release and of its own; None if its deployment has not measured them."""

    turn: LoopTurn
    track: tuple[tuple[str, str], ...]
    sentence: str
    tone: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class TurnReturn:
    """The return of a completed turn: ``saved`` dollars over the ``queries`` that its release answered since, and
    ``multiple``, the same in units of the turn's cost (None if it cost nothing)."""

    queries: int
    saved: float
    multiple: float | None
    points_per_dollar: float | None


def shown_turn(turn: LoopTurn) -> ShownTurn:
    cost = turn.online.get("cost", {})
    before, after = ((PER * cost[name] if cost.get(name) is not None else None) for name in ("current", "new"))
    tone = {TurnState.DONE: "good", TurnState.STOPPED: "bad"}.get(TurnState(turn.state), "")
    return ShownTurn(turn, _track(turn), sentence_of_turn(turn), tone, before, after)


def sentence_of_turn(turn: LoopTurn) -> str:
    if turn.state == TurnState.DONE:
        gain = turn.gain.get("improvement")
        proven = f", better by {100 * gain:.1f} points on held-out queries" if gain is not None else ""
        return f"The release is in production{proven}."
    if turn.state == TurnState.STOPPED:
        return f"Stopped at {TurnState(turn.reached).label.lower()}: {turn.reason}"
    waits = f", waits for {turn.waits_for}" if turn.waits_for else ""
    return f"{TurnState(turn.state).label}{waits}."


def _track(turn: LoopTurn) -> tuple[tuple[str, str], ...]:
    done = turn.state == TurnState.DONE
    at = len(TRACK) if done else TRACK.index(TurnState(turn.reached))
    here = "bad" if turn.state == TurnState.STOPPED else "accent"
    return tuple((one.label, "good" if n < at else here if n == at else "") for n, one in enumerate(TRACK))


def return_of(shown: ShownTurn) -> TurnReturn | None:
    """None if the turn is not completed, or if its release's saving is unknown."""
    turn = shown.turn
    if turn.state != TurnState.DONE or shown.before is None or shown.after is None:
        return None
    queries = _answered_since(turn).count()
    saved = (shown.before - shown.after) / PER * queries
    cost = dollars(turn.cost_micros)
    points = 100 * (turn.gain.get("improvement") or 0.0)
    return TurnReturn(queries, saved, saved / cost if cost else None, points / cost if cost else None)


def _answered_since(turn: LoopTurn) -> QuerySet[ProductionTrace]:
    rows = ProductionTrace.objects.filter(agent=turn.agent_id, release_id=turn.release_id)
    return rows.exclude(arm=ArmName.SHADOW)


def next_of(loop: LearningLoop) -> list[str]:
    """Conditions that begin the next turn, or the reason why none can begin: sentences."""
    if why := hindrance(loop):
        return [why]
    if not loop.on:
        return ["The loop is off: only a person can begin a turn."]
    if why := may_not(loop):
        return [why]
    found = []
    if loop.after_traces:
        n = new_traces(loop, most=loop.after_traces)
        which = "new traces with feedback" if loop.judged_only else "new traces"
        found.append(f"After {max(loop.after_traces - n, 0):,} more of {loop.after_traces:,} {which}.")
    if loop.daily:
        at = daily_due(timezone.now()) + timedelta(days=1)
        found.append(f"On {at:%d %B at %H:%M} UTC, as every day.")
    if loop.on_drift:
        sentence = loop.drift.get("sentence", "Not checked yet.")
        found.append(f"When production gets worse (error of at most {100 * ALPHA:g} %): {sentence}")
    return found or ["No trigger is set: choose one in the settings."]
